/*
 * receive.bpf.c - when bytes entered this host's stack, and when they became
 * readable in their socket.
 *
 *   netif_receive_skb:     packet, time            ->  arrivals
 *   tcp_probe:             its socket, sequence    ->  this CPU's segment
 *   sk_data_ready:         rcv_nxt moved           ->  receive FIFO
 *                          UDP: the queued packet  ->  datagram entry
 *   tcp_probe:             fewer bytes than the reader asks for at once, for
 *                          which nobody is woken   ->  receive FIFO
 *   tcp_probe:             a bare ACK of bytes that this end has sent, which
 *                          nothing acknowledged before  ->  acknowledgements
 *
 * A segment that met its socket in use waits in the backlog, where TCP may add
 * later ones to it; and the kernel copies a packet for generic XDP, or when its
 * sender's pages were not copied (MSG_ZEROCOPY), so that its memory is another
 * one. These are found by what each segment ends with, and where one is not,
 * the arrival is not known (counted, never guessed). Does not see the
 * arrival of datagrams that this host cut from one packet (UDP_SEGMENT).
 */
#include "arrival.bpf.h"
#include "datagram_receive.bpf.h"
#include "held.bpf.h"
#include "loss.bpf.h"
#include "readable.bpf.h"
#include <bpf/bpf_tracing.h>

RING(early_segments, early_segment);
RING(acknowledgements, acknowledged);

#define ACKNOWLEDGED_SHIFT 20 /* 1.05 ms */

SEC("?tp_btf/netif_receive_skb")
int BPF_PROG(on_arrive, struct sk_buff *skb)
{
	arrival_note(skb);
	return 0;
}

#ifndef PARTS
#define PARTS 128 /* a power of two */
#endif

/* The segment that TCP has in hand on this CPU, for the hook that follows when
 * it has become readable. */
struct segment_in_hand {
	__u64 socket;
	__u64 arrive_ns;
	__u32 start;
	__u32 end;
	__u32 ttl;
	__u32 parts; /* that TCP made it of, the last one first */
	__u32 flags; /* of its arrival */
	__u32 pad;
	__u64 part_arrive_ns[PARTS];
	__u32 part_ends[PARTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct segment_in_hand);
} segments_in_hand SEC(".maps");

static __always_inline struct segment_in_hand *segment_in_hand(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&segments_in_hand, &zero);
}

static __noinline void early_emit(struct sock *sk, __u64 arrive_ns, __u32 end)
{
	struct stream *s = stream_watch(sk);
	struct early_segment *record;
	struct tcp_sock *tp = tcp_of(sk);

	if (!s || !tp || arrive_ns <= ARRIVAL_OF_A_PART)
		return;
	if (!receiver_begun(s))
		receiver_begin(sk, s, tp);
	record = RESERVE(early_segments);
	if (!record)
		return;
	record->flow = s->flow_in;
	record->end = offset_near(s->ready_end, s->in_zero, end);
	record->arrive_ns = arrive_ns;
	SUBMIT(record);
}

/* GRO may have merged some. */
static __noinline void early_count(struct sock *sk, const struct sk_buff *skb)
{
	const struct skb_shared_info *info = (void *)(skb->head + skb->end);
	__u32 n = SEE(struct skb_shared_info, info, gso_segs);

	if (is_watched(sk))
		segments_add(group_of_stream(sk), early, n ?: 1);
}

static __always_inline void receiver_meet(struct sock *sk, struct stream *s,
					  struct tcp_sock *tp)
{
	bool first = !s->flow_in;

	if (receiver_begun(s))
		return;
	receiver_begin(sk, s, tp);
	/* what is unread is the first that we see become readable */
	if (first)
		s->ready_end = s->read_end;
}

static __noinline void segment_below_mark(struct sock *sk,
					  const struct segment_in_hand *segment)
{
	struct stream *s = stream_watch(sk);
	struct tcp_sock *tp = tcp_of(sk);
	bool known = segment->arrive_ns > ARRIVAL_OF_A_PART;
	__u16 flags = known ? segment->flags : RECORD_BACKLOG;

	if (!s || !tp)
		return;
	receiver_meet(sk, s, tp);
	below_mark_settle(sk, s, tp);
	if ((__s32)(segment->start - tp->rcv_nxt) > 0 ||
	    (__s32)(segment->end - tp->rcv_nxt) <= 0)
		return;
	if (tp->rcv_nxt != (__u32)s->ready_end + s->in_zero)
		flags |= RECORD_MERGED; /* what came before came unseen */
	below_mark_note(sk, s, tp, segment->end, known ? segment->arrive_ns : 0,
			segment->ttl, flags);
}

