/*
 * ring.c - BPF ring buffers, read by ourselves.
 *
 * libbpf calls back for each record and gives each back to the kernel alone,
 * which costs twice as much, and maps every ring twice, which counts as our
 * memory. The layout is the kernel's (include/uapi/linux/bpf.h,
 * kernel/bpf/ringbuf.c): a page with the consumer's position, one with the
 * producer's, then the data; a record is a header of 8 bytes and its payload,
 * at multiples of 8.
 */
#include "ring.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct cpu_ring {
	uint64_t *consumed;
	const uint64_t *produced;
	const char *data;
};

struct batch {
	char *bytes;
	size_t size;
	size_t used;
};

static int map_pages(struct cpu_ring *cpu, int fd, size_t bytes)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	cpu->consumed = (uint64_t *)at;
	at = mmap(NULL, page + bytes, PROT_READ, MAP_SHARED, fd, page);
	if (at == MAP_FAILED)
		return -errno;
	cpu->produced = (const uint64_t *)at;
	cpu->data = at + page;
	return 0;
}

static void unmap_pages(struct cpu_ring *cpu, size_t bytes)
{
	size_t page = sysconf(_SC_PAGESIZE);

	if (cpu->consumed)
		munmap(cpu->consumed, page);
	if (cpu->produced)
		munmap((void *)cpu->produced, page + bytes);
}

static int open_cpu(struct ring *ring, int cpu)
{
	int outer = bpf_map__fd(ring->map), error;
	int inner = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "ring", 0, 0,
				   ring->bytes, NULL);

	if (inner < 0)
		return inner;
	error = bpf_map_update_elem(outer, &cpu, &inner, BPF_ANY);
	if (!error)
		error = map_pages(&ring->cpus[cpu], inner, ring->bytes);
	/* the array of rings and the mapping keep it alive */
	close(inner);
	return error;
}

int ring_open(struct ring *ring, int cpu_count)
{
	int error = 0;

	ring->cpus = calloc(cpu_count, sizeof(*ring->cpus));
	if (!ring->cpus)
		return -ENOMEM;
	ring->cpu_count = cpu_count;
	for (int cpu = 0; !error && cpu < cpu_count; cpu++)
		error = open_cpu(ring, cpu);
	return error;
}

void ring_close(struct ring *ring)
{
	for (int cpu = 0; cpu < ring->cpu_count; cpu++)
		unmap_pages(&ring->cpus[cpu], ring->bytes);
	free(ring->cpus);
	ring->cpus = NULL;
	ring->cpu_count = 0;
}

/* A record may go round the end of the ring. */
static void copy_record(const struct cpu_ring *cpu, size_t ring_bytes,
			uint64_t position, size_t size, struct batch *batch)
{
	size_t offset = position & (ring_bytes - 1);
	size_t left = ring_bytes - offset;
	char *to = batch->bytes + batch->used;

	if (size <= left) {
		memcpy(to, cpu->data + offset, size);
	} else {
		memcpy(to, cpu->data + offset, left);
		memcpy(to + left, cpu->data, size - left);
	}
	batch->used += size;
}

/* Whether all records fitted that were complete. */
static bool read_cpu(struct cpu_ring *cpu, size_t ring_bytes,
		     struct batch *batch)
{
	uint64_t end = __atomic_load_n(cpu->produced, __ATOMIC_ACQUIRE);
	uint64_t at = *cpu->consumed;
	bool room = true;

	while (at < end) {
		const char *header = cpu->data + (at & (ring_bytes - 1));
		uint32_t length = __atomic_load_n((const uint32_t *)header,
						  __ATOMIC_ACQUIRE);
		size_t size = length & ~BPF_RINGBUF_DISCARD_BIT;

		if (length & BPF_RINGBUF_BUSY_BIT)
			break;
		room = batch->size - batch->used >= size;
		if (!room)
			break;
		if (!(length & BPF_RINGBUF_DISCARD_BIT))
			copy_record(cpu, ring_bytes, at + BPF_RINGBUF_HDR_SZ,
				    size, batch);
		at += (size + BPF_RINGBUF_HDR_SZ + 7) & ~7ull;
	}
	__atomic_store_n(cpu->consumed, at, __ATOMIC_RELEASE);
	return room;
}

size_t ring_waiting(const struct ring *ring)
{
	size_t bytes = 0;

	for (int i = 0; i < ring->cpu_count; i++) {
		const struct cpu_ring *cpu = &ring->cpus[i];

		bytes += __atomic_load_n(cpu->produced, __ATOMIC_ACQUIRE) -
			 *cpu->consumed;
	}
	return bytes;
}

size_t ring_read(struct ring *ring, void *buffer, size_t size)
{
	struct batch batch = { .bytes = buffer, .size = size };

	for (int i = 0; i < ring->cpu_count; i++) {
		int cpu = (ring->next + i) % ring->cpu_count;

		if (!read_cpu(&ring->cpus[cpu], ring->bytes, &batch)) {
			ring->next = cpu;
			break;
		}
	}
	return batch.used;
}
