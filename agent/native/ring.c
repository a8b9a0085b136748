/*
 * ring.c - the reading side of bpf/ring.bpf.h.
 */
#include "ring.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../bpf/records.h"

struct batch {
	char *bytes;
	size_t size;
	size_t used;
};

static size_t entries(const struct ring *ring)
{
	return ring->cpu_count * (1 + ring->slots);
}

static size_t area_bytes(const struct ring *ring)
{
	size_t page = sysconf(_SC_PAGESIZE);
	size_t bytes = entries(ring) * ring->slot_bytes;

	return (bytes + page - 1) / page * page;
}

int ring_size(struct ring *ring, size_t bytes)
{
	ring->slot_bytes = bpf_map__value_size(ring->map);
	ring->slots = 1;
	while (2 * ring->slots * ring->slot_bytes <= bytes)
		ring->slots *= 2;
	if (entries(ring) > UINT32_MAX)
		return -E2BIG;
	return bpf_map__set_max_entries(ring->map, entries(ring));
}

static char *entry(const struct ring *ring, size_t index)
{
	return ring->area + index * ring->slot_bytes;
}

static struct ring_control *control_of(const struct ring *ring, int cpu)
{
	return (struct ring_control *)entry(ring, cpu);
}

int ring_open(struct ring *ring)
{
	void *area = mmap(NULL, area_bytes(ring), PROT_READ | PROT_WRITE,
			  MAP_SHARED, bpf_map__fd(ring->map), 0);

	if (area == MAP_FAILED)
		return -errno;
	ring->area = area;
	for (int cpu = 0; cpu < ring->cpu_count; cpu++) {
		struct ring_control *control = control_of(ring, cpu);

		control->first = ring->cpu_count + cpu * ring->slots;
		control->mask = ring->slots - 1;
	}
	return 0;
}

void ring_close(struct ring *ring)
{
	if (ring->area)
		munmap(ring->area, area_bytes(ring));
	ring->area = NULL;
}

/* Whether all records fitted that are whole. */
static bool read_cpu(const struct ring *ring, int cpu, struct batch *batch)
{
	struct ring_control *control = control_of(ring, cpu);
	const char *slots = entry(ring, control->first);
	size_t size = ring->slot_bytes - sizeof(uint64_t);
	uint64_t head = __atomic_load_n(&control->head, __ATOMIC_ACQUIRE);
	uint64_t at = control->tail;
	bool room = true;

	for (; at < head; at++) {
		const uint64_t *slot =
			(const uint64_t *)(slots + (at & control->mask) *
							   ring->slot_bytes);

		if (__atomic_load_n(slot, __ATOMIC_ACQUIRE) != at + 1)
			break; /* begun, and interrupted */
		room = batch->size - batch->used >= size;
		if (!room)
			break;
		memcpy(batch->bytes + batch->used, slot + 1, size);
		batch->used += size;
	}
	__atomic_store_n(&control->tail, at, __ATOMIC_RELEASE);
	return room;
}

size_t ring_waiting(const struct ring *ring)
{
	uint64_t records = 0;

	for (int cpu = 0; cpu < ring->cpu_count; cpu++) {
		struct ring_control *control = control_of(ring, cpu);

		records += __atomic_load_n(&control->head, __ATOMIC_ACQUIRE) -
			   control->tail;
	}
	return records * (ring->slot_bytes - sizeof(uint64_t));
}

size_t ring_read(struct ring *ring, void *buffer, size_t size)
{
	struct batch batch = { .bytes = buffer, .size = size };

	for (int i = 0; i < ring->cpu_count; i++) {
		int cpu = (ring->next + i) % ring->cpu_count;

		if (!read_cpu(ring, cpu, &batch)) {
			ring->next = cpu;
			break;
		}
	}
	return batch.used;
}