/* Where all is counted, only of what is sampled: of other bytes nobody else has
 * a record to hold it against. */
static __always_inline bool wants_acknowledged(const struct stream *s,
					       __u64 end, __u32 bytes)
{
	return !histograms || (s->announced & SIDE_SENDER &&
			       is_range_sampled(s->flow_out, end - bytes, end));
}

/* Of a one-sided stream only ACKs come back, and a host's clock is known from
 * what goes both ways. One in each 2^20 ns is enough for that. While its socket
 * is in use TCP makes one of several: the number is that of the packet that
 * arrived, which is the first of them. */
static __noinline void acknowledged_emit(struct sock *sk,
					 const struct sk_buff *skb,
					 const struct tcp_sock *tp)
{
	const struct tcp_skb_cb *cb = (const void *)skb->cb;
	struct stream *s = stream_known(sk);
	struct acknowledged *record;
	const struct arrival *a;
	__u32 time, bytes;
	__u64 end;

	if (!s || !sender_begun(s))
		return;
	/* of all that TCP made one of: most need not be looked for */
	end = offset_near(s->given_end, s->out_zero, cb->ack_seq);
	if (!wants_acknowledged(s, end, cb->ack_seq - tp->snd_una))
		return;
	a = arrival_at(skb);
	if (!a || a->data != (__u64)skb->head + skb->network_header)
		return;
	time = a->t_ns >> ACKNOWLEDGED_SHIFT;
	bytes = a->acknowledges - tp->snd_una;
	if (s->acknowledged == time || !a->acknowledges || (__s32)bytes <= 0)
		return;
	end = offset_near(s->given_end, s->out_zero, a->acknowledges);
	if (!wants_acknowledged(s, end, bytes))
		return;
	record = RESERVE(acknowledgements);
	if (!record)
		return;
	s->acknowledged = time;
	record->flow = s->flow_out;
	record->end = end;
	record->arrive_ns = a->t_ns;
	SUBMIT(record);
}

/* What counts here is the packet's own number, unless TCP will not take it. */
static __always_inline void acknowledged_note(struct sock *sk,
					      const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (const void *)skb->cb;
	const struct tcp_sock *tp;

	if (skb->skb_iif == LOOPBACK_IFINDEX)
		return;
	tp = tcp_of(sk);
	if (tp && (__s32)(cb->ack_seq - tp->snd_una) > 0 &&
	    (__s32)(cb->ack_seq - tp->snd_nxt) <= 0)
		acknowledged_emit(sk, skb, tp);
}

SEC("?tp_btf/tcp_probe")
int BPF_PROG(on_segment, struct sock *sk, struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (const void *)skb->cb;
	struct segment_in_hand *segment;
	struct tcp_sock *tp;

	if (histograms) {
		tp = tcp_of(sk);
		if (tp && tp->dsack_dups)
			spurious_count(sk);
	}
	held_at_segment(sk, cb->seq == cb->end_seq);
	if (cb->seq == cb->end_seq) {
		acknowledged_note(sk, skb);
		return 0; /* nothing to read */
	}
	segment = segment_in_hand();
	if (!segment)
		return 0;
	segment->socket = (__u64)sk;
	segment->start = cb->seq;
	segment->end = cb->end_seq;
	segment->arrive_ns = arrival_take(
		skb, (__u64)skb->head + skb->network_header,
		skb->len + skb->transport_header - skb->network_header,
		&segment->flags);
	segment->ttl = ttl_at(skb->head + skb->network_header);
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	if (sk->sk_rcvlowat > 1)
		segment_below_mark(sk, segment);
	if ((__s32)(cb->seq - tp->rcv_nxt) <= 0)
		return 0;
	if (histograms)
		early_count(sk, skb);
	else
		early_emit(sk, segment->arrive_ns, cb->end_seq);
	return 0;
}

