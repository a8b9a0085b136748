/*
 * close.bpf.c - the end of a socket, and of what it still held.
 *
 *   inet_sock_set_state:
 *     closing:     a last send call that gave less than it wanted is cut
 *     closed:      what was never handed to a device is written
 *     either end's: announced, since a request then has no answer any more
 *     connecting:  the state of the connection before is forgotten, since a
 *                  socket may be used again (connect to AF_UNSPEC)
 *     established: its peer on this host may be watched, too (peer.bpf.h);
 *                  what went with its SYN is announced
 *   tcp_destroy_sock:  what it has beside its state is freed; an exchange
 *     that was read after the connection's end is counted
 *   cgroup/sock_release: datagrams that nobody has read are written; who had
 *     closed one half of a connection before reads no more now
 *
 * Does not see the end of what stands in a queueing discipline then: it is
 * written when it leaves, and not at all where it is dropped there.
 */
#include "datagram_receive.bpf.h"
#include "listener.bpf.h"
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
	send_emit(c->sk, s, m, at, 0,
		  m->end > c->sent ? RECORD_NOT_TRANSMITTED : 0);
	return 0;
}

static __always_inline void sender_end(struct sock *sk)
{
	struct abandoned c = { .sk = sk, .s = stream_known(sk) };
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
	struct stream *s = stream_known(sk);
	struct tcp_sock *tp;
	__u64 end;

	if (!s || !sender_begun(s))
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
		end_forget(stream_number(sk), (__u64)sk);
	else if (state == TCP_ESTABLISHED && wants_socket(sk))
		stream_note(sk);
}

/* The RTT of the handshake is counted when the group is known. */
static __noinline void handshake_note(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct stream *s = stream_watch(sk);

	if (s && tp)
		s->handshake_us = tp->srtt_us >> 3;
}

/* Nobody will read any more: it is closed, not half of it shut down. */
static __always_inline bool is_closed(const struct sock *sk, int before,
				      int state)
{
	return state == TCP_CLOSE || state == TCP_LAST_ACK ||
	       (before == TCP_ESTABLISHED && sk->sk_shutdown == SHUTDOWN_MASK);
}

/* What went with the SYN has both first sequence numbers now. */
static __noinline void fastopen_announce(struct sock *sk)
{
	struct stream *s = stream_known(sk);

	if (s && s->flow_out && !sender_begun(s))
		stream_announce_sender(sk, s);
}

static __noinline void counting_end(struct sock *sk, int state)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct stream *s = stream_known(sk);

	if (!s || !tp)
		return;
	/* what has come may still be read, until the socket is destroyed */
	if (!unread_bytes(sk, tp)) {
		exchange_abandon(&s->exchange, &s->handshake,
				 bpf_ktime_get_ns());
		reply_was_one(&s->exchange, &s->held);
		if (exchange_end(&s->exchange, false, NULL))
			client_turn_write(sk, s);
		exchange_hold(&s->exchange, &s->held, 0);
	}
	if (state == TCP_CLOSE)
		ends_finish(s->flow_out);
}

/* What is asked for then has no answer any more. Half of it closed is a request
 * as any other: it waits until its peer has closed the other half, or it has.
 */
static __always_inline __u32 ending_of(const struct sock *sk, int before,
				       int state)
{
	if (before == TCP_ESTABLISHED && state == TCP_CLOSE_WAIT)
		return ENDING_BY_PEER;
	if ((before == TCP_FIN_WAIT1 || before == TCP_FIN_WAIT2) &&
	    (state == TCP_CLOSE || state == TCP_CLOSING)) {
		if (sk->sk_err)
			return ENDING_RESET;
		return sk->__sk_common.skc_flags & 1 << SOCK_DEAD ?
			       ENDING_CLOSED :
			       ENDING_BY_PEER;
	}
	if (before != TCP_ESTABLISHED && before != TCP_CLOSE_WAIT)
		return 0;
	if (state == TCP_CLOSE)
		return ENDING_RESET;
	return sk->sk_shutdown == SHUTDOWN_MASK ? ENDING_CLOSED : 0;
}

/* Nothing more is said of an end that has closed, or was lost. */
static __noinline void ending_announce(struct stream *s, __u32 ending,
				       int error)
{
	struct flow *record;

	if (!s || !(s->flow_out || s->flow_in) || s->announced & SIDE_CLOSED)
		return;
	record = RESERVE(flows);
	if (!record)
		return;
	if (ending != ENDING_BY_PEER)
		s->announced |= SIDE_CLOSED;
	__builtin_memset(record, 0, sizeof(*record));
	record->flow = s->flow_out ?: s->flow_in;
	record->first_sequence = !s->flow_out; /* 1: the flow to this end */
	record->t_ns = bpf_ktime_get_ns();
	record->side = SIDE_CLOSED;
	record->accepted = ending;
	record->group = error;
	SUBMIT(record);
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
	if (histograms && is_closed(sk, before, state))
		counting_end(sk, state);
	if (!histograms && ending_of(sk, before, state))
		ending_announce(stream_known(sk), ending_of(sk, before, state),
				sk->sk_err);
	if (histograms && state == TCP_ESTABLISHED)
		handshake_note(sk);
	if (before == TCP_SYN_SENT && state == TCP_ESTABLISHED && !histograms)
		fastopen_announce(sk);
	if (state == TCP_SYN_SENT) {
		struct stream *s = stream_of(sk);

		if (s)
			chunks_drop(sk, s);
		bpf_sk_storage_delete(&streams, sk);
	}
	if (options.peers && !histograms)
		connection_state(sk, state);
	return 0;
}

