/*
 * old.bpf.c - all probes for kernels that lack what they are built on
 * (old.bpf.h), and the ends of what is kept there.
 *
 *   fentry bpf_sk_storage_free:   a socket is freed
 *   fentry bpf_sk_storage_clone:  a connection is made of its listener
 *   sched_process_free:           a task is freed
 *
 * Sockets that are open already are found twice there, as a file gives no
 * socket that probes may read: by the address, for whose they are, and by the
 * tables of a network namespace, for what follows from that.
 *
 *   iter/task_file:               the files of all processes  ->  marked
 *   iter/tcp, iter/udp:           sockets of one namespace    ->  written
 */
#include "latprof.bpf.c"

SEC("?fentry/bpf_sk_storage_free")
int BPF_PROG(on_socket_free, struct sock *sk)
{
	__u64 socket = (__u64)sk;

	bpf_map_delete_elem(&marked, &socket);
	bpf_map_delete_elem(&unwatched, &socket);
	bpf_map_delete_elem(&streams, &socket);
	bpf_map_delete_elem(&datagram_sockets, &socket);
	bpf_map_delete_elem(&held_sockets, &socket);
	bpf_map_delete_elem(&below_mark, &socket);
	bpf_map_delete_elem(&listeners, &socket);
	bpf_map_delete_elem(&spurious_known, &socket);
	return 0;
}

SEC("?fentry/bpf_sk_storage_clone")
int BPF_PROG(on_socket_clone, const struct sock *listener, struct sock *made)
{
	__u64 from = (__u64)listener, to = (__u64)made;
	const struct mark *mark = bpf_map_lookup_elem(&marked, &from);

	if (mark && bpf_map_update_elem(&marked, &to, mark, BPF_ANY))
		count(failed_storage);
	return 0;
}

SEC("?tp_btf/sched_process_free")
int BPF_PROG(on_task_free, struct task_struct *task)
{
	__u64 thread = (__u64)task;

	bpf_map_delete_elem(&sleepers, &thread);
	bpf_map_delete_elem(&send_calls, &thread);
	return 0;
}

SEC("?iter/task_file")
int on_open_file(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	const struct socket *socket;
	const struct sock *sk;
	__u16 protocol;
	__u32 facts;

	if (!task || !file ||
	    (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	protocol = BPF_CORE_READ(sk, sk_protocol);
	if (!sk || (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
		return 0;
	facts = facts_of_owner(task);
	if (facts)
		mark(sk, facts);
	return 0;
}

/* Those that nobody has opened have no file: nobody accepted them yet, or their
 * last file was closed. */
static __always_inline int table_look(struct sock *sk,
				      struct bpf_iter_meta *meta)
{
	__u64 socket = (__u64)sk;
	const struct mark *mark = bpf_map_lookup_elem(&marked, &socket);
	bool is_now = mark && mark->notes == options.notes;

	if (!sk->sk_socket || !wants_protocol(sk))
		return 0;
	return open_socket_look(sk, is_now ? mark->facts : 0, meta);
}

SEC("?iter/tcp")
int on_open_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *found = ctx->sk_common;
	struct tcp_sock *tp = found ? bpf_skc_to_tcp_sock(found) : NULL;

	return tp ? table_look((struct sock *)tp, ctx->meta) : 0;
}

SEC("?iter/udp")
int on_open_udp(struct bpf_iter__udp *ctx)
{
	struct udp_sock *found = ctx->udp_sk;

	return found ? table_look((struct sock *)found, ctx->meta) : 0;
}
