/* clock.h - the two clocks of the load generator. */
#ifndef LATPROF_LOAD_CLOCK_H
#define LATPROF_LOAD_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_SECOND 1000000000ull
#define NS_PER_MS 1000000ull

/* CLOCK_MONOTONIC in ns; every stamp of ours is on it. */
static inline uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

/* The wall clock in ns; only the header of `--wire clear` carries it. */
static inline uint64_t clock_real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

#endif
