/*
 * datagram_send.bpf.h - the sender's half of a UDP datagram, from its device
 * queue to its driver.
 */
#ifndef LATPROF_DATAGRAM_SEND_H
#define LATPROF_DATAGRAM_SEND_H

#include "datagram_count.bpf.h"
#include "device.bpf.h"
#include "send_call.bpf.h"
#include "translated.bpf.h"
#include "unresolved.bpf.h"

/* The datagram whose last packet this is; its packet names it. */
static __always_inline void datagram_of(struct datagram_socket *s,
					const struct sk_buff *skb, __u64 flow,
					__u64 key, __u64 send_ns, __u32 size,
					__u32 packets, struct datagram *ret)
{
	ret->at.address = (__u64)skb;
	ret->flow = flow;
	ret->key = key;
	ret->number = atomic_add(&s->number, 1) + 1;
	ret->first_ns = send_ns;
	ret->second_ns = bpf_ktime_get_ns();
	ret->size_bytes = size;
	ret->packets = packets;
	ret->pid = s->sender_pid;
	if (histograms)
		datagram_turn_send(s, flow, send_ns ? send_ns : ret->second_ns,
				   &ret->head);
}

/* It waits in the queue of its device. Mostly the one before has left, and the
 * socket has room for one: then no map is touched. A packet may leave on
 * another CPU than the one that queued it. */
static __always_inline void datagram_depart(struct datagram_socket *s,
					    const struct datagram *d)
{
	__u64 *room = &s->departing.at.address;

	/* its own address: of a packet that went a way we do not see */
	if (*room == d->at.address || atomic_replace(room, 0, d->at.address))
		s->departing = *d;
	else
		datagram_keep(d);
}

static __noinline bool fragment_queue(struct datagram_socket *s,
				      const struct sk_buff *skb,
				      const struct fragment *part,
				      struct datagram *ret)
{
	if (!s->fragment_packets || s->fragment_id != part->id) {
		count(fragments_out_of_turn);
		return false;
	}
	s->fragment_packets++;
	if (part->more)
		return false;
	datagram_of(s, skb, s->fragment_flow, s->fragment_key,
		    s->fragment_send_ns, s->fragment_size, s->fragment_packets,
		    ret);
	s->fragment_packets = 0;
	return true;
}

static __noinline void sender_announce(struct datagram_socket *s, __u32 pid,
				       __u64 now,
				       const struct unresolved *waited)
{
	if (waited ? task_announce_named(&waited->sender) :
		     task_announce(pid, now))
		s->sender_pid = pid;
}

static __noinline void datagram_path(struct datagram_socket *s, __u64 flow,
				     const struct net_device *dev)
{
	if (histograms || device_announce(flow, dev, 0)) {
		s->device = dev->ifindex;
		s->lower_announced = 0;
	}
	s->stacked = is_stacked(dev);
}

bool segments_datagrams; /* a watched socket has used UDP_SEGMENT */

/* Before a device without a queue has it: a packet of UDP_SEGMENT may be cut on
 * the way to its driver, and what comes there then is not followed. */
static __always_inline int datagram_before(struct sock *sk,
					   const struct sk_buff *skb)
{
	struct datagram_socket *s;

	if (!sk || sk->sk_protocol != IPPROTO_UDP)
		return 0;
	s = datagram_watch(sk);
	if (!s)
		return 0;
	s->segmented = segment_size(skb);
	if (s->segmented) {
		segments_datagrams = true;
		count(segmented_sends);
	}
	return 0;
}

static __always_inline __u32 linear_after(const struct sk_buff *skb)
{
	/* headers and payload of a plain datagram are one piece; what UDP
	 * segmentation built has its payload in pages */
	if (segment_size(skb)) {
		count(segmented_sends);
		return 0;
	}
	return FINGERPRINT_BYTES;
}

/* A packet that was handed to a device for the first time. Whether it is the
 * last of its datagram, which is `ret` then. `waited`: what its call showed,
 * where it is over; else NULL. */
static __always_inline bool datagram_handed(struct sock *sk,
					    struct datagram_socket *s,
					    const struct sk_buff *skb,
					    const struct unresolved *waited,
					    struct datagram *ret)
{
	unsigned char *transport = skb->head + skb->transport_header;
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u32 size, device = skb->dev->ifindex;
	struct fragment part = {};
	__u64 flow, key, send_ns, netns = netns_cookie(sk);

