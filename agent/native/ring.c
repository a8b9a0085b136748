/*
 * ring.c - the reading side of bpf/ring.bpf.h.
 */
#include "ring.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../bpf/records.h"

enum { OVERWRITE_MARGIN = 16 };

struct batch {
	char *bytes;
	size_t size;
	size_t used;
};

/* A control for each CPU that there may be, slots for each that is online. */
static size_t entries(const struct ring *ring)
{
	return ring->cpus->possible + ring->cpus->count * ring->slots;
}

static size_t area_bytes(const struct ring *ring)
{
	size_t page = sysconf(_SC_PAGESIZE);
	size_t bytes = entries(ring) * ring->slot_bytes;

	return (bytes + page - 1) / page * page;
}

/* A list as the kernel writes it: 0-3,8. */
static int add_ranges(const char *text, struct cpus *ret)
{
	while (*text >= '0' && *text <= '9') {
		char *behind;
		long first = strtol(text, &behind, 10), last = first;

		if (*behind == '-')
			last = strtol(behind + 1, &behind, 10);
		for (; first <= last && first < ret->possible; first++)
			ret->numbers[ret->count++] = (int)first;
		text = behind + (*behind == ',');
	}
	return ret->count ? 0 : -ENODEV;
}

int cpus_find(struct cpus *ret)
{
	FILE *file = fopen("/sys/devices/system/cpu/online", "re");
	struct cpus found = { .possible = libbpf_num_possible_cpus() };
	char text[4096] = "";
	int error;

	if (!file)
		return -errno;
	error = fgets(text, sizeof(text), file) ? 0 : -ENODEV;
	fclose(file);
	if (error || found.possible <= 0)
		return -ENODEV;
	found.numbers = calloc(found.possible, sizeof(*found.numbers));
	if (!found.numbers)
		return -ENOMEM;
	error = add_ranges(text, &found);
	if (error)
		free(found.numbers);
	else
		*ret = found;
	return error;
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

/* Of the i-th CPU that is online. */
static struct ring_control *control_of(const struct ring *ring, int i)
{
	return (struct ring_control *)entry(ring, ring->cpus->numbers[i]);
}

int ring_open(struct ring *ring)
{
	void *area = mmap(NULL, area_bytes(ring), PROT_READ | PROT_WRITE,
			  MAP_SHARED, bpf_map__fd(ring->map), 0);

	if (area == MAP_FAILED)
		return -errno;
	ring->area = area;
	for (int i = 0; i < ring->cpus->count; i++) {
		struct ring_control *control = control_of(ring, i);

		control->first = ring->cpus->possible + i * ring->slots;
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
static bool read_cpu(const struct ring *ring, int i, struct batch *batch)
{
	struct ring_control *control = control_of(ring, i);
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

	for (int i = 0; i < ring->cpus->count; i++) {
		struct ring_control *control = control_of(ring, i);

		records += __atomic_load_n(&control->head, __ATOMIC_ACQUIRE) -
			   control->tail;
	}
	return records * (ring->slot_bytes - sizeof(uint64_t));
}

size_t ring_read(struct ring *ring, void *buffer, size_t size)
{
	struct batch batch = { .bytes = buffer, .size = size };

	for (int i = 0; i < ring->cpus->count; i++) {
		int at = (ring->next + i) % ring->cpus->count;

		if (!read_cpu(ring, at, &batch)) {
			ring->next = at;
			break;
		}
	}
	return batch.used;
}

size_t ring_room(const struct ring *ring)
{
	return ring->cpus->count * ring->slots *
	       (ring->slot_bytes - sizeof(uint64_t));
}

/* The oldest record that no writer may have begun to replace: interrupts nest,
 * each with a record of its own. */
static uint64_t oldest(const struct ring_control *control)
{
	uint64_t head = __atomic_load_n(&control->head, __ATOMIC_ACQUIRE);
	uint64_t slots = (uint64_t)control->mask + 1;

	return head > slots - OVERWRITE_MARGIN ?
		       head - (slots - OVERWRITE_MARGIN) :
		       0;
}

/* The record's time, which each begins with. */
static uint64_t time_of(const char *record)
{
	uint64_t t_ns;

	memcpy(&t_ns, record, sizeof(t_ns));
	return t_ns;
}

static size_t copy_cpu(const struct ring *ring, int i, char *buffer,
		       uint64_t *since)
{
	struct ring_control *control = control_of(ring, i);
	const char *slots = entry(ring, control->first);
	size_t size = ring->slot_bytes - sizeof(uint64_t), used = 0;
	uint64_t head = __atomic_load_n(&control->head, __ATOMIC_ACQUIRE);
	uint64_t at = oldest(control);
	bool gap = at != 0;

	*since = 0;
	for (; at < head; at++) {
		const uint64_t *slot =
			(const uint64_t *)(slots + (at & control->mask) *
							   ring->slot_bytes);
		uint64_t before = __atomic_load_n(slot, __ATOMIC_ACQUIRE),
			 after;

		memcpy(buffer + used, slot + 1, size);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		after = __atomic_load_n(slot, __ATOMIC_RELAXED);
		/* it was written over before or while it was copied */
		gap = gap || after > at + 1;
		if (before != at + 1 || after != at + 1)
			continue;
		if (gap)
			*since = time_of(buffer + used);
		gap = false;
		used += size;
	}
	if (gap) /* nothing is left */
		*since = UINT64_MAX;
	return used;
}

size_t ring_copy(const struct ring *ring, void *buffer, uint64_t *since)
{
	size_t used = 0;

	for (int i = 0; i < ring->cpus->count; i++)
		used += copy_cpu(ring, i, (char *)buffer + used, &since[i]);
	return used;
}
