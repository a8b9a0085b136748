/*
 * sleeper.bpf.h - where the program of a reader was when it left its CPU to
 * sleep: a part of the flight recorder.
 *
 * A thread that has read a watched socket keeps its last stack in storage of
 * its own, so that one sleep costs one stack, and who reads nothing, or waits
 * where readers wait for what comes next, pays for none. The count of the
 * thread's own switches says whether a stack is of the sleep that ends.
 *
 * Does not see callers in a program without frame pointers.
 */
#ifndef LATPROF_SLEEPER_H
#define LATPROF_SLEEPER_H

#include "call.bpf.h"
#include "flight.bpf.h"
#include "records.h"

/* What slept as long has a record when woken; 0: there is no recorder. */
const volatile __u32 slept_ns SEC(".rodata.slept_ns") = 0;

struct sleeper {
	__u64 switches; /* of it, by itself, until it slept; 0: no stack */
	__u64 user[SLEEP_USER_FRAMES];
	__u32 frames;
};

TASK_STORAGE(sleepers, struct sleeper);

/* The current task reads: its stacks are kept from now on. */
static __always_inline void sleeper_follow(void)
{
	if (slept_ns)
		bpf_task_storage_get(&sleepers, bpf_get_current_task_btf(), 0,
				     BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* `task`, which is the current one, leaves its CPU to sleep in a call. */
static __always_inline void sleeper_keep(void *ctx, struct task_struct *task,
					 const struct call *call)
{
	struct sleeper *kept;

	if (IS_WAIT_FOR_NEXT(call->number))
		return;
	kept = bpf_task_storage_get(&sleepers, task, 0, 0);
	if (!kept)
		return;
	kept->switches = 0;
	kept->frames = frames_of(bpf_get_stack(
		ctx, kept->user, sizeof(kept->user), BPF_F_USER_STACK));
	barrier();
	kept->switches = task->nvcsw;
}

/* Where the program of a task that sleeps is. */
static __always_inline void sleeper_describe(struct task_struct *task,
					     struct wake *w)
{
	const struct sleeper *kept =
		bpf_task_storage_get(&sleepers, task, 0, 0);
	const struct pt_regs *registers;

	if (kept && kept->frames && kept->switches == task->nvcsw) {
		__builtin_memcpy(w->user, kept->user, sizeof(w->user));
		w->user_frames = kept->frames;
		return;
	}
	registers = registers_of(task);
	w->user[0] = registers ? INSTRUCTION(registers) : 0;
	w->user_frames = 1;
}

#endif