/* Bytes became readable without tcp_probe: after shutdown(SHUT_WR), or with the
 * handshake. Where they came in one segment, it is the last in the queue. */
static __noinline void segment_of_queue(struct sock *sk,
					const struct tcp_sock *tp, __u32 ready,
					struct segment_in_hand *ret)
{
	const struct sk_buff *skb = sk->sk_receive_queue.prev;
	struct tcp_skb_cb cb = {};

	ret->socket = (__u64)sk;
	ret->start = ready;
	ret->end = tp->rcv_nxt;
	ret->arrive_ns = 0;
	ret->ttl = 0;
	ret->flags = 0;
	bpf_probe_read_kernel(&cb, sizeof(cb), skb->cb);
	if (cb.seq == ready && cb.end_seq == tp->rcv_nxt)
		ret->arrive_ns = arrival_take(
			skb,
			(__u64)SEE(struct sk_buff, skb, head) +
				SEE(struct sk_buff, skb, network_header),
			0, &ret->flags);
}

static __noinline int hole_filled(struct sock *sk, struct stream *s,
				  const struct tcp_sock *tp, __u8 ttl,
				  __u64 now)
{
	range_ready(sk, s, tp, tp->rcv_nxt, now, 0, ttl, RECORD_HOLE_FILLED);
	return 0;
}

/* TCP made one of several segments while the socket was in use. Their arrivals
 * are known by what each ends with: from the last one back to the first. Not
 * static, so that the verifier looks at it once. `ports` as the socket sends.
 */
SHARED int parts_find(__u32 ports, struct segment_in_hand *segment)
{
	__u32 end;

	if (!segment)
		return false;
	ports = ports << 16 | ports >> 16;
	end = segment->end;
	segment->parts = 0;
	for (__u32 i = 0; i < PARTS && end != segment->start; i++) {
		const struct segment_arrival *a =
			segment_arrival_of(ports, end);

		if (!a || a->ports != ports || a->end != end ||
		    a->t_ns < options.since_ns)
			return false;
		segment->part_ends[i] = end;
		segment->part_arrive_ns[i] = a->t_ns;
		segment->parts++;
		end -= a->bytes;
	}
	return end == segment->start;
}

struct parts_context {
	struct sock *sk;
	struct stream *s;
	const struct tcp_sock *tp;
	struct segment_in_hand *segment;
	__u64 now;
};

/* All parts but the last, which is as any segment. */
static long part_ready(__u32 index, struct parts_context *c)
{
	__u32 ready = (__u32)c->s->ready_end + c->s->in_zero, end;
	__u64 at = c->segment->parts - 1 - index;

	if (!at || at >= PARTS)
		return 1;
	barrier_var(at); /* the verifier of Linux 6.1 needs the mask */
	at &= PARTS - 1;
	end = c->segment->part_ends[at];
	if ((__s32)(end - ready) > 0)
		range_ready(c->sk, c->s, c->tp, end, c->now,
			    c->segment->part_arrive_ns[at], c->segment->ttl,
			    /* what came before became readable unseen */
			    !index && (__s32)(c->segment->start - ready) > 0 ?
				    RECORD_MERGED :
				    0);
	return 0;
}

static __noinline void parts_ready(struct sock *sk, struct stream *s,
				   const struct tcp_sock *tp,
				   struct segment_in_hand *segment, __u64 now)
{
	struct parts_context c = { sk, s, tp, segment, now };

	if ((__s32)(tp->rcv_nxt - segment->end) < 0 ||
	    !parts_find(ports_of(sk), segment))
		return;
	bpf_loop(PARTS, part_ready, &c, 0);
	segment->arrive_ns = segment->part_arrive_ns[0];
}

static __noinline __u16 arrival_unknown(struct segment_in_hand *segment)
{
	if (segment->arrive_ns)
		count(coalesced_in_backlog);
	else
		count(backlog_arrivals);
	segment->arrive_ns = 0;
	return RECORD_BACKLOG;
}

