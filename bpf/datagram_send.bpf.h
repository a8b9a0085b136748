/*
 * datagram_send.bpf.h - the sender's half of a UDP datagram, from its device
 * queue to its driver.
 */
#ifndef LATPROF_DATAGRAM_SEND_H
#define LATPROF_DATAGRAM_SEND_H

#include "datagram.bpf.h"
#include "send_call.bpf.h"

/* Enters the datagram whose last packet this is; its packet names it. Mostly
 * the one before has left, and the socket has room for one: then no map is
 * touched. A packet may leave on another CPU than the one that queued it. */
static __always_inline void
datagram_depart(struct datagram_socket *s, const struct sk_buff *skb,
		__u64 flow, __u64 key, __u64 send_ns, __u32 size, __u32 packets)
{
	struct datagram d = { .at.address = (__u64)skb };
	__u64 *room = &s->departing.at.address;

	d.flow = flow;
	d.key = key;
	d.number = __sync_fetch_and_add(&s->number, 1) + 1;
	d.first_ns = send_ns;
	d.second_ns = bpf_ktime_get_ns();
	d.size_bytes = size;
	d.packets = packets;
	d.pid = s->pid;
	/* its own address: of a packet that went a way we do not see */
	if (*room == d.at.address ||
	    !__sync_val_compare_and_swap(room, 0, d.at.address))
		s->departing = d;
	else
		datagram_keep(&d);
}

static __always_inline int fragment_queue(struct datagram_socket *s,
					  const struct sk_buff *skb,
					  const struct fragment *part)
{
	if (!s->fragment_packets || s->fragment_id != part->id) {
		count(fragments_out_of_turn);
		return 0;
	}
	s->fragment_packets++;
	if (part->more)
		return 0;
	datagram_depart(s, skb, s->fragment_flow, s->fragment_key,
			s->fragment_send_ns, s->fragment_size,
			s->fragment_packets);
	s->fragment_packets = 0;
	return 0;
}

static __always_inline void sender_task(struct datagram_socket *s)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	if (s->pid != pid && task_announce(pid))
		s->pid = pid;
}

static __always_inline __u32 linear_after(const struct sk_buff *skb,
					  unsigned char *transport)
{
	struct skb_shared_info *info = (void *)(skb->head + skb->end);

	/* headers and payload of a plain datagram are one piece; what UDP
	 * segmentation built has its payload in pages */
	if (BPF_CORE_READ(info, gso_size)) {
		count(segmented_sends);
		return 0;
	}
	return FINGERPRINT_BYTES;
}

static __always_inline int datagram_queue(struct sock *sk,
					  const struct sk_buff *skb)
{
	unsigned char *transport = skb->head + skb->transport_header;
	struct datagram_socket *s = datagram_socket_of(&datagram_senders, sk);
	struct fragment part = {};
	__u64 flow, key, send_ns;
	__u32 size;

	if (!s)
		return 0;
	fragment_of(skb->head + skb->network_header, &part);
	if (!part.first)
		return fragment_queue(s, skb, &part);
	size = fingerprint(transport, part.key_id, linear_after(skb, transport),
			   &part.tuple, &flow, &key);
	sender_task(s);
	datagram_announce(s, flow, &part.tuple, sk, SIDE_SENDER);
	send_ns = send_call_start(sk);
	if (!send_ns)
		count(udp_without_send);
	if (!part.more) {
		datagram_depart(s, skb, flow, key, send_ns, size, 1);
		return 0;
	}
	s->fragment_id = part.id;
	s->fragment_flow = flow;
	s->fragment_key = key;
	s->fragment_size = size;
	s->fragment_send_ns = send_ns;
	s->fragment_packets = 1;
	return 0;
}

static __always_inline void datagram_emit_sent(const struct datagram *d,
					       __u64 xmit_ns)
{
	struct sent_message *record = RESERVE(sent_messages);

	if (!record)
		return;
	record->flow = d->flow;
	record->key = d->key;
	record->end = d->number;
	record->send_ns = d->first_ns;
	record->queue_ns = d->second_ns;
	record->xmit_ns = xmit_ns;
	record->size_bytes = d->size_bytes;
	record->packets = d->packets;
	record->pid = d->pid;
	record->merged = 0;
	record->flags = xmit_ns ? 0 : RECORD_NOT_TRANSMITTED;
	SUBMIT(record);
}

/* Fragments but the last come through here too and find no entry, so a miss
 * cannot be told from an evicted entry: the agent counts receives without a
 * sender's half instead. */
static __always_inline void datagram_leave(struct datagram_socket *s,
					   const struct sk_buff *skb,
					   __u64 xmit_ns)
{
	struct datagram_key at = { .address = (__u64)skb };
	struct datagram *d;

	if (s->departing.at.address == at.address) {
		datagram_emit_sent(&s->departing, xmit_ns);
		__sync_lock_test_and_set(&s->departing.at.address, 0);
		return;
	}
	d = bpf_map_lookup_elem(&datagrams, &at);
	if (!d)
		return;
	datagram_emit_sent(d, xmit_ns);
	bpf_map_delete_elem(&datagrams, &at);
}

static __always_inline int datagram_xmit(struct sock *sk,
					 const struct sk_buff *skb)
{
	struct datagram_socket *s =
		bpf_sk_storage_get(&datagram_senders, sk, 0, 0);

	if (s)
		datagram_leave(s, skb, bpf_ktime_get_ns());
	return 0;
}

/* IP gives up on a datagram when one of its fragments is dropped at the entry:
 * its last one, which would have named it, never comes. */
static __always_inline void fragment_drop(struct datagram_socket *s,
					  const struct sk_buff *skb)
{
	struct fragment part = {};
	struct datagram d = {};

	if (!s->fragment_packets)
		return;
	fragment_of(skb->head + skb->network_header, &part);
	if (part.id != s->fragment_id)
		return;
	d.flow = s->fragment_flow;
	d.key = s->fragment_key;
	d.number = __sync_fetch_and_add(&s->number, 1) + 1;
	d.first_ns = s->fragment_send_ns;
	d.size_bytes = s->fragment_size;
	d.packets = s->fragment_packets;
	d.pid = s->pid;
	s->fragment_packets = 0;
	datagram_emit_sent(&d, 0);
}

static __always_inline int datagram_drop(struct sock *sk,
					 const struct sk_buff *skb)
{
	struct datagram_socket *s =
		bpf_sk_storage_get(&datagram_senders, sk, 0, 0);

	if (s) {
		datagram_leave(s, skb, 0);
		fragment_drop(s, skb);
	}
	return 0;
}

#endif
