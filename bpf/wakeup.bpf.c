/*
 * wakeup.bpf.c - the waits of tasks that read watched sockets.
 *
 *   sched_waking:  runnable from now            ->  the reader's storage
 *   sched_switch:  off its CPU, still runnable  ->  runnable from now
 *                  on a CPU                     ->  the wait ends
 *                  not from whom it last went to ->  a spell that was hidden
 *
 * Does not see which socket woke a reader of several: the wait counts for what
 * it then reads.
 */
#include "wakeup.bpf.h"
#include <bpf/bpf_tracing.h>

static __always_inline struct reader *reader_of(struct task_struct *task)
{
	return bpf_task_storage_get(&readers, task, 0, 0);
}

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

static __always_inline void hidden_emit(const struct occupant *occupant,
					__u64 now)
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

/* Whoever leaves a CPU is who came to it, or a switch went by unseen. */
static __always_inline void occupant_change(const struct task_struct *prev,
					    const struct task_struct *next,
					    __u64 now)
{
	__u32 zero = 0;
	struct occupant *o = bpf_map_lookup_elem(&occupants, &zero);

	if (!o)
		return;
	if (o->known && o->thread != (__u32)prev->pid)
		hidden_emit(o, now);
	o->since_ns = now;
	o->thread = next->pid;
	o->known = 1;
}

SEC("?tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	struct reader *reader = reader_of(task);

	if (reader && !reader->runnable_ns)
		reader->runnable_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	struct reader *reader = reader_of(prev);
	__u64 now = bpf_ktime_get_ns();
	struct wait *wait;

	occupant_change(prev, next, now);
	/* who is preempted on the way to sleep is still runnable */
	if (reader)
		reader->runnable_ns = preempt || prev->__state == 0 ? now : 0;
	reader = reader_of(next);
	if (!reader || !reader->runnable_ns)
		return 0;
	wait = &reader->waits[reader->next++ & (WAITS - 1)];
	wait->from_ns = reader->runnable_ns;
	wait->until_ns = now;
	reader->runnable_ns = 0;
	return 0;
}