static __always_inline int stream_ready(struct sock *sk)
{
	struct segment_in_hand *segment;
	__u32 ready, rcv_nxt;
	__u64 now;
	struct tcp_sock *tp;
	struct stream *s;
	__u16 flags = 0;

	s = stream_watch(sk);
	if (!s)
		return 0;
	tp = tcp_of(sk);
	segment = segment_in_hand();
	if (!tp || !segment)
		return 0;
	receiver_meet(sk, s, tp);
	rcv_nxt = tp->rcv_nxt;
	ready = (__u32)s->ready_end + s->in_zero;
	if ((__s32)(rcv_nxt - ready) <= 0)
		return 0;
	now = bpf_ktime_get_ns();
	if (segment->socket != (__u64)sk || (__s32)(segment->end - ready) <= 0)
		segment_of_queue(sk, tp, ready, segment);
	if (segment->arrive_ns <= ARRIVAL_OF_A_PART) {
		parts_ready(sk, s, tp, segment, now);
		ready = (__u32)s->ready_end + s->in_zero;
	}
	if (segment->arrive_ns <= ARRIVAL_OF_A_PART)
		flags |= arrival_unknown(segment);
	else
		flags |= segment->flags;
	/* what came before this segment became readable unseen */
	if ((__s32)(segment->start - ready) > 0)
		flags |= RECORD_MERGED;
	if ((__s32)(segment->end - ready) > 0 &&
	    (__s32)(rcv_nxt - segment->end) >= 0)
		range_ready(sk, s, tp, segment->end, now, segment->arrive_ns,
			    segment->ttl, flags);
	/* it filled a hole: what is behind it came earlier */
	if (rcv_nxt != (__u32)s->ready_end + s->in_zero)
		return hole_filled(sk, s, tp, segment->ttl, now);
	return 0;
}

/* When data that came with a SYN entered: TCP has a copy of its packet. */
static __noinline void syn_in_hand(struct sock *sk, const struct tcp_sock *tp)
{
	struct segment_in_hand *segment = segment_in_hand();
	__u32 ports = ports_of(sk), end = tp->rcv_nxt - 1;
	const struct segment_arrival *a;

	ports = ports << 16 | ports >> 16;
	a = segment_arrival_of(ports, end);
	if (!segment || !a || a->ports != ports || a->end != end ||
	    a->t_ns < options.since_ns)
		return;
	segment->socket = (__u64)sk;
	segment->start = tp->copied_seq;
	segment->end = tp->rcv_nxt;
	segment->arrive_ns = a->t_ns;
	segment->ttl = 0;
}

/* A listener is woken for a connection that is not established: its data came
 * with the SYN (TCP Fast Open), and for that nobody is woken. */
static __noinline int fastopen_ready(struct sock *listener)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(listener);
	struct request_sock *request;
	struct sock *sk;

	if (!tp)
		return 0;
	request = tp->inet_conn.icsk_accept_queue.rskq_accept_tail;
	sk = request ? request->sk : NULL;
	if (!sk || sk->__sk_common.skc_state != TCP_SYN_RECV)
		return 0;
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	syn_in_hand(sk, tp);
	return stream_ready(sk);
}

static __always_inline int socket_ready(const struct sock *const_sk)
{
	struct sock *sk = (struct sock *)const_sk;

	if (sk->__sk_common.skc_state == TCP_LISTEN)
		return fastopen_ready(sk);
	if (sk->sk_protocol == IPPROTO_TCP)
		return sk->sk_type == SOCK_STREAM ? stream_ready(sk) : 0;
	return sk->sk_protocol == IPPROTO_UDP ? datagram_ready(sk) : 0;
}

SEC("?tp_btf/sk_data_ready")
int BPF_PROG(on_ready, const struct sock *sk)
{
	return socket_ready(sk);
}

SEC("?fentry/sock_def_readable")
int BPF_PROG(on_ready_fentry, struct sock *sk)
{
	return socket_ready(sk);
}

SEC("?tp_btf/udp_fail_queue_rcv_skb")
int BPF_PROG(on_receive_queue_full, int error, struct sock *sk,
	     struct sk_buff *skb)
{
	return datagram_refused(sk, skb);
}

/* Kernels whose tracepoint does not pass the packet. */
SEC("?tp_btf/udp_fail_queue_rcv_skb")
int BPF_PROG(on_receive_queue_full_count, int error, struct sock *sk)
{
	if (datagram_watch(sk))
		count(datagrams_dropped_at_socket);
	return 0;
}
