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
 * identification to its last fragment.
 *
 * Only devices of the socket's own namespace count. Where these are stacked (a
 * bridge, a bond, a VLAN, a tunnel), `queue` is that of the first, and each one
 * below writes when the packet left it: the last of them is `xmit`. A device
 * without a queue has one stamp for both.
 *
 * Does not see TCP behind encryption (counted), nor devices of another
 * namespace, nor the first bytes of UDP payload that lie in pages (UDP_SEGMENT,
 * zero copy): such datagrams are distinguished by length alone.
 */
#include "datagram_send.bpf.h"
#include "device.bpf.h"
#include "handed.bpf.h"
#include "held.bpf.h"
#include "stream.bpf.h"
#include "translated.bpf.h"
#include <bpf/bpf_tracing.h>

/* What is shorter is taken for one packet, without a look: the MSS towards a
 * peer that sends none (IPv4, RFC 9293 3.7.1). Of one that sends less, packets
 * are counted too low. */
#define LEAST_GSO_BYTES 536

struct segment {
	__u64 start;
	__u64 end;
	__u32 gso_size;
};

/* What a loop over the FIFO needs. */
struct passing {
	struct sock *sk;
	struct stream *s;
	__u64 packet; /* its address */
	__u64 now;
	__u64 at;
	struct segment segment;
};

static __noinline bool fastopen_begin(struct sock *sk,
				      const struct sk_buff *skb);

/* Whether it may carry the first message of a connection (TCP Fast Open). */
static __always_inline bool is_first_syn(const struct sock *sk,
					 const struct stream *s)
{
	return sk->__sk_common.skc_state == TCP_SYN_SENT && !(s && s->flow_out);
}

/* Below a tunnel, behind NAT in this namespace: no port identifies it, but it
 * has bytes that its socket waits for to be acknowledged. */
static __noinline unsigned char *inner_translated(const struct sk_buff *skb,
						  struct sock *sk,
						  struct tcp_header *ret)
{
	unsigned char *transport = skb->head + skb->inner_transport_header;
	const struct tcp_sock *tp = tcp_of(sk);

	if (!skb->inner_transport_header || !tp)
		return NULL;
	tcp_header_at(transport, ret);
	return bpf_ntohl(ret->sequence) - tp->snd_una <
			       tp->write_seq - tp->snd_una ?
		       transport :
		       NULL;
}

/* The payload range of a TCP packet, whose offset is near a known one; false
 * where it has none, or is not to be found. */
static __always_inline bool segment_of(const struct sk_buff *skb,
				       struct sock *sk, __u64 near, __u32 zero,
				       struct segment *ret)
{
	unsigned char *transport = skb->head + skb->transport_header;
	__u32 ports = ports_of(sk);
	struct tcp_header header;
	__u32 length;

	tcp_header_at(transport, &header);
	/* NAT in this namespace leaves TCP, but not its ports */
	if (!has_ports(&header, ports) &&
	    protocol_at(skb->head + skb->network_header) != IPPROTO_TCP) {
		transport =
			inner_tcp(skb->head, transport,
				  skb->inner_transport_header, ports, &header);
		if (!transport)
			transport = inner_translated(skb, sk, &header);
		if (!transport) {
			/* of a socket that was reset: it has no port any more
			 */
			if (sk->__sk_common.skc_num)
				count(unreadable_headers);
			return false;
		}
	}
	length = skb->len - (__u32)(transport - skb->data) -
		 (header.offset >> 4) * 4;
	if (!length)
		return false;
	/* a SYN takes a sequence number, before the first byte */
	ret->start = offset_near(
		near, zero,
		bpf_ntohl(header.sequence) +
			(sk->__sk_common.skc_state == TCP_SYN_SENT));
	ret->end = ret->start + length;
	return true;
}

static long entry_requeue(__u32 index, struct passing *p)
{
	struct pending_send *m;

	if (p->at == p->s->queued)
		return 1;
	m = send_at(p->sk, p->s, p->at++, false);
	if (!m || m->end > p->segment.end)
		return 1;
	if (m->end > p->segment.start)
		m->queue_ns = p->now;
	return 0;
}

/* TCP keeps what the qdisc refused and hands it over again: the last time
 * counts for what has not left. What may still be in the qdisc is not sent
 * again. */
static __noinline void segment_requeue(struct passing *p)
{
	p->at = p->s->head;
	bpf_loop(DEEP_SENDS, entry_requeue, p, 0);
}

