/*
 * quota.bpf.h - whether a task that could run was kept from its CPU by the CPU
 * quota of its control group: a part of the flight recorder.
 *
 * A group that has used its quota up is throttled on each CPU until its next
 * period begins. No hook tells of that; but each CPU's queue of a group counts
 * how often it, or a group above it, is throttled now, and notes when that
 * began last. A task that comes to a CPU after a long wait is written with
 * both, and with the period of the group that has the quota.
 *
 * Of groups within each other that have both used a quota up at some time the
 * inner one is named, though the outer one may be what is throttled.
 *
 * Does not see core scheduling; nor when a group's next period let it go on,
 * which user space finds by the period's length.
 */
#ifndef LATPROF_QUOTA_H
#define LATPROF_QUOTA_H

#include "flight.bpf.h"
#include <bpf/bpf_core_read.h>

#include "limit.bpf.h"

#define NO_QUOTA (~0ULL)
#define GROUP_LEVELS 8

FLIGHT(quota_waits, quota_wait);

/* The queue of a task's group on its CPU; NULL: of none that a quota holds. */
static __always_inline struct cfs_rq *
cfs_queue_of(const struct task_struct *task)
{
	if (!bpf_core_field_exists(task->se.cfs_rq) ||
	    !bpf_core_field_exists(((struct cfs_rq *)0)->throttle_count) ||
	    task->prio < REAL_TIME_PRIORITIES)
		return NULL;
	return task->se.cfs_rq;
}

static __always_inline bool is_throttled(const struct task_struct *task)
{
	const struct cfs_rq *queue = cfs_queue_of(task);

	return queue && queue->throttle_count > 0;
}

/* The nearest group with a quota that has been used up at some time. */
static __always_inline const struct task_group *
limited_group(const struct cfs_rq *queue)
{
	const struct task_group *group = queue->tg;

	for (int i = 0; i < GROUP_LEVELS && group; i++) {
		if (group->cfs_bandwidth.quota != NO_QUOTA &&
		    group->cfs_bandwidth.nr_throttled)
			return group;
		group = group->parent;
	}
	return NULL;
}

/* `task` comes to this CPU after a long wait. */
static __always_inline void quota_write(const struct task_struct *task,
					__u64 now)
{
	const struct cfs_rq *queue = cfs_queue_of(task);
	const struct task_group *group;
	const struct kernfs_node *node;
	struct quota_wait *w;

	if (!queue ||
	    !bpf_core_field_exists(((struct cfs_rq *)0)->throttled_clock_pelt))
		return;
	group = limited_group(queue);
	if (!group)
		return;
	w = flight_next(&quota_waits);
	if (!w)
		return;
	node = group->css.cgroup->kn;
	w->t_ns = now;
	w->thread = task->pid;
	w->cpu = bpf_get_smp_processor_id();
	w->throttled_ns =
		now - (queue->rq->clock_pelt - queue->throttled_clock_pelt);
	w->period_ns = group->cfs_bandwidth.period;
	w->quota_ns = group->cfs_bandwidth.quota;
	w->period_end_ns = group->cfs_bandwidth.period_timer._softexpires;
	w->throttled_count = group->cfs_bandwidth.nr_throttled;
	w->cgroup = node->id;
	bpf_probe_read_kernel_str(w->name, sizeof(w->name), node->name);
	SUBMIT(w);
}

#endif
