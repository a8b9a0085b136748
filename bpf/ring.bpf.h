/*
 * ring.bpf.h - from a probe to user space: one ring per CPU and record type.
 *
 * Two CPUs that share one ring pay ten times as much per record, so RING()
 * declares an array of rings; the agent makes one for each CPU. The pointer
 * puts the record's type into the object's BTF, where the agent reads it.
 */
#ifndef LATPROF_RING_H
#define LATPROF_RING_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#define RING(name, record)                                          \
	struct {                                                    \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);           \
		__uint(max_entries, 1);                             \
		__type(key, __u32);                                 \
		__array(                                            \
			values, struct {                            \
				__uint(type, BPF_MAP_TYPE_RINGBUF); \
				__uint(max_entries, 4096);          \
			});                                         \
	} name SEC(".maps");                                        \
	const struct record *name##_record __attribute__((unused)); \
	__u64 name##_lost

/* The same for the labels of an enum. */
#define LABELS(name) const enum name *name##_labels __attribute__((unused))

/* Room for one record on this CPU's ring, or NULL with the loss counted. */
static __always_inline void *ring_reserve(void *rings, __u64 size, __u64 *lost)
{
	__u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(rings, &cpu);
	void *record = ring ? bpf_ringbuf_reserve(ring, size, 0) : NULL;

	if (!record)
		__sync_fetch_and_add(lost, 1);
	return record;
}

#define RESERVE(name) ring_reserve(&name, sizeof(*name##_record), &name##_lost)

/* The agent drains on a timer: waking it per record costs ten records. */
#define SUBMIT(record) bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP)

#endif
