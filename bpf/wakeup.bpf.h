/*
 * wakeup.bpf.h - how long a reader was runnable and had no CPU.
 *
 * A task that has read a watched socket keeps its last waits: from the waking,
 * or from losing its CPU while it wanted to run on, to getting one. Of these
 * the part between a message's `ready` and `read` is its wakeup. Where there
 * were more waits than WAITS between, and for what a task reads first, it is
 * not known.
 */
#ifndef LATPROF_WAKEUP_H
#define LATPROF_WAKEUP_H

#include "flow.bpf.h"

#define WAITS 16 /* a power of two */

struct wait {
	__u64 from_ns;
	__u64 until_ns;
};

struct reader {
	__u64 runnable_ns; /* waiting since; 0: running or blocked */
	__u32 next;
	__u32 pid; /* announced */
	struct wait waits[WAITS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct reader);
} readers SEC(".maps");

/* False where it is not known: a task that reads for the first time, or more
 * waits since `ready` than are kept. Looks at the newest first: mostly it is
 * the only one that counts. */
static __always_inline bool wakeup_between(const struct reader *reader,
					   __u64 ready_ns, __u64 read_ns,
					   __u32 *ret)
{
	__u64 total = 0;

	if (!reader)
		return false;
	for (int i = 1; i <= WAITS; i++) {
		const struct wait *wait =
			&reader->waits[(reader->next - i) & (WAITS - 1)];
		__u64 from = wait->from_ns, until = wait->until_ns;

		if (until <= ready_ns) {
			*ret = total > 0xffffffff ? 0xffffffff : total;
			return true;
		}
		if (from < ready_ns)
			from = ready_ns;
		if (until > read_ns)
			until = read_ns;
		if (until > from)
			total += until - from;
	}
	return false;
}

/* NULL for a task that reads for the first time: from now on it is followed. */
static __always_inline const struct reader *reader_of_current(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct reader *reader = bpf_task_storage_get(&readers, task, 0, 0);
	__u32 pid;

	if (!reader) {
		bpf_task_storage_get(&readers, task, 0,
				     BPF_LOCAL_STORAGE_GET_F_CREATE);
		return NULL;
	}
	pid = bpf_get_current_pid_tgid() >> 32;
	if (reader->pid != pid && task_announce(pid))
		reader->pid = pid;
	return reader;
}

#endif