/* The client's, which it has read after its connection had ended. */
static __noinline void last_exchange_end(struct sock *sk)
{
	struct stream *s = stream_known(sk);
	struct tcp_sock *tp = tcp_of(sk);

	if (!s || !tp)
		return;
	exchange_hold(&s->exchange, &s->held, 0);
	if (exchange_end(&s->exchange, unread_bytes(sk, tp), NULL))
		client_turn_write(sk, s);
}

SEC("?tp_btf/tcp_destroy_sock")
int BPF_PROG(on_destroy, struct sock *sk)
{
	struct stream *s = stream_of(sk);

	if (histograms)
		last_exchange_end(sk);
	if (s)
		chunks_drop(sk, s);
	return 0;
}

/* The same where messages are counted: also while they are not. */
SEC("?tp_btf/inet_sock_set_state")
int BPF_PROG(on_connection, const struct sock *sk, int before, int state)
{
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (before == TCP_LISTEN)
		listener_end((struct sock *)sk);
	if (state == TCP_LISTEN && wants_socket((struct sock *)sk))
		listener_begin((struct sock *)sk);
	else
		connection_state((struct sock *)sk, state);
	return 0;
}

/* Over all listeners: how many connections they have refused. */
SEC(SOCKETS_PASSED)
int on_listener(struct SOCKETS_CONTEXT *ctx)
{
	struct sock *sk = socket_passed(ctx);
	__u32 *counted = ctx->value;

	if (sk && counted)
		listener_count(sk, counted);
	return 0;
}

/* Bytes that were readable and that nobody has read. */
static __noinline void stream_unread(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	__u32 unread = tp ? unread_bytes(sk, tp) : 0;

	if (unread)
		unread_count(group_of_stream(sk), IPPROTO_TCP, 1, unread);
}

SEC("?tp_btf/tcp_destroy_sock")
int BPF_PROG(on_stream_end, struct sock *sk)
{
	if (!stream_of(sk))
		return 0;
	spurious_count(sk);
	stream_unread(sk);
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
	datagram_emit_received(c->s, d, c->now, c->pid, 0,
			       RECORD_UNREAD | RECORD_NO_WAKEUP);
	bpf_map_delete_elem(&datagrams, &at);
	return 0;
}

/* By the queues themselves: they hold what came before we watched, too. */
static __noinline void datagrams_end(const struct datagram_socket *s)
{
	const struct sock *sk = (const struct sock *)s->socket;
	const struct udp_sock *up = (const struct udp_sock *)sk;
	__u32 waiting = SEE(struct sock, sk, sk_receive_queue.qlen) +
			SEE(struct udp_sock, up, reader_queue.qlen);
	__u16 port = bpf_htons(SEE(struct sock, sk, __sk_common.skc_num));
	__u32 netns = netns_number(sk);

	end_forget(port_number(port, IPPROTO_UDP, netns), s->socket);
	if (histograms && waiting)
		unread_count(s->group, IPPROTO_UDP, waiting, 0);
}

/* Its own half was closed before: that the rest is, no state says. */
static __always_inline void half_release(struct bpf_sock *sk)
{
	if (sk->state == TCP_FIN_WAIT1 || sk->state == TCP_FIN_WAIT2)
		ending_announce(bpf_sk_storage_get(&streams, sk, 0, 0),
				ENDING_CLOSED, 0);
}

SEC("?cgroup/sock_release")
int on_release(struct bpf_sock *sk)
{
	struct datagram_socket *s;
	struct unread c = {};

	if (sk->protocol == IPPROTO_TCP && !histograms)
		half_release(sk);
	if (sk->protocol != IPPROTO_UDP)
		return 1;
	s = bpf_sk_storage_get(&datagram_sockets, sk, 0, 0);
	if (s && (options.peers || histograms))
		datagrams_end(s);
	s = datagram_known(sk);
	if (!s || s->head == s->tail)
		return 1;
	c.s = s;
	c.number = s->head;
	c.tail = s->tail;
	c.now = bpf_ktime_get_ns();
	c.pid = s->reader_pid;
	bpf_loop(UNREAD_DATAGRAMS, datagram_unread, &c, 0);
	if (c.number != c.tail)
		count_more(failed_inserts, c.tail - c.number);
	return 1;
}
