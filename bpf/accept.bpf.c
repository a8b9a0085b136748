/*
 * accept.bpf.c - when a server accepted a connection that had brought bytes
 * before: they were readable, and there was nobody who could read them.
 *
 *   cgroup/getpeername4, 6:  accept() gives the peer's address  ->  the time,
 *                            among the flows
 *
 * No tracepoint is at accept(), and those of system calls slow all of them.
 * This hook costs nobody who does not ask for an address. Does not see an
 * accept() that asks for none, one of another thread than the caller's
 * (io_uring's workers), nor of a 32-bit program; the record of bytes that were
 * there before it is marked all the same (RECORD_NOT_ACCEPTED).
 */
#include "stream.bpf.h"
#include <asm/unistd.h>

/* Not getpeername(), which may come at any time. */
static __always_inline bool is_in_accept(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *registers;

	registers = (const struct pt_regs *)bpf_task_pt_regs(task);
	if (!registers || IS_32_BIT(registers))
		return false;
	switch (SYSTEM_CALL(registers)) {
	case __NR_accept:
	case __NR_accept4:
	case __NR_io_uring_enter:
		return true;
	default:
		return false;
	}
}

static __always_inline int accept_announce(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct flow *record;
	struct stream *s;

	if (histograms || !sk || sk->protocol != IPPROTO_TCP)
		return 1;
	s = bpf_sk_storage_get(&streams, sk, 0, 0);
	if (!s || s->range_head == s->range_tail || !is_in_accept())
		return 1;
	record = RESERVE(flows);
	if (!record)
		return 1;
	__builtin_memset(record, 0, sizeof(*record));
	record->flow = s->flow_in;
	record->t_ns = bpf_ktime_get_ns();
	record->side = SIDE_ACCEPTED;
	SUBMIT(record);
	return 1;
}

SEC("?cgroup/getpeername4")
int on_accept4(struct bpf_sock_addr *ctx)
{
	return accept_announce(ctx);
}

SEC("?cgroup/getpeername6")
int on_accept6(struct bpf_sock_addr *ctx)
{
	return accept_announce(ctx);
}
