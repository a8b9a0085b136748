/*
 * log.h - libbpf's own words for the last failure.
 */
#ifndef LATPROF_LOG_H
#define LATPROF_LOG_H

/* Forgets what was said before, and listens. */
void log_start(void);

/* What libbpf has warned of since, of long messages the end; owned by the log.
 */
const char *log_text(void);

#endif