	/* fragments but the last, of a device below */
	if (s->fragment_packets && s->fragment_device != device && s->stacked)
		return false;
	fragment_of(skb->head + skb->network_header, &part);
	if (!part.first)
		return fragment_queue(s, skb, &part, ret);
	size = fingerprint(transport, part.key_id, linear_after(skb), netns,
			   &part.tuple, &flow, &key, &ret->head);
	if (differs(sk, &part.tuple)) {
		if (is_translated(skb)) {
			tuple_untranslate(sk, &part.tuple);
			flow = flow_number(&part.tuple, netns);
		} else if (part.tuple.source_port !=
			   bpf_htons(sk->__sk_common.skc_num)) {
			/* a tunnel's, whose own datagram was not followed */
			return false;
		}
	}
	if (!udp_sends)
		udp_sends = true;
	if (waited)
		pid = waited->sender.pid;
	if (histograms && waited && !s->grouped && options.by & BY_COMM) {
		count(udp_without_send); /* nor is its process at work here */
		return false;
	}
	if (histograms)
		datagram_group(sk, s, &part.tuple, true);
	if (s->flow_out != flow && (!histograms || is_datagram_sampled(key)))
		datagram_announce(s, &part.tuple, sk, SIDE_SENDER, netns);
	if (s->device != device)
		datagram_path(s, flow, skb->dev);
	send_ns = waited ? waited->send_ns : send_call_start(sk);
	if (waited)
		address_wait_write(flow, waited, bpf_ktime_get_ns(), false);
	if (!send_ns)
		count(udp_without_send);
	if (s->sender_pid != pid)
		sender_announce(s, pid, send_ns ?: bpf_ktime_get_ns(), waited);
	if (!part.more) {
		datagram_of(s, skb, flow, key, send_ns, size, 1, ret);
		return true;
	}
	s->fragment_id = part.id;
	s->fragment_device = device;
	s->fragment_flow = flow;
	s->fragment_key = key;
	s->fragment_size = size;
	s->fragment_send_ns = send_ns;
	s->fragment_packets = 1;
	return false;
}

/* Whether it left a stacked device and has come to one below. */
static __always_inline bool is_below(const struct datagram_socket *s,
				     const struct sk_buff *skb)
{
	return s->left.address == (__u64)skb &&
	       s->device != (__u32)skb->dev->ifindex;
}

static __noinline void datagram_wait_below(const struct datagram_socket *s,
					   const struct sk_buff *skb)
{
	struct datagram d = { .at.address = (__u64)skb };

	d.flow = s->left.flow;
	d.key = s->left.key;
	d.number = s->left.number;
	d.device = skb->dev->ifindex;
	datagram_keep(&d);
}

static __noinline void datagram_left_below(struct datagram_socket *s,
					   const struct net_device *dev)
{
	__u32 device = dev->ifindex;

	if (histograms)
		return;
	if (!(s->lower_announced & device_bit(dev)) &&
	    device_announce(s->left.flow, dev, 1))
		s->lower_announced |= device_bit(dev);
	lower_half(s->left.flow, s->left.key, 0, s->left.number, device);
}

static __noinline int datagram_queue_now(struct sock *sk,
					 const struct sk_buff *skb,
					 const struct unresolved *waited)
{
	struct datagram_socket *s = datagram_watch_sender(sk, skb);
	struct datagram d = {};

	if (!s)
		return 0;
	if (!s->queue_seen)
		s->queue_seen = 1;
	if (options.closing && !waited)
		return 0;
	if (is_below(s, skb))
		datagram_wait_below(s, skb);
	else if (datagram_handed(sk, s, skb, waited, &d))
		datagram_depart(s, &d);
	return 0;
}

static __always_inline int datagram_queue(struct sock *sk,
					  const struct sk_buff *skb)
{
	const struct unresolved *waited = unresolved_datagram(sk, skb);

	datagram_queue_now(sk, skb, waited);
	if (waited)
		unresolved_forget((__u64)skb, waited);
	return 0;
}

APART void datagram_emit_sent(const struct datagram_socket *s,
			      const struct datagram *d, __u64 xmit_ns)
{
	struct sent_message half = {
		.flow = d->flow,
		.key = d->key,
		.end = d->number,
		.send_ns = d->first_ns,
		.queue_ns = d->second_ns,
		.xmit_ns = xmit_behind(d->second_ns, xmit_ns),
		.size_bytes = d->size_bytes,
		.packets = d->packets,
		.pid = d->pid,
		.flags = xmit_ns ? 0 : RECORD_NOT_TRANSMITTED,
		.head = d->head.kind,
		.head_id = d->head.id,
	};

	if (histograms) {
		half.flags |= sent_count(s->group, &half);
		if (is_datagram_sampled(half.key))
			half.flags |= RECORD_SAMPLED;
		if (!(half.flags & (RECORD_SAMPLED | RECORD_SLOW)))
			return;
	}
	sent_half(&half);
}

static __always_inline void datagram_note_left(struct datagram_socket *s,
					       const struct datagram *d)
{
	s->left.flow = d->flow;
	s->left.key = d->key;
	s->left.number = d->number;
	s->left.address = d->at.address;
}

