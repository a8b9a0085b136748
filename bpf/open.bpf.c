/*
 * open.bpf.c - sockets that are open already.
 *
 *   iter/task_file:  the files of all processes  ->  sockets marked, and
 * written
 *
 * Writes the address of each socket that is watched, as often as it is open.
 */
#include "owner.bpf.h"

SEC("?iter/task_file")
int on_open_file(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	sk = socket ? socket->sk : NULL;
	if (!sk || !wants_protocol(sk))
		return 0;
	return open_socket_look(sk, facts_of_owner(task), ctx->meta);
}
