/*
 * untraced.bpf.c - time in which the kernel told nothing of a CPU: some kernels
 * hide certain tasks from tracing, and with them every interrupt on top.
 *
 *   sched_switch:  who leaves a CPU is not who came to it  ->  one record
 *
 * Where tasks that are hidden follow each other, their time is one record.
 */
#include "ring.bpf.h"
#include <bpf/bpf_tracing.h>

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

RING(hidden_spells, hidden_spell);

static __noinline void untraced_emit(const struct occupant *occupant, __u64 now)
{
	struct hidden_spell *record = RESERVE(hidden_spells);

	if (!record)
		return;
	record->from_ns = occupant->since_ns;
	record->until_ns = now;
	record->thread = occupant->thread;
	record->cpu = bpf_get_smp_processor_id();
	SUBMIT(record);
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	__u32 zero = 0;
	struct occupant *o = bpf_map_lookup_elem(&occupants, &zero);
	__u64 now = bpf_ktime_get_ns();

	if (!o)
		return 0;
	if (o->known && o->thread != (__u32)prev->pid)
		untraced_emit(o, now);
	o->since_ns = now;
	o->thread = next->pid;
	o->known = 1;
	return 0;
}
