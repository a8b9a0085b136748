/*
 * work.bpf.h - what a server's thread did between its read of a request and the
 * first send of its reply: on a CPU, waiting for one, or asleep.
 *
 * It is the difference of the scheduler's own counts at both times, so no hook
 * of the scheduler is needed. Where another thread answers than the one that
 * has read, nothing is known.
 *
 * A run since the scheduler's last count is by our clock. Where the kernel
 * counts interrupts apart, they are in no count: of a thread that slept they
 * count as sleep.
 */
#ifndef LATPROF_WORK_H
#define LATPROF_WORK_H

#include "reader.bpf.h"

#define NEVER_SLEPT NOT_KNOWN

/* Of what a thread did between a read and a send. */
enum worked {
	WORK_NOT_KNOWN,
	WORK_WITHOUT_SLEEP, /* but for its waits it ran all the time */
	WORK_AND_SLEEP,
};

/* In units of WORK_NS; of two the difference counts. */
struct work {
	__u32 run;
	__u32 waited; /* for a CPU */
};

/* Of the current task until now; false: this kernel does not say. */
static __always_inline bool work_now(const struct task_struct *task, __u64 now,
				     struct work *ret)
{
	const struct cfs_rq *queue;
	const struct rq *cpu;

	if (!bpf_core_field_exists(task->se.cfs_rq) ||
	    !bpf_core_field_exists(task->sched_info))
		return false;
	queue = FOLLOW(task, se.cfs_rq);
	if (!queue)
		return false;
	cpu = FOLLOW(queue, rq);
	if (!cpu)
		return false;
	ret->run = (FOLLOW(task, se.sum_exec_runtime) + now -
		    FOLLOW(task, se.exec_start) -
		    (FOLLOW(cpu, clock) - FOLLOW(cpu, clock_task))) /
		   WORK_NS;
	ret->waited = FOLLOW(task, sched_info.run_delay) / WORK_NS;
	return true;
}

/* The reader of a server has read. */
static __always_inline bool work_begin(struct reader *reader,
				       const struct task_struct *task,
				       __u64 now, struct work *ret)
{
	reader->sleeps = FOLLOW(task, nvcsw);
	return work_now(task, now, ret);
}

/* `work` is of then, and becomes what was done since; not known of another
 * thread's. */
static __noinline enum worked work_end(struct reader *reader, __u64 now,
				       struct work *work)
{
	const struct task_struct *task = bpf_get_current_task_btf();
	struct work until;

	if (reader->task != (__u64)task ||
	    reader->thread != (__u32)FOLLOW(task, pid) ||
	    !work_now(task, now, &until))
		return WORK_NOT_KNOWN;
	work->run = until.run - work->run;
	work->waited = until.waited - work->waited;
	return reader->sleeps == (__u16)FOLLOW(task, nvcsw) ?
		       WORK_WITHOUT_SLEEP :
		       WORK_AND_SLEEP;
}

#endif
