/* failure.h - how a function that must not print says what went wrong. */
#ifndef LATPROF_FAILURE_H
#define LATPROF_FAILURE_H

/* One line for the user: `<what failed>: <why>; <what to do>`. */
struct failure {
	char text[512];
};

/* Keep the line in *ret and return -error, so that callers can write
 * `return fail(failure, errno, ...)`. Control characters become `?`. */
int fail(struct failure *ret, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