/* Returns 1 where the segment holds the end of no further entry. */
static __always_inline long entry_queue(__u32 index, struct passing *p)
{
	struct stream *s = p->s;
	struct pending_send *m;

	if (s->queued == s->tail)
		return 1;
	m = send_at(p->sk, s, s->queued, false);
	if (!m || m->end > p->segment.end)
		return 1;
	/* behind it already: its own packet went by unseen */
	m->queue_ns = m->end > p->segment.start ? p->now : 0;
	s->queued++;
	return 0;
}

static long entries_queue(__u32 index, struct passing *p)
{
	return entry_queue(index, p);
}

static __always_inline void segment_queue(struct passing *p)
{
	struct stream *s = p->s;

	if (p->now)
		held_at_queue(p->sk, s, p->packet, p->segment.end, p->now);
	if (p->segment.start < s->queue_end)
		segment_requeue(p);
	if (p->segment.end > s->queue_end) {
		s->queue_end = p->segment.end;
		s->queue_ns = p->now;
	}
	if (!entry_queue(0, p) && s->queued != s->tail)
		bpf_loop(DEEP_SENDS, entries_queue, p, 0);
}

/* How many packets of a segment carry bytes of [start, end). */
static __always_inline __u32 packets_between(const struct segment *segment,
					     __u64 start, __u64 end)
{
	__u32 size = segment->gso_size;
	__u64 first, last;

	if (!size)
		return 1;
	first = start > segment->start ? start - segment->start : 0;
	last = end < segment->end ? end - segment->start :
				    segment->end - segment->start;
	return (last - 1) / size - first / size + 1;
}

/* Returns 1 where nothing more leaves with the segment. */
static __always_inline long entry_leave(__u32 index, struct passing *p)
{
	const struct segment *segment = &p->segment;
	struct stream *s = p->s;
	__u64 at = s->head, start;
	struct pending_send *m;
	bool whole;

	if (at == s->tail)
		return 1;
	m = send_at(p->sk, s, at, false);
	if (!m)
		return 1;
	start = m->end - m->size_bytes;
	if (start >= segment->end)
		return 1;
	whole = m->end <= segment->end;
	if (m->end > segment->start)
		m->packets += packets_between(segment, start, m->end);
	if (!whole || at >= s->queued)
		return 1;
	if (!send_claim(s, at))
		return 1;
	/* else: its own packet was dropped in the qdisc, or unseen */
	if (m->end > segment->start)
		send_emit(p->sk, s, m, at, p->now, 0);
	else
		send_emit(p->sk, s, m, at, 0, RECORD_NOT_TRANSMITTED);
	chunk_leave(p->sk, s, at, SIDE_SENDER);
	return 0;
}

static long entries_leave(__u32 index, struct passing *p)
{
	return entry_leave(index, p);
}

static __noinline void path_announce(struct stream *s,
				     const struct net_device *dev)
{
	if (!device_announce(s->flow_out, dev, 0))
		return;
	s->device = dev->ifindex;
	s->lower_announced = 0;
}

/* The segment left its first device before: this is one below, or it is sent
 * again, which is counted elsewhere. */
static __noinline int segment_lower(struct stream *s, struct passing *p,
				    const struct net_device *dev)
{
	__u32 ifindex = dev->ifindex;

	if (ifindex == s->device)
		return 0;
	if (histograms) {
		s->last_device = ifindex;
		return 0;
	}
	if (!(s->lower_announced & device_bit(dev)) &&
	    device_announce(s->flow_out, dev, 1))
		s->lower_announced |= device_bit(dev);
	lower_half(s->flow_out, 0, p->segment.start, p->segment.end, ifindex);
	return 0;
}

#define LEAVING_NS 1000000000ULL

/* Whether the segment goes on to a device below, as others did before it: it is
 * counted when it leaves the last one. Where nothing came there for long, the
 * way has changed. */
static __noinline bool goes_on(struct sock *sk, struct stream *s, __u64 now)
{
	const struct pending_send *oldest = send_at(sk, s, s->head, false);

	if (s->head != s->queued && oldest && oldest->queue_ns &&
	    now - oldest->queue_ns > LEAVING_NS)
		s->last_device = s->device = 0;
	return s->last_device;
}

static __always_inline int segment_xmit(struct passing *p,
					const struct net_device *dev)
{
	struct stream *s = p->s;

	if (p->segment.end <= s->xmit_end)
		return segment_lower(s, p, dev);
	if (histograms && s->last_device &&
	    s->last_device != (__u32)dev->ifindex && goes_on(p->sk, s, p->now))
		return 0;
	/* in this order: send_cut() may look from another CPU */
	*(volatile __u64 *)&s->xmit_ns = p->now;
	*(volatile __u64 *)&s->xmit_end = p->segment.end;
	if (histograms)
		s->device = s->device ? s->device : (__u32)dev->ifindex;
	else if (s->device != (__u32)dev->ifindex)
		path_announce(s, dev);
	if (!entry_leave(0, p) && s->head != s->tail)
		bpf_loop(DEEP_SENDS, entries_leave, p, 0);
	if (histograms && s->exchange.due)
		server_turn_write(p->sk, s, p->now);
	return 0;
}

