/*
 * datagram_receive.bpf.h - the receiver's half of a UDP datagram, from its
 * arrival to its read.
 */
#ifndef LATPROF_DATAGRAM_RECEIVE_H
#define LATPROF_DATAGRAM_RECEIVE_H

#include "arrival.bpf.h"
#include "datagram.bpf.h"
#include "wakeup.bpf.h"

/* What `ss` shows as Recv-Q: memory, with the packets' overhead. */
static __always_inline __u32 datagram_backlog(const struct sock *sk,
					      const struct sk_buff *skb)
{
	const struct udp_sock *up = (const struct udp_sock *)sk;
	__s64 bytes = sk->sk_backlog.rmem_alloc.counter;

	bytes -= BPF_CORE_READ(up, forward_deficit);
	bytes -= BPF_CORE_READ(skb, truesize);
	return bytes > 0 ? bytes : 0;
}

/* The number of the datagram that was just queued. Where it is alone in the
 * queue, at most one before it is still being read: otherwise datagrams were
 * queued or taken that we did not see, and the count begins anew. */
static __always_inline __u64 datagram_number(struct datagram_socket *s,
					     const struct sock *sk)
{
	const struct udp_sock *up = (const struct udp_sock *)sk;
	__u32 waiting = sk->sk_receive_queue.qlen +
			BPF_CORE_READ(up, reader_queue.qlen);

	if (!s->tail && waiting > 1)
		s->tail = waiting - 1; /* older than the run */
	if (waiting == 1 && s->tail - s->head > 1)
		s->head = s->tail;
	return __sync_fetch_and_add(&s->tail, 1) + 1ULL;
}

/* Flow, fingerprint and what else the packet itself tells. */
static __always_inline void datagram_describe(struct sock *sk,
					      struct datagram_socket *s,
					      struct sk_buff *skb,
					      struct datagram *ret)
{
	unsigned char *head = BPF_CORE_READ(skb, head);
	struct fragment part = {};

	fragment_of(head + BPF_CORE_READ(skb, network_header), &part);
	ret->size_bytes = fingerprint(
		head + BPF_CORE_READ(skb, transport_header), part.key_id,
		FINGERPRINT_BYTES, &part.tuple, &ret->flow, &ret->key);
	datagram_announce(s, ret->flow, &part.tuple, sk, SIDE_RECEIVER);
	ret->queue_bytes = datagram_backlog(sk, skb);
	ret->ttl = part.ttl;
}

/* The slot holds the packet that is being delivered; it is UDP's own until the
 * read. What was reassembled from fragments carries the last one's address. A
 * packet that was cut (UDP_SEGMENT) is gone: its parts, as what another CPU
 * queued meanwhile, stand behind it in the queue. All are numbered. */
static __always_inline bool is_delivered(const struct sock *sk,
					 const struct arrival *slot)
{
	const struct sk_buff *last = sk->sk_receive_queue.prev;

	/* an empty queue: its reader was faster */
	return slot && slot->skb &&
	       (slot->skb == (__u64)last || !sk->sk_receive_queue.qlen);
}

static __always_inline int datagram_ready(struct sock *sk)
{
	struct arrival *slot = arrival_slot();
	struct datagram_socket *s;
	struct datagram d = {};

	s = datagram_socket_of(&datagram_receivers, sk);
	if (!s)
		return 0;
	d.at.address = (__u64)sk;
	d.at.number = datagram_number(s, sk);
	if (!is_delivered(sk, slot))
		return 0; /* counted when it is read */
	datagram_describe(sk, s, (struct sk_buff *)slot->skb, &d);
	d.first_ns = slot->t_ns;
	d.second_ns = bpf_ktime_get_ns();
	datagram_keep(&d);
	slot->skb = 0;
	return 0;
}

static __always_inline void datagram_emit_received(const struct datagram *d,
						   const struct reader *reader,
						   __u16 flags)
{
	struct received_range *record = RESERVE(received_ranges);
	__u64 now;

	if (!record)
		return;
	now = bpf_ktime_get_ns();
	record->flow = d->flow;
	record->key = d->key;
	record->end = 0;
	record->arrive_ns = d->first_ns;
	record->ready_ns = d->second_ns;
	record->read_ns = now;
	record->size_bytes = d->size_bytes;
	record->wakeup_ns = 0;
	record->queue_bytes = d->queue_bytes;
	record->pid = bpf_get_current_pid_tgid() >> 32;
	record->ttl = d->ttl;
	record->flags = flags;
	if (!wakeup_between(reader, d->second_ns, now, &record->wakeup_ns))
		record->flags |= RECORD_NO_WAKEUP;
	record->pad = 0;
	SUBMIT(record);
}

static __always_inline int datagram_read(struct sock *sk)
{
	struct datagram_key at = { .address = (__u64)sk };
	struct datagram_socket *s;
	struct datagram *d;

	s = bpf_sk_storage_get(&datagram_receivers, sk, 0, 0);
	if (!s)
		return 0;
	at.number = __sync_fetch_and_add(&s->head, 1) + 1ULL;
	d = bpf_map_lookup_elem(&datagrams, &at);
	if (!d) {
		count(unmatched_datagram_reads);
		return 0;
	}
	datagram_emit_received(d, reader_of_current(), 0);
	bpf_map_delete_elem(&datagrams, &at);
	return 0;
}

#endif
