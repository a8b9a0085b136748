/*
 * qdisc.bpf.c - when the last byte of a message was handed to the device
 * queue, and when it left the queue for the driver.
 *
 *   net_dev_queue:       TCP: `queue` of the ranges that end in the segment
 *                        UDP: one entry per datagram, keyed by its packet
 *   net_dev_start_xmit:  `xmit`; the sender's half is complete and written
 *   kfree_skb:           a datagram was dropped between the two: written, too
 *
 * A queueing discipline may cut a packet (TBF with GSO), so TCP is matched by
 * the sequence numbers in its header, never by the packet's address. A datagram
 * is not cut after it was queued; one that IP fragments is followed by its
 * identification to its last fragment. Only devices of the socket's own
 * namespace count, and where these are stacked the first. Does not see the
 * first bytes of UDP payload that lie in pages (UDP_SEGMENT, zero copy): such
 * datagrams are told apart by length alone.
 */
#include "datagram_send.bpf.h"
#include "header.bpf.h"
#include <bpf/bpf_tracing.h>

/* What is shorter is taken for one packet, without a look: the MSS towards a
 * peer that tells none (IPv4, RFC 9293 3.7.1). Of one that tells less, packets
 * are counted too low. */
#define LEAST_GSO_BYTES 536

struct segment {
	__u64 start;
	__u64 end;
	__u64 gso_size;
};

/* The payload range of a TCP packet; false where it has none. */
static __always_inline bool segment_of(const struct sk_buff *skb,
				       const struct sender *s,
				       struct segment *ret)
{
	unsigned char *transport = skb->head + skb->transport_header;
	struct tcp_header header;
	__u32 length;

	tcp_header_at(transport, &header);
	length = skb->len - (__u32)(transport - skb->data) -
		 (header.offset >> 4) * 4;
	if (!length)
		return false;
	ret->start = sender_offset(s, bpf_ntohl(header.sequence));
	ret->end = ret->start + length;
	return true;
}

/* TCP keeps what the qdisc refused and hands it over again: the last time
 * counts for what has not left. What may still be in the qdisc is not sent
 * again. */
static __always_inline void
segment_requeue(struct sender *s, const struct segment *segment, __u64 now)
{
	__u32 at = s->head;

	for (int i = 0; i < SENDS && at != s->queued; i++, at++) {
		struct pending_send *m = send_at(s, at);

		if (m->end > segment->end)
			break;
		if (m->end > segment->start)
			m->queue_ns = now;
	}
}

static __always_inline void
segment_queue(struct sender *s, const struct segment *segment, __u64 now)
{
	if (segment->start < s->queue_end)
		segment_requeue(s, segment, now);
	if (segment->end > s->queue_end) {
		s->queue_end = segment->end;
		s->queue_ns = now;
	}
	for (int i = 0; i < SENDS && s->queued != s->tail; i++) {
		struct pending_send *m = send_at(s, s->queued);

		if (m->end > segment->end)
			break;
		/* behind it already: its own packet went by unseen */
		m->queue_ns = m->end > segment->start ? now : 0;
		s->queued++;
	}
}

/* How many packets of a segment carry bytes of [start, end). */
static __always_inline __u32 packets_between(const struct segment *segment,
					     __u64 start, __u64 end)
{
	__u64 size = segment->gso_size, first, last;

	if (!size)
		return 1;
	first = start > segment->start ? start - segment->start : 0;
	last = end < segment->end ? end - segment->start :
				    segment->end - segment->start;
	return (last - 1) / size - first / size + 1;
}

static __always_inline void
segment_xmit(struct sender *s, const struct segment *segment, __u64 now)
{
	if (segment->end <= s->xmit_end)
		return; /* sent again: counted as a retransmission */
	s->xmit_end = segment->end;
	s->xmit_ns = now;
	for (int i = 0; i < SENDS && s->head != s->queued; i++) {
		struct pending_send *m = send_at(s, s->head);
		__u64 start = m->end - m->size_bytes;

		if (start >= segment->end)
			return;
		if (m->end <= segment->start) {
			/* its own packet was dropped in the qdisc, or unseen */
			send_emit(s, m, 0, RECORD_NOT_TRANSMITTED);
			s->head++;
			continue;
		}
		m->packets += packets_between(segment, start, m->end);
		if (m->end > segment->end)
			return;
		send_emit(s, m, now, 0);
		s->head++;
	}
	if (s->head == s->queued && s->head != s->tail) {
		struct pending_send *m = send_at(s, s->head);
		__u64 start = m->end - m->size_bytes;

		if (start < segment->end && m->end > segment->end)
			m->packets += packets_between(segment, start, m->end);
	}
}

/* A packet keeps its socket across veth, so devices of other namespaces see it,
 * too: there it is on its way already. */
static __always_inline struct sock *watched_socket(const struct sk_buff *skb)
{
	struct sock *sk = skb->sk;

	if (!sk || !is_full_socket(sk) ||
	    skb->dev->nd_net.net != sk->__sk_common.skc_net.net)
		return NULL;
	return wants_socket(sk) ? sk : NULL;
}

SEC("?tp_btf/net_dev_queue")
int BPF_PROG(on_queue, struct sk_buff *skb)
{
	struct sock *sk = watched_socket(skb);
	struct segment segment;
	struct sender *s;

	if (!sk)
		return 0;
	if (sk->sk_protocol == IPPROTO_UDP)
		return datagram_queue(sk, skb);
	s = sender_of(sk);
	if (s && segment_of(skb, s, &segment))
		segment_queue(s, &segment, bpf_ktime_get_ns());
	return 0;
}

SEC("?tp_btf/net_dev_start_xmit")
int BPF_PROG(on_xmit, const struct sk_buff *skb)
{
	struct sock *sk = watched_socket(skb);
	struct skb_shared_info *info;
	struct segment segment;
	struct sender *s;

	if (!sk)
		return 0;
	if (sk->sk_protocol == IPPROTO_UDP)
		return datagram_xmit(sk, skb);
	s = sender_of(sk);
	if (!s || !segment_of(skb, s, &segment))
		return 0;
	segment.gso_size = 0;
	if (segment.end - segment.start >= LEAST_GSO_BYTES) {
		info = (struct skb_shared_info *)(skb->head + skb->end);
		segment.gso_size = BPF_CORE_READ(info, gso_size);
	}
	segment_xmit(s, &segment, bpf_ktime_get_ns());
	return 0;
}

SEC("?tp_btf/kfree_skb")
int BPF_PROG(on_drop, const struct sk_buff *skb)
{
	struct sock *sk = watched_socket(skb);

	return sk && sk->sk_protocol == IPPROTO_UDP ? datagram_drop(sk, skb) :
						      0;
}
