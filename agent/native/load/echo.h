/* echo.h - the responder as a program: its socket, its threads, its end. */
#ifndef LATPROF_LOAD_ECHO_H
#define LATPROF_LOAD_ECHO_H

#include "flags.h"
#include "responder.h"

struct echo {
	const struct options *options;
	int fd; /* listening, or the UDP socket */
	int signals; /* a signalfd of SIGINT and SIGTERM */
	uint16_t port;
	struct responder_counters counters;
};

/* Listen. From now on SIGINT and SIGTERM wait for echo_run(). 0 or -errno
 * with a line. */
int echo_open(struct echo *e, const struct options *options,
	      struct failure *failure);
/* Serve until a signal or, with --until-eof, the end of stdin. Connections
 * still open then end with the process. 0 or -errno with a line. */
int echo_run(struct echo *e, struct failure *failure);

#endif
