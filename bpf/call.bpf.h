/*
 * call.bpf.h - the system call that a task is in, and those of its arguments
 * that show what it waits for.
 *
 * Does not see what they point to.
 */
#ifndef LATPROF_CALL_H
#define LATPROF_CALL_H

#include "basis.bpf.h"
#include <bpf/bpf_helpers.h>

#define KERNEL_THREAD 0x00200000 /* PF_KTHREAD: it has no user's registers */
#define AN_EXCEPTION ((__u16) - 1) /* or an interrupt of a program */
#define NO_CALL ((__u16) - 2)
#define CALL_OF_32_BITS ((__u16) - 3)
#define FUTEX_COMMAND 0x7f /* FUTEX_CMD_MASK, of its low byte */

struct call {
	__u16 number; /* or one of those above */
	__u8 operation; /* its second argument: of a futex what is done,
			   without the flags of how */
	bool timed; /* its fourth is not 0: of a futex it has a timeout */
	__u32 value; /* its third: of a futex what it must be, or how many */
};

static __always_inline const struct pt_regs *
registers_of(struct task_struct *task)
{
	if (FOLLOW(task, flags) & KERNEL_THREAD)
		return NULL;
	return (const struct pt_regs *)bpf_task_pt_regs(task);
}

/* A 32-bit program's calls have numbers of their own, and other registers. */
static __always_inline void call_of(const struct pt_regs *registers,
				    struct call *ret)
{
	ret->operation = ret->value = ret->timed = 0;
	if (!registers) {
		ret->number = NO_CALL;
	} else if (IS_32_BIT(registers)) {
		ret->number = CALL_OF_32_BITS;
	} else {
		ret->number = SYSTEM_CALL(registers);
		ret->operation = SECOND_ARGUMENT(registers) & FUTEX_COMMAND;
		ret->value = THIRD_ARGUMENT(registers);
		ret->timed = FOURTH_ARGUMENT(registers) != 0;
	}
}

#endif
