/*
 * ring.h - the rings of one record type, one for each CPU.
 */
#ifndef LATPROF_RING_READER_H
#define LATPROF_RING_READER_H

#include <stddef.h>

struct bpf_map;
struct cpu_ring;

struct ring {
	struct bpf_map *map; /* the array of rings; borrowed */
	size_t bytes; /* of each CPU's ring; a power of two, pages */
	struct cpu_ring *cpus;
	int cpu_count;
	int next; /* CPU to begin with, so that none starves */
};

/* Makes a ring for each CPU and enters it into the loaded map. -errno; what was
 * made is released by ring_close(). */
int ring_open(struct ring *ring, int cpu_count);
void ring_close(struct ring *ring);

/* At most so many bytes of records are in the rings now. */
size_t ring_waiting(const struct ring *ring);

/* Copies whole records of all CPUs into `buffer`; returns how many bytes.
 * Bounded by `size`, whatever the producers do. */
size_t ring_read(struct ring *ring, void *buffer, size_t size);

#endif
