/*
 * occupant.bpf.h - who has each CPU, and the time of tasks that cannot be
 * traced.
 */
#ifndef LATPROF_OCCUPANT_H
#define LATPROF_OCCUPANT_H

#include "ring.bpf.h"

/* Who has this CPU, by the last switch. */
struct occupant {
	__u64 since_ns;
	__u32 thread;
	__u32 known;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct occupant);
} occupants SEC(".maps");

RING(untraced_periods, untraced_period);

static __noinline void untraced_emit(const struct occupant *occupant, __u64 now)
{
	struct untraced_period *record = RESERVE(untraced_periods);

	if (!record)
		return;
	record->from_ns = occupant->since_ns;
	record->until_ns = now;
	record->thread = occupant->thread;
	record->cpu = bpf_get_smp_processor_id();
	SUBMIT(record);
}

static __always_inline void occupant_follow(const struct task_struct *prev,
					    const struct task_struct *next,
					    __u64 now)
{
	__u32 zero = 0;
	struct occupant *o = bpf_map_lookup_elem(&occupants, &zero);

	if (!o)
		return;
	if (o->known && o->thread != (__u32)prev->pid)
		untraced_emit(o, now);
	o->since_ns = now;
	o->thread = next->pid;
	o->known = 1;
}

#endif
