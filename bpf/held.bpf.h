/*
 * held.bpf.h - what held back the bytes that a TCP socket was given: spans of
 * time for the flight recorder, by the tests that tcp_write_xmit makes before
 * it sends a segment.
 *
 *   tcp_probe:            before an acknowledgement counts: what held until now
 *   tcp_sendmsg_locked:   the same, before further bytes come
 *   net_dev_start_xmit:   the same, where the socket waits for its own packets
 *   net_dev_queue:        a message's last byte is sent: its spans are written,
 *                         and how long a packet of it waited for a link address
 *
 * A socket is looked at only while it has bytes that were not sent, and a span
 * is written only from `held_ns` on, so an exchange of small messages pays two
 * comparisons. Without a recorder `held_ns` is 0, and none of it is loaded.
 *
 * Does not see what a program itself changes: TCP_NODELAY that ends a wait of
 * Nagle's; nor ACKs once the peer has sent its FIN (no tcp_probe then).
 */
#ifndef LATPROF_HELD_H
#define LATPROF_HELD_H

#include "flight.bpf.h"
#include "stream.bpf.h"
#include "unresolved.bpf.h"

#define MSG_MORE 0x8000
#define DELAYED_ACK_US 30000 /* Linux: 40 ms, others 200 */
#define NEAR_PEER_US 10000 /* else the path may be what was late */

FLIGHT(socket_states, socket_state);
LABELS(held_by);

/* The span that grows, of a socket that has waited; at its end for how long
 * nothing had gone to the device; and whether its last call said that more
 * would come. */
struct held {
	struct socket_state span;
	__u64 unanswered_ns;
	__u64 corked;
};

SOCKET_STORAGE(held_sockets, struct held);

static __always_inline bool waits_for_room(const struct sock *sk)
{
	const struct socket *socket = sk->sk_socket;

	return socket && SEE(struct socket, socket, flags) & 1 << SOCK_NOSPACE;
}

/* Whether the kernel's own queue of it is not empty, or a call waits for room.
 */
static __always_inline bool has_unsent(const struct sock *sk,
				       const struct tcp_sock *tp)
{
	return tp->write_seq != tp->snd_nxt || waits_for_room(sk);
}

static __always_inline __u32 in_flight_of(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) +
	       tp->retrans_out;
}

/* tcp_nagle_test(), and Minshall's variant that is in it. */
static __always_inline bool nagle_holds(const struct tcp_sock *tp, __u8 nonagle)
{
	return !nonagle && tp->packets_out &&
	       (__s32)(tp->snd_sml - tp->snd_una) > 0 &&
	       (__s32)(tp->snd_nxt - tp->snd_sml) >= 0;
}

/* What tcp_write_xmit would stop at. */
static __noinline __u16 held_by(const struct sock *sk,
				const struct tcp_sock *tp, __u64 now)
{
	__u32 unsent = tp->write_seq - tp->snd_nxt;
	__u32 next = unsent < tp->mss_cache ? unsent : tp->mss_cache;
	const struct inet_connection_sock *icsk = &tp->inet_conn;
	__u8 nonagle = BPF_CORE_READ_BITFIELD(tp, nonagle);

	if (!unsent)
		return waits_for_room(sk) ? HELD_SEND_BUFFER : HELD_NOT_KNOWN;
	if (sk->sk_pacing_status == SK_PACING_NEEDED && tp->tcp_wstamp_ns > now)
		return HELD_PACING;
	if (in_flight_of(tp) >= tp->snd_cwnd)
		return BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state) >=
				       TCP_CA_RECOVERY ?
			       HELD_LOSS_RECOVERY :
			       HELD_CONGESTION_WINDOW;
	if ((__s32)(tp->snd_una + tp->snd_wnd - tp->snd_nxt - next) < 0)
		return tp->packets_out ? HELD_RECEIVE_WINDOW : HELD_ZERO_WINDOW;
	if (unsent < tp->mss_cache && nonagle & TCP_NAGLE_CORK)
		return HELD_CORK;
	if (unsent < tp->mss_cache && nagle_holds(tp, nonagle))
		return HELD_NAGLE;
	if (sk->sk_tsq_flags & 1 << TSQ_THROTTLED)
		return HELD_OWN_BACKLOG;
	/* room for some, of which it would make no large segment */
	if (tp->packets_out && BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return HELD_CONGESTION_WINDOW;
	return HELD_NOT_KNOWN;
}

static __noinline void span_write(const struct held *held)
{
	struct socket_state *record;

	if (held->span.until_ns - held->span.from_ns < held_ns)
		return;
	record = flight_next(&socket_states);
	if (!record)
		return;
	*record = held->span;
	SUBMIT(record);
}

static __noinline void span_add(struct held *held, __u64 from, __u64 until,
				__u16 by)
{
	if (held->span.held != by || held->span.until_ns != from) {
		span_write(held);
		held->span.from_ns = from;
		held->span.held = by;
	}
	held->span.until_ns = until;
}

static __always_inline void numbers_note(struct held *held,
					 const struct sock *sk,
					 const struct stream *s,
					 const struct tcp_sock *tp, __u64 now)
{
	struct socket_state *span = &held->span;

	held->unanswered_ns = now - s->queue_ns;
	span->flow = s->flow_out;
	span->unsent_bytes = tp->write_seq - tp->snd_nxt;
	span->cwnd = tp->snd_cwnd;
	span->ssthresh = tp->snd_ssthresh;
	span->in_flight = in_flight_of(tp);
	span->window_bytes = tp->snd_wnd;
	span->mss = tp->mss_cache;
	span->rtt_us = tp->rtt_min.s[0].v;
	span->rto_jiffies = tp->inet_conn.icsk_rto;
	span->pacing = sk->sk_pacing_status ? sk->sk_pacing_rate : ~0ULL;
}