/* Fragments but the last come through here too and find no entry, so a miss
 * looks like an evicted entry: the agent counts receives without a
 * sender's half instead. */
static __noinline void datagram_leave(struct datagram_socket *s,
				      const struct sk_buff *skb, __u64 xmit_ns)
{
	struct datagram_key at = { .address = (__u64)skb };
	struct datagram *d;

	if (s->departing.at.address == at.address) {
		datagram_emit_sent(s, &s->departing, xmit_ns);
		if (s->stacked)
			datagram_note_left(s, &s->departing);
		atomic_exchange(&s->departing.at.address, 0);
		return;
	}
	d = bpf_map_lookup_elem(&datagrams, &at);
	if (!d)
		return;
	if (!d->device)
		datagram_emit_sent(s, d, xmit_ns);
	if (s->stacked)
		datagram_note_left(s, d);
	if (d->device && xmit_ns)
		datagram_left_below(s, skb->dev);
	bpf_map_delete_elem(&datagrams, &at);
}

/* At a device without a queue: its driver has it at once. `queued`: it had one,
 * whose hook may not have been attached yet: then that stamp is missing. */
static __noinline int datagram_pass_now(struct sock *sk,
					const struct sk_buff *skb, bool queued,
					const struct unresolved *waited)
{
	struct datagram_socket *s = datagram_watch_sender(sk, skb);
	struct datagram d = {};
	__u64 xmit_ns;

	if (!s)
		return 0;
	if (queued && !queues_used)
		queues_used = true;
	if (s->segmented || (options.closing && !waited))
		return 0;
	if (is_below(s, skb)) {
		datagram_left_below(s, skb->dev);
	} else if (datagram_handed(sk, s, skb, waited, &d)) {
		xmit_ns = d.second_ns;
		if (queued)
			d.second_ns = 0;
		datagram_emit_sent(s, &d, xmit_ns);
		if (s->stacked)
			datagram_note_left(s, &d);
	}
	return 0;
}

static __always_inline int datagram_pass(struct sock *sk,
					 const struct sk_buff *skb, bool queued)
{
	const struct unresolved *waited = unresolved_datagram(sk, skb);

	datagram_pass_now(sk, skb, queued, waited);
	if (waited)
		unresolved_forget((__u64)skb, waited);
	return 0;
}

static __always_inline int datagram_xmit(struct sock *sk,
					 const struct sk_buff *skb)
{
	struct datagram_socket *s;

	if (!has_queue(skb))
		return datagram_pass(sk, skb, false);
	s = datagram_known(sk);
	if (histograms && (!s || !s->queue_seen))
		return datagram_pass(sk, skb, true);
	/* until its queue's hook is attached nobody else asks */
	if (!s && !queues_used)
		s = datagram_watch_sender(sk, skb);
	if (s && !queues_used)
		queues_used = true;
	if (s)
		datagram_leave(s, skb, bpf_ktime_get_ns());
	return 0;
}

/* IP gives up on a datagram when one of its fragments is dropped at the entry:
 * its last one, which would have named it, never comes. */
static __noinline void fragment_drop(struct datagram_socket *s,
				     const struct sk_buff *skb)
{
	struct fragment part = {};
	struct datagram d = {};

	fragment_of(skb->head + skb->network_header, &part);
	if (part.id != s->fragment_id)
		return;
	d.flow = s->fragment_flow;
	d.key = s->fragment_key;
	d.number = atomic_add(&s->number, 1) + 1;
	d.first_ns = s->fragment_send_ns;
	d.size_bytes = s->fragment_size;
	d.packets = s->fragment_packets;
	d.pid = s->sender_pid;
	s->fragment_packets = 0;
	datagram_emit_sent(s, &d, 0);
}

/* Its link address was not found, or the neighbour's queue was full: no device
 * had it. */
static __noinline int datagram_give_up(struct sock *sk,
				       const struct sk_buff *skb,
				       const struct unresolved *waited)
{
	struct datagram_socket *s = datagram_watch_sender(sk, skb);
	struct datagram d = {};

	if (!s || segment_size(skb) || !datagram_handed(sk, s, skb, waited, &d))
		return 0;
	if (!histograms) /* else it is a drop with its place and reason */
		count(datagrams_without_address);
	d.second_ns = 0;
	datagram_emit_sent(s, &d, 0);
	return 0;
}

static __always_inline int datagram_drop(struct sock *sk,
					 const struct sk_buff *skb)
{
	const struct unresolved *waited = unresolved_datagram(sk, skb);
	struct datagram_socket *s;

	if (waited) {
		datagram_give_up(sk, skb, waited);
		unresolved_forget((__u64)skb, waited);
		return 0;
	}
	s = datagram_known(sk);
	if (!s)
		return 0;
	datagram_leave(s, skb, 0);
	if (s->fragment_packets)
		fragment_drop(s, skb);
	return 0;
}

#endif
