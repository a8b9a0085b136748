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

/* How many are queued. A reader moves all from one queue to the other: this
 * order of looking may count some twice, but misses none. */
static __always_inline __u32 datagrams_waiting(const struct sock *sk)
{
	const struct udp_sock *up = (const struct udp_sock *)sk;
	__u32 arrived = *(volatile const __u32 *)&sk->sk_receive_queue.qlen;

	barrier();
	return arrived + BPF_CORE_READ(up, reader_queue.qlen);
}

/* Is this packet the last in the queue that packets come to? */
static __always_inline bool is_last(const struct sock *sk, __u64 skb)
{
	return skb == (__u64)sk->sk_receive_queue.prev;
}

/* The number of the datagram that was just queued. While it still waits, no
 * more were read than were queued before it: otherwise some came that we did
 * not see, and the count goes on behind those that were read. */
static __always_inline __u32 datagram_number(struct datagram_socket *s,
					     const struct sock *sk, __u64 skb)
{
	__u32 head = *(volatile __u32 *)&s->head;
	__u32 waiting;

	barrier();
	waiting = datagrams_waiting(sk);
	if (!s->tail && waiting > 1)
		s->tail = waiting - 1; /* older than the run */
	if ((__s32)(head - s->tail) > 0 && is_last(sk, skb))
		s->tail = head + waiting - 1;
	return __sync_fetch_and_add(&s->tail, 1) + 1U;
}

/* The number of the datagram that was just read. All that were queued and do
 * not wait were read: otherwise some were taken that we did not see. */
static __always_inline __u32 datagram_read_number(struct datagram_socket *s,
						  const struct sock *sk)
{
	__u32 read = *(volatile __u32 *)&s->tail;
	__u32 number;

	barrier();
	read -= datagrams_waiting(sk);
	number = __sync_fetch_and_add(&s->head, 1) + 1U;
	if ((__s32)(read - number) > 0)
		number = s->head = read;
	return number;
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
	/* an empty queue: its reader was faster */
	return slot && slot->skb &&
	       (is_last(sk, slot->skb) || !sk->sk_receive_queue.qlen);
}

static __always_inline void datagram_emit_received(const struct datagram *d,
						   __u64 read_ns, __u32 pid,
						   __u32 wakeup_ns, __u16 flags)
{
	struct received_range *record = RESERVE(received_ranges);

	if (!record)
		return;
	record->flow = d->flow;
	record->key = d->key;
	record->end = 0;
	record->arrive_ns = d->first_ns;
	record->ready_ns = d->second_ns;
	record->read_ns = read_ns;
	record->size_bytes = d->size_bytes;
	record->wakeup_ns = wakeup_ns;
	record->queue_bytes = d->queue_bytes;
	record->pid = pid;
	record->ttl = d->ttl;
	record->flags = flags;
	record->pad = 0;
	SUBMIT(record);
}

/* There is an entry of this number. A reader on another CPU may take a datagram
 * before the hook of its readiness has run. What else is there is of a socket
 * that had this address before. */
static __always_inline void datagram_meet(struct datagram *d)
{
	struct datagram *read = bpf_map_lookup_elem(&datagrams, &d->at);

	if (!read || !(read->flags & DATAGRAM_READ) ||
	    read->second_ns < d->first_ns) {
		datagram_keep(d);
		return;
	}
	d->second_ns = read->second_ns;
	datagram_emit_received(d, read->second_ns, read->pid, 0,
			       read->flags & ~DATAGRAM_READ);
	__sync_fetch_and_add(&counters.unmatched_datagram_reads, -1);
	bpf_map_delete_elem(&datagrams, &d->at);
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
	d.at.number = datagram_number(s, sk, slot ? slot->skb : 0);
	if (!is_delivered(sk, slot))
		return 0; /* counted when it is read */
	datagram_describe(sk, s, (struct sk_buff *)slot->skb, &d);
	d.first_ns = slot->t_ns;
	d.second_ns = bpf_ktime_get_ns();
	slot->skb = 0;
	if (!datagram_enter(&d))
		datagram_meet(&d);
	return 0;
}

static __always_inline void datagram_was_read(struct datagram *d,
					      const struct reader *reader,
					      __u64 now, __u32 pid)
{
	__u32 wakeup_ns = 0;
	__u16 flags = 0;

	if (d->second_ns > now)
		d->second_ns = now; /* it was ready then at the latest */
	if (!wakeup_between(reader, d->second_ns, now, &wakeup_ns))
		flags = RECORD_NO_WAKEUP;
	datagram_emit_received(d, now, pid, wakeup_ns, flags);
	bpf_map_delete_elem(&datagrams, &d->at);
}

static __always_inline int datagram_read(struct sock *sk)
{
	struct datagram note = { .at.address = (__u64)sk };
	const struct reader *reader;
	struct datagram_socket *s;
	struct datagram *d;

	s = bpf_sk_storage_get(&datagram_receivers, sk, 0, 0);
	if (!s)
		return 0;
	note.second_ns = bpf_ktime_get_ns();
	note.pid = bpf_get_current_pid_tgid() >> 32;
	note.at.number = datagram_read_number(s, sk);
	reader = reader_of_current();
	d = bpf_map_lookup_elem(&datagrams, &note.at);
	if (d && !(d->flags & DATAGRAM_READ)) {
		datagram_was_read(d, reader, note.second_ns, note.pid);
		return 0;
	}
	note.flags = DATAGRAM_READ | (reader ? 0 : RECORD_NO_WAKEUP);
	count(unmatched_datagram_reads); /* until it is told to be ready */
	if (datagram_enter(&note))
		return 0;
	d = bpf_map_lookup_elem(&datagrams, &note.at);
	if (d && !(d->flags & DATAGRAM_READ)) {
		__sync_fetch_and_add(&counters.unmatched_datagram_reads, -1);
		datagram_was_read(d, reader, note.second_ns, note.pid);
	}
	return 0;
}

#endif
