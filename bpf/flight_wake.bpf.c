/*
 * flight_wake.bpf.c - who wakes a task that slept long, and where it slept: a
 * part of the flight recorder.
 *
 *   sched_waking:  the task that wakes, and the system call that it is in; the
 *                  sleeper's stack in the kernel, and where its program is: of
 *                  a reader the stack that it slept with (sleeper.bpf.h)
 *
 * Long is what began its turn on a CPU `slept_ns` ago or earlier, as the
 * scheduler has noted: a thread makes no more than one record in that time, and
 * a switch pays nothing.
 *
 * Does not see for whom an interrupt wakes (timers, devices, packets); nor any
 * wake before the first two switches of a task have shown how far the
 * scheduler's clock is from ours.
 */
#include "call.bpf.h"
#include "flight.bpf.h"
#include "interrupt.bpf.h"
#include "quota.bpf.h"
#include "reader.bpf.h"
#include "sleeper.bpf.h"
#include <bpf/bpf_tracing.h>

#define STACK_BYTES 16384 /* THREAD_SIZE; where it is more, fewer are seen */

FLIGHT(wakes, wake);

/* Whether what wakes is the current task itself. The kernel's own count of
 * interrupts is not to be read on each kernel; but they have a stack of their
 * own, unless they met a program in user mode, which then is in no system call.
 * `here` is on the stack that is in use.
 */
static __always_inline bool is_task(const struct task_struct *task,
				    const struct call *call, __u64 here)
{
	__u32 zero = 0;
	const struct interrupt_begin *begin =
		bpf_map_lookup_elem(&interrupt_begins, &zero);

	if (!task->pid || call->number == AN_EXCEPTION)
		return false;
	if (here - (__u64)task->stack >= STACK_BYTES)
		return false;
	/* ksoftirqd, and where the kernel has no stack for soft interrupts */
	return begin && !begin->soft_ns && !begin->hard_ns;
}

static __always_inline bool slept_long(const struct task_struct *task,
				       __u64 now)
{
	if (task->flags & KERNEL_THREAD || !scheduler_offset_ns ||
	    !bpf_core_field_exists(task->sched_info))
		return false;
	return (__s64)(now - scheduler_offset_at(now) -
		       task->sched_info.last_arrival) >= slept_ns;
}

static __always_inline void waker_describe(struct wake *w, __u64 here)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct call call;

	call_of(registers_of(waker), &call);
	w->by_thread = w->by_pid = 0;
	if (!is_task(waker, &call, here))
		return;
	w->by_thread = waker->pid;
	w->by_pid = waker->tgid;
	w->by_call = call.number;
	w->by_operation = call.operation;
	w->by_value = call.value;
	__builtin_memcpy(w->comm, waker->comm, sizeof(w->comm));
}

/* An address as a number: the verifier lets none be reckoned with. */
static __always_inline __u64 number_of(const void *address, __u64 *room)
{
	*(volatile __u64 *)room = (__u64)address;
	return *(volatile __u64 *)room;
}

SEC("?tp_btf/sched_waking")
int BPF_PROG(on_flight_wake, struct task_struct *sleeper)
{
	__u64 now = bpf_ktime_get_ns();
	struct wake *w;

	if (!slept_long(sleeper, now))
		return 0;
	w = flight_next(&wakes);
	if (!w)
		return 0;
	waker_describe(w, number_of(ctx, &w->t_ns));
	w->t_ns = now;
	w->thread = sleeper->pid;
	w->pid = sleeper->tgid;
	w->sleeper_flags = is_throttled(sleeper) ? TASK_THROTTLED : 0;
	w->image = BPF_CORE_READ(sleeper, mm, start_stack) >> 4;
	sleeper_describe(sleeper, w);
	w->kernel_frames = frames_of(
		bpf_get_task_stack(sleeper, w->kernel, sizeof(w->kernel), 0));
	SUBMIT(w);
	return 0;
}
