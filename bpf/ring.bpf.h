/*
 * ring.bpf.h - from a probe to user space: one ring per CPU and record type.
 *
 * Two CPUs that share one ring pay ten times as much per record, and the
 * kernel's own ring buffer takes a lock for each. Ours is an array that user
 * space has mapped: first a control for each CPU, then the slots of each. Only
 * its CPU writes into a ring, but an interrupt may come between: `head` moves
 * by an atomic addition, and a slot is whole when its sequence says so.
 *
 *   the n-th record of a ring:  slot n & mask of its CPU,
 *                               sequence n, then n + 1
 *
 * The agent sets the array's size, and the controls after it is loaded; a CPU
 * that was offline then has no slots. The
 * pointer puts the record's type into the object's BTF, where the agent reads
 * it.
 */
#ifndef LATPROF_RING_H
#define LATPROF_RING_H

#include "counters.bpf.h"

#define SLOTS(name, record)                        \
	struct name##_slot {                       \
		__u64 sequence;                    \
		struct record content;             \
	};                                         \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1);            \
		__type(key, __u32);                \
		__type(value, struct name##_slot); \
	} name SEC(".maps")

#define RING(name, record)                                    \
	SLOTS(name, record);                                  \
	struct record *name##_record __attribute__((unused)); \
	__u64 name##_lost

/* The same for the labels of an enum. */
#define LABELS(name) const enum name *name##_labels __attribute__((unused))

/* Room that stays free, for interrupts that come between the look at `head` and
 * its move. */
#define RING_MARGIN 16

/* The next slot of this CPU's ring, or NULL with the loss counted. */
static __always_inline __u64 *ring_reserve(void *ring, __u64 *lost)
{
	__u32 at = bpf_get_smp_processor_id();
	struct ring_control *control = bpf_map_lookup_elem(ring, &at);
	__u64 n, *slot;

	if (!control)
		return NULL;
	if (!control->mask) {
		count(offline_cpus);
		return NULL;
	}
	if (control->head - *(volatile __u64 *)&control->tail + RING_MARGIN >
	    control->mask) {
		__sync_fetch_and_add(lost, 1);
		return NULL;
	}
	if (!ring_take(control, &n)) {
		__sync_fetch_and_add(lost, 1);
		return NULL;
	}
	at = control->first + (n & control->mask);
	slot = bpf_map_lookup_elem(ring, &at);
	if (slot)
		*slot = n;
	return slot;
}

#define RESERVE(name)                                            \
	({                                                       \
		__u64 *slot = ring_reserve(&name, &name##_lost); \
		(void *)(slot ? slot + 1 : NULL);                \
	})

/* From now on the record is the reader's. The agent drains on a timer: waking
 * it per record costs ten records. */
static __always_inline void ring_submit(void *record)
{
	__u64 *sequence = (__u64 *)record - 1;

#if defined(__TARGET_ARCH_x86)
	/* stores are seen in their order */
	barrier();
	*(volatile __u64 *)sequence += 1;
#else
	/* An exchange is ordered by the kernel's rules; an addition whose
	 * result is not used is not (on arm64: stadd, which releases nothing).
	 */
	__sync_lock_test_and_set(sequence, *sequence + 1);
#endif
}

#define SUBMIT(record) ring_submit(record)

#endif
