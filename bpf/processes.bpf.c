/*
 * processes.bpf.c - which sockets belong to the processes that are asked for,
 * found before the other programs are attached, and kept up to date.
 *
 *   iter/task_file:      sockets that are open, of all processes  ->  marked
 *   cgroup/sock_create:  a socket that such a process makes       ->  marked
 *   sched_process_fork:  its children are asked for, too
 *   sched_process_exit:  its number may be given to another one
 *
 * Marks a connection that was accepted later with its listener (BPF_F_CLONE).
 * Does not see a socket that a process is handed later by another one
 * (SCM_RIGHTS): it stays that of who made it.
 */
#include "peer.bpf.h"
#include <bpf/bpf_tracing.h>

#define PROCESSES 65536
#define ACCEPT_QUEUE 128 /* connections in it; more are not marked */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PROCESSES);
	__type(key, __u32);
	__type(value, __u8);
} pids SEC(".maps");

/* A thread may have a name of its own. */
static __noinline bool wants_name(const struct task_struct *task)
{
	__u64 name[2] = {};

	bpf_core_read(name, sizeof(name), &task->comm);
	for (unsigned int i = 0; i < ARRAY_SIZE(options.comms); i++) {
		if (!options.comms[i][0])
			return false;
		if (options.comms[i][0] == name[0] &&
		    options.comms[i][1] == name[1])
			return true;
	}
	return false;
}

static __always_inline bool wants_process(const struct task_struct *task)
{
	__u32 pid = task->tgid;

	if (options.pids && !bpf_map_lookup_elem(&pids, &pid))
		return false;
	return !options.comms[0][0] || wants_name(task) ||
	       wants_name(task->group_leader);
}

#define mark(sk)                                                      \
	do {                                                          \
		if (!bpf_sk_storage_get(&marked, sk, 0,               \
					BPF_SK_STORAGE_GET_F_CREATE)) \
			count(failed_storage);                        \
	} while (0)

/* A connection that nobody has accepted is of no process: it belongs to its
 * listener's. */
static __always_inline void waiting_mark(struct sock *listener)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(listener);
	struct request_sock *request;
	struct sock *sk;

	if (!tp)
		return;
	request = tp->inet_conn.icsk_accept_queue.rskq_accept_head;
	for (int i = 0; i < ACCEPT_QUEUE && request; i++) {
		sk = request->sk;
		if (!sk)
			return;
		mark(sk);
		connection_note(sk);
		request = request->dl_next;
	}
}

/* Writes the address of each socket that is watched, as often as it is open. */
SEC("?iter/task_file")
int on_open_file(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;
	__u64 address;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	sk = socket ? socket->sk : NULL;
	if (!sk || !wants_protocol(sk))
		return 0;
	if (wants_process(task))
		mark(sk);
	if (!wants_socket(sk))
		return 0;
	if (sk->sk_protocol == IPPROTO_TCP) {
		if (sk->__sk_common.skc_state == TCP_LISTEN)
			waiting_mark(sk);
		else
			connection_note(sk);
	}
	address = (__u64)sk;
	bpf_seq_write(ctx->meta->seq, &address, sizeof(address));
	return 0;
}

SEC("?cgroup/sock_create")
int on_create(struct bpf_sock *sk)
{
	if ((sk->protocol == IPPROTO_TCP || sk->protocol == IPPROTO_UDP) &&
	    wants_process(bpf_get_current_task_btf()))
		mark(sk);
	return 1;
}

SEC("?tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from = parent->tgid, pid = child->tgid;
	__u8 yes = 1;

	if (from == pid || !bpf_map_lookup_elem(&pids, &from))
		return 0; /* a thread, or a stranger's child */
	if (bpf_map_update_elem(&pids, &pid, &yes, BPF_ANY))
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
