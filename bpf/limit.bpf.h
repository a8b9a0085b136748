/*
 * limit.bpf.h - how the scheduler ranks who comes to a CPU, and whether it came
 * since real-time tasks may not have all of that: a part of the flight
 * recorder.
 *
 * Up to Linux 6.11, and with groups of real-time tasks, their queue on a CPU is
 * throttled (sched_rt_runtime_us); since 6.12 a server with a deadline lets
 * normal tasks run.
 *
 * Does not see limits of groups of real-time tasks (cpu.rt_runtime_us).
 */
#ifndef LATPROF_LIMIT_H
#define LATPROF_LIMIT_H

#include "records.h"
#include <bpf/bpf_core_read.h>

#define REAL_TIME_PRIORITIES 100

static __always_inline bool came_by_limit(const struct task_struct *next)
{
	const struct rq *rq;

	/* v6.8, 63ba8422f876: a task that a server lets run points to it */
	if (bpf_core_field_exists(next->dl_server) && next->dl_server)
		return true;
	if (!bpf_core_field_exists(next->se.cfs_rq))
		return false;
	rq = next->se.cfs_rq->rq;
	if (bpf_core_field_exists(rq->dl_server) && rq->dl_server)
		return true;
	return bpf_core_field_exists(rq->rt.rt_throttled) &&
	       rq->rt.rt_throttled;
}

static __always_inline __u8 came_flags(const struct task_struct *next)
{
	if (next->prio < REAL_TIME_PRIORITIES)
		return TASK_CAME_REAL_TIME;
	return (next->policy == SCHED_IDLE ? TASK_CAME_IDLE_POLICY :
					     TASK_CAME_NORMAL) |
	       (came_by_limit(next) ? TASK_CAME_BY_LIMIT : 0);
}

#endif
