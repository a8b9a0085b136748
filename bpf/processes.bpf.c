/*
 * processes.bpf.c - which sockets belong to the processes that are asked for,
 * kept up to date. Those that are open before are found by open.bpf.c.
 *
 *   cgroup/sock_create:  a socket that such a process makes       ->  marked
 *   sched_process_fork:  its children are asked for as it is
 *   sched_process_exit:  its number may be given to another one
 *   task_rename:         a process has another name from now on (exec, prctl)
 *
 * Marks a connection that was accepted later with its listener (BPF_F_CLONE).
 * Does not see a socket that a process is handed later by another one
 * (SCM_RIGHTS): it stays that of who made it.
 */
#include "owner.bpf.h"
#include <bpf/bpf_tracing.h>

SEC("?cgroup/sock_create")
int on_create(struct bpf_sock *sk)
{
	__u32 facts;

	if (sk->protocol != IPPROTO_TCP && sk->protocol != IPPROTO_UDP)
		return 1;
	facts = facts_of(bpf_get_current_task_btf());
	if (facts)
		mark(sk, facts);
	return 1;
}

SEC("?tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from = parent->tgid, pid = child->tgid;
	const struct followed *f = from == pid ? NULL : followed_of(from);

	if (!f)
		return 0; /* a thread, or a stranger's child */
	if (bpf_map_update_elem(&pids, &pid, f, BPF_ANY))
		count(failed_inserts);
	return 0;
}

SEC("?tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 pid = task->tgid;

	if (!task->signal->live.counter)
		bpf_map_delete_elem(&pids, &pid);
	return 0;
}

/* Of who has sent or read before, or of one whose number is like theirs. */
SEC("?tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task, const char *comm)
{
	struct task now = { .pid = task->pid };
	__u32 at = now.pid & (KNOWN_TASKS - 1);
	struct task *last = bpf_map_lookup_elem(&known_tasks, &at);

	if (!last || !last->pid)
		return 0;
	now.t_ns = bpf_ktime_get_ns();
	bpf_probe_read_kernel_str(now.comm, sizeof(now.comm), comm);
	if (task_write(&now) && last->pid == now.pid)
		*last = now;
	return 0;
}
