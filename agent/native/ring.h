/*
 * ring.h - the rings of one record type, one for each CPU that is online; see
 * bpf/ring.bpf.h.
 */
#ifndef LATPROF_RING_READER_H
#define LATPROF_RING_READER_H

#include <stddef.h>
#include <stdint.h>

struct bpf_map;

/* Possible CPUs may be many more than there are, and numbers have gaps. */
struct cpus {
	int *numbers; /* of those online, to be freed */
	int count;
	int possible;
};

/* Those of now; -errno. */
int cpus_find(struct cpus *ret);

struct ring {
	struct bpf_map *map; /* borrowed */
	const struct cpus *cpus; /* borrowed */
	char *area; /* the map's entries, once they are mapped */
	size_t slot_bytes; /* a sequence and the record */
	size_t slots; /* of each CPU; a power of two */
	int next; /* of the CPUs to begin with, so that none starves */
};

/* Gives each CPU's ring as many slots as go into `bytes`. Before the load. */
int ring_size(struct ring *ring, size_t bytes);

/* Maps a loaded ring and makes it ready for records; -errno. */
int ring_open(struct ring *ring);
void ring_close(struct ring *ring);

/* At most so many bytes of records are in the rings now. */
size_t ring_waiting(const struct ring *ring);

/* Copies whole records of all CPUs into `buffer`; returns how many bytes.
 * Bounded by `size`, whatever the producers do. */
size_t ring_read(struct ring *ring, void *buffer, size_t size);

/* Bytes of records that all CPUs' rings can hold. */
size_t ring_room(const struct ring *ring);

/* Copies what rings hold that are written over all the time (FLIGHT() in
 * flight.bpf.c), for which `buffer` has ring_room(); returns how many bytes.
 * What may have changed meanwhile is left out. `since` has a number for each
 * CPU: the time of its first record, 0 where none was written over yet. */
size_t ring_copy(const struct ring *ring, void *buffer, uint64_t *since);

#endif
