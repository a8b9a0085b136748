/* report.h - the line at the beginning, the summary at the end. */
#ifndef LATPROF_LOAD_REPORT_H
#define LATPROF_LOAD_REPORT_H

#include <stdio.h>

#include "echo.h"
#include "pingpong.h"

/* What is true of every run: the last members of its object. */
void report_common(FILE *to, const struct options *options, const char *address,
		   uint64_t port);
void report_pingpong(FILE *to, const struct options *options,
		     const struct pingpong_result *result);
/* `ready PORT WORKLOAD ...` */
void report_ready(FILE *to, const struct echo *echo);
void report_echo(FILE *to, const struct echo *echo);

#endif
