/*
 * close.bpf.c - the end of a connection, and of what its socket still held.
 *
 *   inet_sock_set_state:
 *     closing:     a last send call that gave less than it wanted is cut
 *     closed:      what was never handed to a device is written
 *     connecting:  the state of the connection before is forgotten, since a
 *                  socket may be used again (connect to AF_UNSPEC)
 *
 * Does not see the end of what stands in a queueing discipline then: it is
 * written when it leaves, and not at all where it is dropped there.
 */
#include "message.bpf.h"
#include <bpf/bpf_tracing.h>

#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8

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

/* Before the FIN, which counts as a byte, too. */
static __always_inline void sender_closing(struct sock *sk)
{
	struct sender *s = sender_of(sk);
	struct tcp_sock *tp;

	if (!s)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp && tp->write_seq != s->last_sequence)
		send_cut(s, sender_offset(s, tp->write_seq), tp->write_seq);
}

SEC("?tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, const struct sock *const_sk, int before, int state)
{
	struct sock *sk = (struct sock *)const_sk;

	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (before == TCP_ESTABLISHED || before == TCP_CLOSE_WAIT)
		sender_closing(sk);
	if (state == TCP_CLOSE)
		sender_end(sk);
	if (state == TCP_SYN_SENT) {
		bpf_sk_storage_delete(&senders, sk);
		bpf_sk_storage_delete(&receivers, sk);
	}
	return 0;
}
