/*
 * rate.h - a bound on bytes per second that all sessions share.
 *
 * Kept as the time at which all that was let through is paid for (a leaky
 * bucket): one number, changed by whoever asks.
 */
#ifndef LATPROF_LOAD_RATE_H
#define LATPROF_LOAD_RATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rate {
	uint64_t bytes_per_second; /* 0: none */
	_Atomic uint64_t paid_ns;
	_Atomic uint64_t waits; /* how often somebody had to wait */
};

/* When these bytes may pass, as now_ns is: that, or later. They count as
 * passed. Not for bytes_per_second 0. */
uint64_t rate_reserve(struct rate *r, uint64_t bytes, uint64_t now_ns);
/* Whoever reserved these bytes left before they could pass. */
void rate_give_back(struct rate *r, uint64_t bytes);

#endif
