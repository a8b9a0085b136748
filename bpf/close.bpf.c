/*
 * close.bpf.c - the end of a socket, and of what it still held.
 *
 *   inet_sock_set_state:
 *     closing:     a last send call that gave less than it wanted is cut
 *     closed:      what was never handed to a device is written
 *     connecting:  the state of the connection before is forgotten, since a
 *                  socket may be used again (connect to AF_UNSPEC)
 *     established: its peer on this host may be watched, too (peer.bpf.h)
 *   tcp_destroy_sock:  what it has beside its state is freed
 *   cgroup/sock_release: datagrams that nobody has read are written
 *
 * Does not see the end of what stands in a queueing discipline then: it is
 * written when it leaves, and not at all where it is dropped there.
 */
#include "datagram_receive.bpf.h"
#include "stream.bpf.h"
#include <bpf/bpf_tracing.h>

struct abandoned {
	struct sock *sk;
	struct stream *s;
	__u64 sent; /* by TCP, whether or not a device showed it to us */
};

static long send_abandon(__u32 index, struct abandoned *c)
{
	struct stream *s = c->s;
	__u64 at = s->queued + index;
	struct pending_send *m;

	if (at == s->tail)
		return 1;
	m = send_at(c->sk, s, at, false);
	if (!m)
		return 1;
	send_emit(s, m, 0, m->end > c->sent ? RECORD_NOT_TRANSMITTED : 0);
	return 0;
}

static __always_inline void sender_end(struct sock *sk)
{
	struct abandoned c = { .sk = sk, .s = stream_of(sk) };
	struct tcp_sock *tp = tcp_of(sk);

	if (!tp || !c.s || c.s->queued == c.s->tail)
		return;
	c.sent = tp->bytes_sent - tp->bytes_retrans;
	bpf_loop(DEEP_SENDS, send_abandon, &c, 0);
	c.s->tail = c.s->queued;
}

/* Before the FIN, which counts as a byte, too. */
static __always_inline void sender_closing(struct sock *sk)
{
	struct stream *s = stream_of(sk);
	struct tcp_sock *tp;
	__u64 end;

	if (!s || !(s->announced & SIDE_SENDER))
		return;
	tp = tcp_of(sk);
	if (!tp)
		return;
	end = offset_near(s->given_end, s->out_zero, tp->write_seq);
	if (end != s->given_end)
		send_cut(sk, s, end);
}

/* Before any of its bytes arrive: its peer is found by then. */
static __noinline void connection_state(struct sock *sk, int state)
{
	if (state == TCP_CLOSE)
		connection_forget(sk);
	else if (state == TCP_ESTABLISHED && wants_socket(sk))
		connection_note(sk);
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
		struct stream *s = stream_of(sk);

		if (s)
			chunks_drop(sk, s);
		bpf_sk_storage_delete(&streams, sk);
	}
	if (options.peers)
		connection_state(sk, state);
	return 0;
}

SEC("?tp_btf/tcp_destroy_sock")
int BPF_PROG(on_destroy, struct sock *sk)
{
	struct stream *s = stream_of(sk);

	if (s)
		chunks_drop(sk, s);
	return 0;
}

struct unread {
	struct datagram_socket *s;
	__u32 number;
	__u32 tail;
	__u64 now;
	__u32 pid;
};

static long datagram_unread(__u32 index, struct unread *c)
{
	struct datagram_key at = { .address = c->s->socket };
	struct datagram *d;

	if (c->number == c->tail)
		return 1;
	at.number = ++c->number;
	d = datagram_room(c->s, at.number);
	if (d->at.number != at.number)
		d = bpf_map_lookup_elem(&datagrams, &at);
	if (!d || d->flags & DATAGRAM_READ)
		return 0;
	datagram_emit_received(d, c->now, c->pid, 0,
			       RECORD_UNREAD | RECORD_NO_WAKEUP);
	bpf_map_delete_elem(&datagrams, &at);
	return 0;
}

SEC("?cgroup/sock_release")
int on_release(struct bpf_sock *sk)
{
	struct datagram_socket *s;
	struct unread c = {};

	if (sk->protocol != IPPROTO_UDP)
		return 1;
	s = bpf_sk_storage_get(&datagram_sockets, sk, 0, 0);
	if (!s || s->head == s->tail)
		return 1;
	c.s = s;
	c.number = s->head;
	c.tail = s->tail;
	c.now = bpf_ktime_get_ns();
	c.pid = s->reader_pid;
	bpf_loop(DATAGRAMS, datagram_unread, &c, 0);
	return 1;
}
