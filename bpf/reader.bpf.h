/*
 * reader.bpf.h - how long a reader was runnable and had no CPU, as the
 * scheduler itself counts it (run_delay in /proc/PID/schedstat).
 *
 * When bytes become readable, the run delay of the task that read this socket
 * last is noted; at the read the difference is what it waited between. Where
 * another task reads, its delay then is not known. No hook of the scheduler is
 * needed, which would slow every switch of the host.
 *
 * The scheduler adds a wait when it is over. One that is under way when bytes
 * become readable began earlier by the scheduler's clock: the distance of that
 * clock from ours is the least that was seen between a reader's getting its CPU
 * and its read, 1 or 2 us too long.
 */
#ifndef LATPROF_READER_H
#define LATPROF_READER_H

#include "flow.bpf.h"
#include "packet.bpf.h"
#include "sleeper.bpf.h"
#include <bpf/bpf_helpers.h>

#define DRIFT_SHIFT 10 /* clocks drift apart by less than 1 / 1024 */
#define READER_PORTS 1024 /* a power of two */

struct reader {
	__u64 task; /* address; 0 unknown */
	__u32 thread;
	__u8 number; /* of the readers of this socket */
	__u16 sleeps; /* how often it had slept when it read, low bits */
};

/* Who read last at this port: mostly the one who will read a new connection. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, READER_PORTS);
	__type(key, __u32);
	__type(value, struct reader);
} port_readers SEC(".maps");

__u64 scheduler_offset; /* our clock less the scheduler's ... */
__u64 scheduler_offset_ns; /* ... when it was found; 0 never */

static __always_inline __u64 scheduler_offset_at(__u64 now)
{
	return scheduler_offset + ((now - scheduler_offset_ns) >> DRIFT_SHIFT);
}

struct scheduled {
	__u64 run_delay;
	__u64 last_queued;
};

static __always_inline void scheduled_of(__u64 task, struct scheduled *ret)
{
	const struct task_struct *t = NULL;

	ret->run_delay = ret->last_queued = 0;
	if (!bpf_core_field_exists(t->sched_info))
		return;
	ret->run_delay = SEE(struct task_struct, task, sched_info.run_delay);
	ret->last_queued =
		SEE(struct task_struct, task, sched_info.last_queued);
}

/* Notes the reader's run delay, low bits, when something becomes readable.
 * Returns the number of the reader that it is of, 0 where it is not known. */
static __always_inline __u8 reader_note(const struct reader *reader, __u64 now,
					__u32 *ret)
{
	struct scheduled info;
	__s64 pending;

	*ret = 0;
	if (!reader->task)
		return 0;
	scheduled_of(reader->task, &info);
	if (info.last_queued) {
		if (!scheduler_offset_ns)
			return 0;
		pending = now - scheduler_offset_at(now) - info.last_queued;
		if (pending > 0)
			info.run_delay += pending;
	}
	*ret = info.run_delay;
	return reader->number;
}

/* The current task reads. It is the socket's reader from now on; who it was
 * guessed to be is known for sure only now. */
static __always_inline void reader_set(struct reader *reader, __u64 task,
				       __u32 thread)
{
	if (reader->task == task && reader->thread == thread)
		return;
	reader->task = task;
	reader->thread = thread;
	reader->number++;
	reader->number += !reader->number;
}

/* So long the current task waited for a CPU since what was noted; false where
 * it was noted of another task, or too long ago. */
static __always_inline bool reader_waited(const struct reader *reader,
					  __u8 number, __u32 noted,
					  __u64 ready_ns, __u64 read_ns,
					  __u32 run_delay, __u32 *ret)
{
	__s64 waited = (__s32)(run_delay - noted), whole = read_ns - ready_ns;

	*ret = 0;
	if (!number || number != reader->number || whole > 0x7fffffff)
		return false;
	if (waited > 0) /* not before it was ready, by the clocks' distance */
		*ret = waited < whole ? waited : whole;
	return true;
}

/* A task got its CPU at this time of ours, or before: the least distance of
 * both clocks holds. */
static __always_inline void scheduler_learn(const struct task_struct *task,
					    __u64 at)
{
	__u64 offset = at - FOLLOW(task, sched_info.last_arrival);

	/* either clock may be ahead */
	if (!scheduler_offset_ns ||
	    (__s64)(offset - scheduler_offset_at(at)) < 0) {
		scheduler_offset = offset;
		scheduler_offset_ns = at;
	}
}

/* Learns the clocks' distance; returns the current task's run delay. */
static __always_inline __u32 reader_now(struct task_struct *task, __u64 now)
{
	if (!bpf_core_field_exists(task->sched_info))
		return 0;
	scheduler_learn(task, now);
	return FOLLOW(task, sched_info.run_delay);
}

/* Whom a new connection at this port is likely to be read by. */
static __always_inline void reader_guess(struct reader *reader, __u16 port)
{
	__u32 at = port & (READER_PORTS - 1);
	const struct reader *last = bpf_map_lookup_elem(&port_readers, &at);

	if (!last)
		return;
	reader->task = last->task;
	reader->thread = last->thread;
	reader->number = 1;
}

static __always_inline void reader_remember(const struct reader *reader,
					    __u16 port)
{
	__u32 at = port & (READER_PORTS - 1);
	struct reader *last = bpf_map_lookup_elem(&port_readers, &at);

	if (!last)
		return;
	last->task = reader->task;
	last->thread = reader->thread;
}

/* `announced`: the process that was announced last. */
static __noinline void reader_change(struct reader *reader, __u32 *announced,
				     __u16 port, __u64 now)
{
	const struct task_struct *task = bpf_get_current_task_btf();
	__u32 pid = FOLLOW(task, tgid), thread = FOLLOW(task, pid);

	reader_set(reader, (__u64)task, thread);
	reader_remember(reader, port);
	sleeper_follow();
	if (*announced != pid && task_announce(pid, now))
		*announced = pid;
	if (thread != pid)
		thread_announce(now);
}

/* The current task reads at this port; mostly it did the last time, too. */
static __always_inline void reader_came(struct reader *reader, __u32 *announced,
					const struct task_struct *task,
					__u16 port, __u64 now)
{
	if (reader->task != (__u64)task ||
	    reader->thread != (__u32)FOLLOW(task, pid) ||
	    *announced != (__u32)FOLLOW(task, tgid))
		reader_change(reader, announced, port, now);
}

#endif
