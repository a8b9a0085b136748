/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_CLOCK_H
#define LINK_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_S 1000000000ull
#define CLOCK_NEVER UINT64_MAX

/* CLOCK_MONOTONIC in ns, the clock of every stamp in this project. */
static inline uint64_t clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

#endif
