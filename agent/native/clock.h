/* clock.h - the clocks of both programs, in ns. */
#ifndef LATPROF_CLOCK_H
#define LATPROF_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_SECOND 1000000000ull
#define NS_PER_MS 1000000ull
#define NS_PER_HOUR (3600 * NS_PER_SECOND)
#define CLOCK_NEVER UINT64_MAX

static inline uint64_t clock_read_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

/* The clock of every stamp in this project. */
static inline uint64_t clock_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

#endif
