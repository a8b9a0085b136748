/*
 * receive.bpf.c - when bytes entered this host's stack, and when they became
 * readable in their socket.
 *
 *   netif_receive_skb:     (packet, time)          ->  slot of this CPU
 *   tcp_probe:             its socket, sequence    ->  arrival of the segment
 *   sk_data_ready:         rcv_nxt moved           ->  receive FIFO
 *                          UDP: the slot's packet  ->  datagram entry
 *
 * From arrival to sk_data_ready a packet stays on one CPU within one softirq,
 * unless the socket was in use: then it waits in the backlog, and its arrival
 * is not known (counted, never guessed). Does not see the arrival of data that
 * came with the last packet of the handshake or after this end was shut down
 * for sending, nor datagrams that two CPUs deliver to one socket at the same
 * instant, nor those that this host cut from one packet (UDP_SEGMENT).
 */
#include "arrival.bpf.h"
#include "datagram_receive.bpf.h"
#include "header.bpf.h"
#include "message.bpf.h"
#include "wakeup.bpf.h"
#include <bpf/bpf_tracing.h>

RING(early_segments, early_segment);

SEC("?tp_btf/netif_receive_skb")
int BPF_PROG(on_arrive, struct sk_buff *skb)
{
	struct arrival *slot;

	if (!wants_netns(skb->dev->nd_net.net->ns.inum))
		return 0;
	slot = arrival_slot();
	if (!slot)
		return 0;
	slot->skb = (__u64)skb;
	slot->t_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void early_emit(const struct receiver *r, __u64 end)
{
	struct early_segment *record;

	if (!r->segment_arrive_ns)
		return;
	record = RESERVE(early_segments);
	if (!record)
		return;
	record->flow = r->flow;
	record->end = end;
	record->arrive_ns = r->segment_arrive_ns;
	SUBMIT(record);
}

SEC("?tp_btf/tcp_probe")
int BPF_PROG(on_segment, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_skb_cb cb;
	struct arrival *slot;
	struct tcp_sock *tp;
	struct receiver *r;

	if (!wants_socket(sk))
		return 0;
	cb.seq = *(__u32 *)&skb->cb[0];
	cb.end_seq = *(__u32 *)&skb->cb[4];
	if (cb.seq == cb.end_seq)
		return 0; /* an acknowledgement: nothing to read */
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	r = receiver_of(sk);
	if (!r || !r->announced)
		r = receiver_create(sk, tp);
	slot = arrival_slot();
	if (!r || !slot)
		return 0;
	r->segment_start = cb.seq;
	r->segment_sequence = cb.end_seq;
	if (slot->skb == (__u64)skb) {
		r->segment_arrive_ns = slot->t_ns;
		r->segment_flags = 0;
		slot->skb = 0;
	} else {
		r->segment_arrive_ns = 0;
		r->segment_flags = RECORD_BACKLOG;
		count(backlog_arrivals);
	}
	r->ttl = ttl_at(skb->head + skb->network_header);
	if ((__s32)(cb.seq - tp->rcv_nxt) > 0)
		early_emit(r, receiver_offset(r, cb.end_seq));
	return 0;
}

static __always_inline void range_append(struct receiver *r, __u64 end,
					 __u64 arrive_ns, __u32 queue_bytes,
					 __u16 flags)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 stack_ns = arrive_ns ? now - arrive_ns : 0;
	struct readable_range *range;

	if (r->tail == r->head)
		r->tail = r->head = 0;
	if (r->tail - r->head >= RANGES) {
		range = range_at(r, r->tail - 1);
		flags |= RECORD_MERGED;
		count(merged_reads);
	} else {
		range = range_at(r, r->tail++);
	}
	range->end = end;
	range->ready_ns = now;
	range->stack_ns = stack_ns > 0xffffffff ? 0 : stack_ns;
	range->queue_bytes = queue_bytes;
	range->ttl = r->ttl;
	range->flags = flags;
}

/* What is up to `sequence` and was not before is readable from now on. */
static __always_inline void range_ready(struct receiver *r,
					const struct tcp_sock *tp,
					__u32 sequence, __u64 arrive_ns,
					__u16 flags)
{
	__u64 end = receiver_offset(r, sequence);
	__u32 queue_bytes = r->ready_end - receiver_offset(r, tp->copied_seq);

	range_append(r, end, arrive_ns, queue_bytes, flags);
	r->ready_end = end;
	r->ready_sequence = sequence;
}

static __always_inline int stream_ready(struct sock *sk)
{
	struct tcp_sock *tp;
	struct receiver *r;
	__u16 flags;

	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	r = receiver_of(sk);
	if (!r)
		r = receiver_create_late(sk, tp);
	if (!r || (__s32)(tp->rcv_nxt - r->ready_sequence) <= 0)
		return 0;
	flags = r->segment_flags;
	/* what came before this segment became readable unseen */
	if ((__s32)(r->segment_start - r->ready_sequence) > 0)
		flags |= RECORD_MERGED;
	if ((__s32)(r->segment_sequence - r->ready_sequence) > 0 &&
	    (__s32)(tp->rcv_nxt - r->segment_sequence) >= 0)
		range_ready(r, tp, r->segment_sequence, r->segment_arrive_ns,
			    flags);
	/* it filled a hole: what is behind it came earlier */
	if (tp->rcv_nxt != r->ready_sequence)
		range_ready(r, tp, tp->rcv_nxt, 0, RECORD_HOLE_FILLED);
	return 0;
}

static __always_inline int socket_ready(const struct sock *const_sk)
{
	struct sock *sk = (struct sock *)const_sk;

	if (!wants_socket(sk) || sk->__sk_common.skc_state == TCP_LISTEN)
		return 0;
	return sk->sk_protocol == IPPROTO_TCP ? stream_ready(sk) :
						datagram_ready(sk);
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
	struct arrival *slot = arrival_slot();
	struct datagram_socket *s;
	struct datagram d = {};

	if (!wants_socket(sk))
		return 0;
	count(datagrams_dropped_at_socket);
	s = datagram_socket_of(&datagram_receivers, sk);
	if (!s)
		return 0;
	datagram_describe(sk, s, skb, &d);
	if (slot && slot->skb == (__u64)skb) {
		d.first_ns = slot->t_ns;
		slot->skb = 0;
	}
	datagram_emit_received(&d, bpf_ktime_get_ns(),
			       bpf_get_current_pid_tgid() >> 32, 0,
			       RECORD_DROPPED | RECORD_NO_WAKEUP);
	return 0;
}

/* Kernels whose tracepoint does not tell the packet. */
SEC("?tp_btf/udp_fail_queue_rcv_skb")
int BPF_PROG(on_receive_queue_full_count, int error, struct sock *sk)
{
	if (wants_socket(sk))
		count(datagrams_dropped_at_socket);
	return 0;
}