static __noinline struct held *held_of(struct sock *sk)
{
	struct held *held = bpf_sk_storage_get(&held_sockets, sk, 0,
					       BPF_SK_STORAGE_GET_F_CREATE);

	if (!held)
		count(failed_storage);
	return held;
}

/* Since when the oldest bytes that wait have no cause; 0: none wait. The timer
 * of pacing has until when pacing was the cause. */
static __noinline __u64 span_begin(struct sock *sk, struct stream *s,
				   const struct tcp_sock *tp, struct held *held,
				   __u64 now)
{
	const struct pending_send *oldest;
	__u64 from, paced;

	if (s->queued == s->tail)
		return 0;
	oldest = send_at(sk, s, s->queued, false);
	if (!oldest)
		return 0;
	from = oldest->send_ns > held->span.until_ns ? oldest->send_ns :
						       held->span.until_ns;
	paced = sk->sk_pacing_status == SK_PACING_NEEDED ?
			tp->pacing_timer._softexpires :
			0;
	if (paced > from && paced <= now) {
		span_add(held, from, paced, HELD_PACING);
		numbers_note(held, sk, s, tp, now);
		return paced;
	}
	return from;
}

enum held_at { HELD_AT_ACK, HELD_AT_DATA, HELD_AT_SEND, HELD_AT_XMIT };

/* What has held it until now. */
static __noinline void held_look(struct sock *sk, struct stream *s,
				 const struct tcp_sock *tp, enum held_at at)
{
	__u64 now = bpf_ktime_get_ns(), from;
	struct held *held;
	__u16 by;

	if (s->queued == s->tail)
		return;
	held = held_of(sk);
	if (!held)
		return;
	from = span_begin(sk, s, tp, held, now);
	if (!from || from >= now)
		return;
	by = held_by(sk, tp, now);
	if (by == HELD_NOT_KNOWN && held->corked)
		by = HELD_CORK;
	if (at == HELD_AT_SEND)
		held->corked = 0; /* it says itself whether more will come */
	span_add(held, from, now, by);
	numbers_note(held, sk, s, tp, now);
	if (by == HELD_NAGLE && at == HELD_AT_ACK &&
	    held->span.rtt_us < NEAR_PEER_US &&
	    held->unanswered_ns / 1000 >= DELAYED_ACK_US + held->span.rtt_us)
		held->span.held = HELD_DELAYED_ACK;
}

/* A segment came, and has not been looked at. */
static __always_inline void held_at_segment(struct sock *sk, bool bare_ack)
{
	const struct tcp_sock *tp = tcp_of(sk);
	struct stream *s;

	if (!held_ns || !tp || !has_unsent(sk, tp))
		return;
	s = stream_of(sk);
	if (s)
		held_look(sk, s, tp, bare_ack ? HELD_AT_ACK : HELD_AT_DATA);
}

static __noinline void cork_note(struct sock *sk)
{
	struct held *held = held_of(sk);

	if (held)
		held->corked = 1;
}

/* A call gives it bytes. */
static __always_inline void held_at_send(struct sock *sk, struct stream *s,
					 const struct tcp_sock *tp)
{
	if (held_ns && s->queued != s->tail)
		held_look(sk, s, tp, HELD_AT_SEND);
}

/* ... and says whether more will come. */
static __always_inline void held_after_send(struct sock *sk,
					    const struct tcp_sock *tp,
					    const struct msghdr *msg)
{
	if (held_ns && ((msg && msg->msg_flags & MSG_MORE) ||
			BPF_CORE_READ_BITFIELD(tp, nonagle) & TCP_NAGLE_CORK))
		cork_note(sk);
}

/* A packet leaves its queue: where the socket waits for that, nothing else
 * shows it. */
static __always_inline void held_at_xmit(struct sock *sk, struct stream *s)
{
	const struct tcp_sock *tp = tcp_of(sk);

	if (held_ns && s->queued != s->tail && tp &&
	    sk->sk_tsq_flags & 1 << TSQ_THROTTLED)
		held_look(sk, s, tp, HELD_AT_XMIT);
}

static __noinline void held_release(struct sock *sk, struct stream *s,
				    __u64 now, bool whole)
{
	const struct tcp_sock *tp = tcp_of(sk);
	struct held *held = tp ? held_of(sk) : NULL;
	__u64 from;

	if (!held)
		return;
	from = span_begin(sk, s, tp, held, now);
	if (from && from < now && held->corked) {
		span_add(held, from, now, HELD_CORK);
		numbers_note(held, sk, s, tp, now);
	}
	held->corked = 0;
	if (!whole)
		return;
	span_write(held);
	held->span.from_ns = held->span.until_ns;
}

/* Whether their packet has waited for a link address, since they were given. */
static __noinline void segment_waited(const struct sock *sk, __u64 packet,
				      __u64 flow, __u64 given_ns, __u64 now)
{
	const struct unresolved *waited = unresolved_of((__u64)sk, packet);

	if (!waited)
		return;
	if (waited->since_ns >= given_ns)
		address_wait_write(flow, waited, now, false);
	unresolved_forget(packet, waited);
}

/* Bytes up to `end` go to the device in a packet: whatever held them is over.
 */
static __always_inline void held_at_queue(struct sock *sk, struct stream *s,
					  __u64 packet, __u64 end, __u64 now)
{
	const struct pending_send *oldest;

	if (!held_ns || s->queued == s->tail)
		return;
	oldest = send_at(sk, s, s->queued, false);
	if (!oldest || now - oldest->send_ns < held_ns)
		return;
	segment_waited(sk, packet, s->flow_out, oldest->send_ns, now);
	held_release(sk, s, now, oldest->end <= end);
}

#endif
