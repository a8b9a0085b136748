/* workload.h - what a session can be about. */
#ifndef LATPROF_LOAD_WORKLOAD_H
#define LATPROF_LOAD_WORKLOAD_H

#include <stdint.h>

/* On the wire, and bits of a set: never give a value another meaning. */
enum workload {
	WORKLOAD_WHY, /* no session: why was mine ended? */
	WORKLOAD_PINGPONG,
	WORKLOAD_BULK,
	WORKLOAD_RECORDING,
	WORKLOAD_END,
};

/* By value; NULL where there is none. */
extern const char *const workload_names[WORKLOAD_END];

static inline uint32_t workload_bit(enum workload workload)
{
	return UINT32_C(1) << workload;
}

/* A set from names with commas between them. -EINVAL: one is not known. */
int workloads_read(const char *text, uint32_t *ret);

#endif
