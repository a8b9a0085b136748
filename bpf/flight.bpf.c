/*
 * flight.bpf.c - what the CPUs did, written over all the time: a flight
 * recorder that is read only where a message was slow.
 *
 *   sched_switch:                 who left a CPU, how, and in which system
 *                                 call; who came, and how long it had waited;
 *                                 the stack of a reader that leaves to sleep
 *   irq_handler_*, softirq_*:     interrupts of 10 us and more, with whom they
 *                                 met
 *   cpu-clock (perf event):       stacks of whoever runs
 *
 * Does not see why a task sleeps but for the system call that it is in (-1: an
 * exception, so a page fault), nor interrupts that have no handler of irqaction
 * (local timer, IPIs); a stack of a program without frame pointers is short.
 */
#include "flight.bpf.h"
#include "call.bpf.h"
#include "interrupt.bpf.h"
#include "limit.bpf.h"
#include "occupant.bpf.h"
#include "quota.bpf.h"
#include "reader.bpf.h"
#include "sleeper.bpf.h"
#include <bpf/bpf_tracing.h>

#define FLIGHT_INTERRUPT_NS 10000

FLIGHT(switches, task_switch);
FLIGHT(interrupts, interrupt);
FLIGHT(samples, stack_sample);

/* As the scheduler has counted it: what is over, in whichever CPU's queue. */
static __always_inline __u32 run_delay_of(const struct task_struct *task)
{
	return bpf_core_field_exists(task->sched_info) ?
		       task->sched_info.run_delay :
		       0;
}

/* How long a task that comes to a CPU has waited in its queue. */
static __always_inline __u32 waited_until(const struct task_struct *task,
					  __u64 now)
{
	__s64 waited;

	if (!bpf_core_field_exists(task->sched_info) || !scheduler_offset_ns)
		return NOT_KNOWN;
	if (!task->sched_info.last_queued)
		return 0;
	waited = now - scheduler_offset_at(now) - task->sched_info.last_queued;
	if (waited < 0)
		return 0;
	return waited < NOT_KNOWN ? waited : NOT_KNOWN - 1;
}

/* How far the scheduler's clock is from ours, by the two stamps of the last
 * switch: before a watched reader has shown it (reader.bpf.h). */
static __always_inline void scheduler_clock(const struct task_struct *prev)
{
	__u32 zero = 0;
	const struct occupant *o;

	if (scheduler_offset_ns || !bpf_core_field_exists(prev->sched_info))
		return;
	o = bpf_map_lookup_elem(&occupants, &zero);
	if (!o || !o->known || !o->thread || o->thread != (__u32)prev->pid)
		return;
	scheduler_learn(prev, o->since_ns);
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(on_flight_switch, bool preempt, struct task_struct *prev,
	     struct task_struct *next, unsigned int state)
{
	struct task_switch *s = flight_next(&switches);
	__u64 now = bpf_ktime_get_ns();
	struct call call;
	__u32 waited;

	scheduler_clock(prev);
	occupant_follow(prev, next, now);
	if (!s)
		return 0;
	call_of(registers_of(prev), &call);
	s->t_ns = now;
	s->cpu = bpf_get_smp_processor_id();
	s->left_thread = prev->pid;
	s->left_pid = prev->tgid;
	s->left_delay_ns = run_delay_of(prev);
	s->left_state = preempt ? 0 : state;
	s->left_call = call.number;
	s->left_operation = call.operation;
	s->left_value = call.value;
	s->left_flags = call.timed ? TASK_TIMED : 0;
	if (!s->left_state && is_throttled(prev))
		s->left_flags |= TASK_THROTTLED;
	s->left_flags |= came_flags(next);
	s->thread = next->pid;
	s->pid = next->tgid;
	s->waited_ns = waited_until(next, now);
	s->delay_ns = run_delay_of(next);
	if (s->waited_ns != NOT_KNOWN)
		s->delay_ns += s->waited_ns;
	waited = s->waited_ns;
	__builtin_memcpy(s->comm, next->comm, sizeof(s->comm));
	SUBMIT(s);
	if (waited >= slept_ns && waited != NOT_KNOWN)
		quota_write(next, now);
	if (!preempt && state)
		sleeper_keep(ctx, prev, &call);
	return 0;
}

static __always_inline void interrupt_end(__u64 begin, __u32 number, bool soft)
{
	__u64 now = bpf_ktime_get_ns();
	struct interrupt *i;

	if (!begin || now - begin < FLIGHT_INTERRUPT_NS)
		return;
	i = flight_next(&interrupts);
	if (!i)
		return;
	i->from_ns = begin;
	i->until_ns = now;
	i->number = number;
	i->cpu = bpf_get_smp_processor_id();
	i->thread = bpf_get_current_pid_tgid();
	i->soft = soft;
	SUBMIT(i);
}

#define INTERRUPT_BEGINS(member)                                       \
	({                                                             \
		__u32 zero = 0;                                        \
		struct interrupt_begin *begin =                        \
			bpf_map_lookup_elem(&interrupt_begins, &zero); \
                                                                       \
		if (begin)                                             \
			begin->member = bpf_ktime_get_ns();            \
		0;                                                     \
	})

#define INTERRUPT_ENDS(member, number, soft)                           \
	({                                                             \
		__u32 zero = 0;                                        \
		struct interrupt_begin *begin =                        \
			bpf_map_lookup_elem(&interrupt_begins, &zero); \
                                                                       \
		if (begin) {                                           \
			interrupt_end(begin->member, number, soft);    \
			begin->member = 0;                             \
		}                                                      \
		0;                                                     \
	})

SEC("?tp_btf/irq_handler_entry")
int BPF_PROG(on_flight_interrupt, int number)
{
	return INTERRUPT_BEGINS(hard_ns);
}

SEC("?tp_btf/irq_handler_exit")
int BPF_PROG(on_flight_interrupt_end, int number)
{
	return INTERRUPT_ENDS(hard_ns, number, false);
}

SEC("?tp_btf/softirq_entry")
int BPF_PROG(on_flight_softirq, unsigned int number)
{
	return INTERRUPT_BEGINS(soft_ns);
}

SEC("?tp_btf/softirq_exit")
int BPF_PROG(on_flight_softirq_end, unsigned int number)
{
	return INTERRUPT_ENDS(soft_ns, number, true);
}

SEC("?perf_event")
int on_flight_clock(void *registers)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid();
	struct stack_sample *s;

	if (!(__u32)id) /* the idle task */
		return 0;
	s = flight_next(&samples);
	if (!s)
		return 0;
	s->t_ns = bpf_ktime_get_ns();
	s->thread = id;
	s->pid = id >> 32;
	s->image = BPF_CORE_READ(task, mm, start_stack) >> 4;
	s->cpu = bpf_get_smp_processor_id();
	s->kernel_frames = frames_of(
		bpf_get_stack(registers, s->kernel, sizeof(s->kernel), 0));
	s->user_frames = frames_of(bpf_get_stack(
		registers, s->user, sizeof(s->user), BPF_F_USER_STACK));
	SUBMIT(s);
	return 0;
}