/* The socket behind a packet that a device of its own namespace has. A packet
 * keeps its socket across veth, so devices of other namespaces see it, too:
 * there it is on its way already. */
static __always_inline struct sock *own_socket(const struct sk_buff *skb)
{
	struct sock *sk = skb->sk;

	if (!sk || !is_full_socket(sk) ||
	    skb->dev->nd_net.net != sk->__sk_common.skc_net.net)
		return NULL;
	return sk;
}

/* A call of its own: older kernels have no room on the stack for this beside
 * what a datagram takes. */
static __noinline int stream_queue(struct sock *sk, struct sk_buff *skb)
{
	struct passing p = {
		.sk = sk,
		.s = stream_known(sk),
		.packet = (__u64)skb,
	};

	if (is_first_syn(sk, p.s) && fastopen_begin(sk, skb))
		p.s = stream_known(sk);
	if (!p.s || !p.s->flow_out ||
	    !segment_of(skb, sk, p.s->queue_end, p.s->out_zero, &p.segment))
		return 0;
	p.now = bpf_ktime_get_ns();
	segment_queue(&p);
	return 0;
}

static __always_inline int packet_handed(struct sk_buff *skb, bool recorded)
{
	struct sock *sk;

	if (!has_queue(skb))
		return segments_datagrams ||
				       (options.udp && segment_size(skb)) ?
			       datagram_before(own_socket(skb), skb) :
			       0;
	if (recorded)
		handed_note(skb);
	sk = own_socket(skb);
	if (!sk)
		return 0;
	return sk->sk_protocol == IPPROTO_TCP ? stream_queue(sk, skb) :
						datagram_queue(sk, skb);
}

SEC("?tp_btf/net_dev_queue")
int BPF_PROG(on_queue, struct sk_buff *skb)
{
	return packet_handed(skb, false);
}

/* The same, and for the flight recorder. */
SEC("?tp_btf/net_dev_queue")
int BPF_PROG(on_flight_handed, struct sk_buff *skb)
{
	return packet_handed(skb, true);
}

/* A device without a queue has it at once. Where there is one, its hook may not
 * have been attached yet: then the stamp is missing. */
static __always_inline void segment_queue_unseen(struct passing *p, bool queued)
{
	__u64 now = p->now;

	if (queued && !queues_used)
		queues_used = true;
	if (queued && !histograms)
		return;
	if (queued)
		p->now = 0;
	segment_queue(p);
	p->now = now;
}

/* A call of its own: the stack has no room for this beside that of datagrams.
 */
static __noinline int stream_xmit(struct sock *sk, const struct sk_buff *skb)
{
	struct passing p = {
		.sk = sk,
		.s = stream_known(sk),
		.packet = (__u64)skb,
	};

	if (!p.s || !p.s->flow_out ||
	    !segment_of(skb, sk, p.s->xmit_end, p.s->out_zero, &p.segment))
		return 0;
	if (p.segment.end - p.segment.start >= LEAST_GSO_BYTES)
		p.segment.gso_size = segment_size(skb);
	p.now = bpf_ktime_get_ns();
	if (p.segment.end > p.s->queue_end)
		segment_queue_unseen(&p, has_queue(skb));
	else
		held_at_xmit(sk, p.s);
	return segment_xmit(&p, skb->dev);
}

SEC("?tp_btf/net_dev_start_xmit")
int BPF_PROG(on_xmit, const struct sk_buff *skb)
{
	struct sock *sk = own_socket(skb);

	if (!sk)
		return 0;
	if (sk->sk_protocol != IPPROTO_TCP)
		return datagram_xmit(sk, skb);
	if (sk->__sk_common.skc_state == TCP_SYN_SENT &&
	    is_first_syn(sk, stream_known(sk)))
		fastopen_begin(sk, skb);
	return stream_xmit(sk, skb);
}

SEC("?tp_btf/kfree_skb")
int BPF_PROG(on_drop, const struct sk_buff *skb)
{
	struct sock *sk = own_socket(skb);

	return sk && sk->sk_protocol == IPPROTO_UDP ? datagram_drop(sk, skb) :
						      0;
}
