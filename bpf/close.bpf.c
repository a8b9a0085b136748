/*
 * close.bpf.c - the end of a connection, and of what its socket still held.
 *
 *   inet_sock_set_state:  closed      ->  what was never handed to a device is
 *                                         written, its later stamps missing
 *                         connecting  ->  the state of the connection before
 *                                         is forgotten: a socket may be used
 *                                         again (connect to AF_UNSPEC)
 *
 * Does not see the end of what stands in a queueing discipline then: it is
 * written when it leaves, and not at all where it is dropped there.
 */
#include "message.bpf.h"
#include <bpf/bpf_tracing.h>

#define TCP_SYN_SENT 2
#define TCP_CLOSE 7

static long send_abandon(__u32 index, struct sender **context)
{
	struct sender *s = *context;
	__u32 i = s->queued + index;

	if (i == s->tail)
		return 1;
	send_emit(s, send_at(s, i), 0, RECORD_NOT_TRANSMITTED);
	return 0;
}

static __always_inline void sender_end(struct sock *sk)
{
	struct sender *s = sender_of(sk);

	if (!s || s->queued == s->tail)
		return;
	bpf_loop(SENDS, send_abandon, &s, 0);
	s->tail = s->queued;
}

SEC("?tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, const struct sock *const_sk, int before, int state)
{
	struct sock *sk = (struct sock *)const_sk;

	if (state != TCP_CLOSE && state != TCP_SYN_SENT)
		return 0;
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (state == TCP_CLOSE) {
		sender_end(sk);
		return 0;
	}
	bpf_sk_storage_delete(&senders, sk);
	bpf_sk_storage_delete(&receivers, sk);
	return 0;
}
