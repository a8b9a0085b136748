/*
 * datagram_receive.bpf.h - the receiver's half of a UDP datagram, from its
 * arrival to its read.
 */
#ifndef LATPROF_DATAGRAM_RECEIVE_H
#define LATPROF_DATAGRAM_RECEIVE_H

#include "arrival.bpf.h"
#include "datagram_count.bpf.h"

/* From the arrival of a packet to its socket takes less; else it was of an
 * older packet at this address. */
#define TAKEN_NS 100000000

/* What stands around a datagram's payload, with options and trailers, is less.
 */
#define AROUND_BYTES 256

static __always_inline __u64 network_of(const struct sk_buff *skb)
{
	return (__u64)SEE(struct sk_buff, skb, head) +
	       SEE(struct sk_buff, skb, network_header);
}

/* The same where it entered in another namespace. */
static __always_inline bool is_there(const struct arrival *a, __u64 network)
{
	return a->data == network || is_still(a, network);
}

/* What was noted of this packet, NULL nothing. Parts of one that was cut on the
 * way to its socket (UDP_SEGMENT) never entered: what is noted at their address
 * is of an older packet, such as the whole. What was reassembled from fragments
 * carries the address of the last one, or the first: it has grown. */
static __always_inline struct arrival *datagram_noted(const struct sk_buff *skb,
						      const struct sock *sk)
{
	struct arrival *a = arrival_at(skb);

	if (!a || a->length > SEE(struct sk_buff, skb, len) + AROUND_BYTES)
		return NULL;
	/* in a queue at the entry it may have been for long */
	if (a->flags & RECORD_ENTRY_QUEUED)
		return is_there(a, network_of(skb)) ? a : NULL;
	if (bpf_ktime_get_ns() - a->t_ns >= TAKEN_NS)
		return NULL;
	return is_own(a, sk) || is_there(a, network_of(skb)) ? a : NULL;
}

/* When a datagram entered, and the namespace that it was sent in; 0 not known.
 * The hooks of two that were queued at once may look at the same one, on two
 * CPUs: whoever takes its address has it. */
static __always_inline __u64 datagram_arrival(const struct sk_buff *skb,
					      const struct sock *sk,
					      __u64 *sender_netns, __u16 *flags)
{
	struct arrival *a = datagram_noted(skb, sk);
	__u64 t_ns;

	*sender_netns = 0;
	if (!a)
		return 0;
	t_ns = a->t_ns;
	*sender_netns = a->sender_netns;
	*flags |= a->flags;
	return atomic_replace(&a->skb, (__u64)skb, 0) ? t_ns : 0;
}

/* What `ss` shows as Recv-Q: memory, with the packets' overhead. */
static __always_inline __u32 datagram_backlog(const struct sock *sk,
					      const struct sk_buff *skb)
{
	const struct udp_sock *up = (const struct udp_sock *)sk;
	__s64 bytes = sk->sk_backlog.rmem_alloc.counter;

	bytes -= SEE(struct udp_sock, up, forward_deficit);
	bytes -= SEE(struct sk_buff, skb, truesize);
	return bytes > 0 ? bytes : 0;
}

/* How many are queued. A reader moves all from one queue to the other: this
 * order of looking may count some twice, but misses none. */
static __always_inline __u32 datagrams_waiting(const struct sock *sk)
{
	const struct udp_sock *up = (const struct udp_sock *)sk;
	__u32 arrived = *(volatile const __u32 *)&sk->sk_receive_queue.qlen;

	barrier();
	return arrived + SEE(struct udp_sock, up, reader_queue.qlen);
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
	return atomic_add(&s->tail, 1) + 1U;
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
	number = atomic_add(&s->head, 1) + 1U;
	if ((__s32)(read - number) > 0)
		number = s->head = read;
	return number;
}

/* A call that read nothing is woken by shutdown() and returns 0, as one that
 * read an empty datagram: all that was queued was read before. */
static __always_inline bool datagram_none(const struct sock *sk)
{
	const struct datagram_socket *s;

	if (!(sk->sk_shutdown & RCV_SHUTDOWN))
		return false;
	s = datagram_watch_reader((struct sock *)sk);
	return s && (__s32)(s->tail - datagrams_waiting(sk) - s->head) <= 0;
}

/* Flow, fingerprint and what else the packet itself has. */
static __noinline void datagram_describe(struct sock *sk,
					 struct datagram_socket *s,
					 const struct sk_buff *skb,
					 __u64 sender_netns,
					 struct datagram *ret)
{
	unsigned char *head = SEE(struct sk_buff, skb, head);
	struct fragment part = {};

	fragment_of(head + SEE(struct sk_buff, skb, network_header), &part);
	ret->size_bytes =
		fingerprint(head + SEE(struct sk_buff, skb, transport_header),
			    part.key_id, FINGERPRINT_BYTES, sender_netns,
			    &part.tuple, &ret->flow, &ret->key, &ret->head);
	if (s->flow_in != ret->flow &&
	    (!histograms || is_datagram_sampled(ret->key)))
		datagram_announce(s, &part.tuple, sk, SIDE_RECEIVER,
				  sender_netns);
	if (histograms) {
		tuple_reverse(&part.tuple);
		ret->number = flow_number(&part.tuple, netns_cookie(sk));
		if (!(options.by & BY_COMM))
			datagram_group(sk, s, &part.tuple, false);
	}
	ret->queue_bytes = datagram_backlog(sk, skb);
	ret->ttl = part.ttl;
}

static __always_inline void
datagram_emit_received(const struct datagram_socket *s,
		       const struct datagram *d, __u64 read_ns, __u32 pid,
		       __u32 wakeup_ns, __u16 flags)
{
	struct received_range half = {
		.flow = d->flow,
		.key = d->key,
		.start = d->head.kind | (__u32)d->head.id << 16,
		.arrive_ns = d->first_ns,
		.ready_ns = d->second_ns,
		.read_ns = read_ns,
		.size_bytes = d->size_bytes,
		.wakeup_ns = wakeup_ns,
		.queue_bytes = d->queue_bytes,
		.pid = pid,
		.ttl = d->ttl,
		.flags = flags | (d->flags & RECORD_ENTRY_QUEUED),
		.thread = s->reader.thread,
	};

	if (histograms) {
		if (flags & (RECORD_DROPPED | RECORD_UNREAD))
			return;
		half.flags |= received_count(s->group, RECEIVE_STACK, 1, &half);
		datagram_turn_read(s, d->number, read_ns, d->second_ns,
				   &d->head);
		if (is_datagram_sampled(half.key))
			half.flags |= RECORD_SAMPLED;
		if (!(half.flags & (RECORD_SAMPLED | RECORD_SLOW)))
			return;
	}
	received_half(&half);
}

/* Instead of a number: somebody writes or reads the room just now. */
#define ROOM_IN_USE (~0ULL)

/* Whoever changes the number has the room: its reader, the hook of its
 * readiness and that of the next one to stand there may meet on several CPUs.
 */
static __always_inline bool room_claim(struct datagram *room, __u64 number)
{
	return atomic_replace(&room->at.number, number, ROOM_IN_USE);
}

/* From now on it has this number; 0: it is free. */
static __always_inline void room_leave(struct datagram *room, __u64 number)
{
	atomic_exchange(&room->at.number, number);
}

/* It was read before its readiness was reported. */
static __always_inline void datagram_met(struct datagram_socket *s,
					 struct datagram *d,
					 const struct datagram *read)
{
	d->second_ns = read->second_ns;
	datagram_emit_received(s, d, read->second_ns, read->pid, 0,
			       read->flags & ~DATAGRAM_READ);
	count_more(unmatched_datagram_reads, -1);
	__sync_fetch_and_add(&s->early_reads, -1);
	bpf_map_delete_elem(&datagrams, &read->at);
}

/* Somebody has read this number already: it may have been this one. What else
 * is there is of a socket that had this address before. */
static __noinline void datagram_look_for_read(struct datagram_socket *s,
					      struct datagram *room,
					      __u64 number)
{
	struct datagram_key at = { .address = s->socket, .number = number };
	struct datagram *read = bpf_map_lookup_elem(&datagrams, &at);

	if (read && read->flags & DATAGRAM_READ &&
	    read->second_ns >= room->first_ns && room_claim(room, number)) {
		datagram_met(s, room, read);
		room_leave(room, 0);
	}
}

/* There is no room in the socket, so it waits in the map. */
static __noinline void datagram_wait(struct datagram_socket *s,
				     struct datagram *d)
{
	struct datagram *read;

	if (datagram_enter(d))
		return;
	read = bpf_map_lookup_elem(&datagrams, &d->at);
	if (read && read->flags & DATAGRAM_READ &&
	    read->second_ns >= d->first_ns)
		datagram_met(s, d, read);
	else
		datagram_keep(d);
}

static __always_inline struct datagram *datagram_room(struct datagram_socket *s,
						      __u64 number)
{
	return &s->waiting[number & (WAITING - 1)];
}

static __always_inline __u64 entered_netns(const struct arrival *a)
{
	const struct net *net = (const struct net *)net_of(a->dev);

	/* as cookie_of() */
	return bpf_core_field_exists(net->net_cookie) ?
		       SEE(struct net, net, net_cookie) :
		       SEE(struct net, net, ns.inum);
}

#define ENTERED_NS 5000000 /* longer ago it was delivered, unseen */

/* Its reader, on another CPU, was faster than the hook and the queue is empty:
 * the first to this port of those that entered on this CPU after what was
 * delivered last. Those before that will not be: they were fragments, or went
 * elsewhere. Others to this port may be in another namespace, on their way
 * here: of these only the very last one may have been handed into ours within
 * the same call. Not static, so that the verifier looks at it once. `port` is
 * in network byte order. */
SHARED __u64 datagram_taken(__u32 port, __u64 netns)
{
	__u32 zero = 0;
	struct entered *last = bpf_map_lookup_elem(&last_entered, &zero);
	__u64 now = bpf_ktime_get_ns(), found = 0;

	for (__u32 i = 1; last && i <= LAST_ENTERED; i++) {
		__u64 skb = last->skbs[(last->next - i) & (LAST_ENTERED - 1)];
		const struct sk_buff *packet = (const struct sk_buff *)skb;
		const struct arrival *a = arrival_of(skb);
		struct udp_header udp = {};
		unsigned char *head;

		if (!a || (now - a->t_ns > ENTERED_NS && !a->flags))
			break;
		head = SEE(struct sk_buff, packet, head);
		if (!is_still(a, (__u64)head + SEE(struct sk_buff, packet,
						   network_header)))
			continue;
		udp_header_at(
			head + SEE(struct sk_buff, packet, transport_header),
			&udp);
		if (udp.destination == port &&
		    (i == 1 || entered_netns(a) == netns))
			found = skb;
	}
	return found;
}

#define QUEUED_AT_ONCE 16

/* The first of those at the queue's end that no hook has taken yet. */
static __noinline __u64 datagram_first_of(const struct sock *sk, __u64 skb)
{
	for (int i = 0; i < QUEUED_AT_ONCE; i++) {
		__u64 before = (__u64)SEE(struct sk_buff, skb, prev);

		if (before == (__u64)&sk->sk_receive_queue ||
		    !datagram_noted((const struct sk_buff *)before, sk))
			break;
		skb = before;
	}
	return skb;
}

/* The packet that was just queued, 0 unknown. Several CPUs may queue theirs
 * before the hook runs once for each. A packet that was cut (UDP_SEGMENT) is
 * gone: its parts stand behind it in the queue. All are numbered. */
static __always_inline __u64 datagram_queued(const struct sock *sk)
{
	__u32 waiting = sk->sk_receive_queue.qlen;
	__u64 skb = (__u64)sk->sk_receive_queue.prev;

	if (!waiting)
		return datagram_taken(bpf_htons(sk->__sk_common.skc_num),
				      netns_cookie(sk));
	return waiting == 1 ? skb : datagram_first_of(sk, skb);
}

static __always_inline int datagram_ready(struct sock *sk)
{
	struct datagram_socket *s = datagram_watch(sk);
	const struct sk_buff *skb;
	struct datagram d = {}, *room;
	__u64 number, sender_netns = 0;

	if (!s)
		return 0;
	skb = (const struct sk_buff *)datagram_queued(sk);
	number = datagram_number(s, sk, (__u64)skb);
	for (int i = 0; i < 2 && skb && !d.first_ns; i++) {
		if (i)
			skb = (const struct sk_buff *)datagram_queued(sk);
		d.first_ns = skb ? datagram_arrival(skb, sk, &sender_netns,
						    &d.flags) :
				   0;
	}
	if (!d.first_ns || options.closing)
		return 0; /* counted when it is read */
	datagram_describe(sk, s, skb, sender_netns, &d);
	d.second_ns = bpf_ktime_get_ns();
	d.reader = reader_note(&s->reader, d.second_ns, &d.run_delay);
	d.at.address = (__u64)sk;
	room = datagram_room(s, number);
	if (!room_claim(room, 0)) {
		d.at.number = number;
		datagram_wait(s, &d);
		return 0;
	}
	d.at.number = ROOM_IN_USE;
	*room = d;
	room_leave(room, number);
	if (s->early_reads)
		datagram_look_for_read(s, room, number);
	return 0;
}

/* The kernel gave up a datagram because its socket was full: where it died. */
static __always_inline int datagram_refused(struct sock *sk,
					    const struct sk_buff *skb)
{
	struct datagram_socket *s = datagram_watch(sk);
	struct datagram d = {};
	__u64 sender_netns;

	if (!s)
		return 0;
	count(datagrams_dropped_at_socket);
	d.first_ns = datagram_arrival(skb, sk, &sender_netns, &d.flags);
	datagram_describe(sk, s, skb, sender_netns, &d);
	datagram_emit_received(s, &d, bpf_ktime_get_ns(),
			       bpf_get_current_pid_tgid() >> 32, 0,
			       RECORD_DROPPED | RECORD_NO_WAKEUP);
	return 0;
}

static __always_inline void datagram_was_read(const struct datagram_socket *s,
					      struct datagram *d, __u64 now,
					      __u32 pid, __u32 run_delay)
{
	__u32 wakeup_ns = 0;
	__u16 flags = 0;

	if (d->second_ns > now)
		d->second_ns = now; /* it was ready then at the latest */
	if (!reader_waited(&s->reader, d->reader, d->run_delay, d->second_ns,
			   now, run_delay, &wakeup_ns))
		flags = RECORD_NO_WAKEUP;
	datagram_emit_received(s, d, now, pid, wakeup_ns, flags);
}

/* Its entry is in the map, or it was read before the hook of its readiness ran:
 * then a note waits for that. */
static __noinline void datagram_read_early(struct datagram_socket *s,
					   struct datagram *note,
					   __u32 run_delay)
{
	struct datagram *d = bpf_map_lookup_elem(&datagrams, &note->at);
	struct datagram *room = datagram_room(s, note->at.number);

	if (!d || d->flags & DATAGRAM_READ) {
		note->flags = DATAGRAM_READ | RECORD_NO_WAKEUP;
		count(unmatched_datagram_reads); /* until it is reported */
		__sync_fetch_and_add(&s->early_reads, 1);
		if (datagram_enter(note)) {
			if (!room_claim(room, note->at.number))
				return;
			d = room; /* it was reported meanwhile */
		} else {
			d = bpf_map_lookup_elem(&datagrams, &note->at);
			if (!d || d->flags & DATAGRAM_READ)
				return;
		}
		count_more(unmatched_datagram_reads, -1);
		__sync_fetch_and_add(&s->early_reads, -1);
	}
	datagram_was_read(s, d, note->second_ns, note->pid, run_delay);
	if (d == room)
		room_leave(room, 0);
	bpf_map_delete_elem(&datagrams, &note->at);
}

/* By process: the group is known when that is at work. */
static __noinline void datagram_reader_group(struct sock *sk,
					     struct datagram_socket *s)
{
	struct five_tuple tuple;

	tuple_of_socket(sk, &tuple);
	datagram_group(sk, s, &tuple, false);
}

static __always_inline int datagram_read(struct sock *sk)
{
	struct datagram note = { .at.address = (__u64)sk };
	struct task_struct *task;
	struct datagram_socket *s;
	struct datagram *room;
	__u32 run_delay;

	s = datagram_watch_reader(sk);
	if (!s)
		return 0;
	task = bpf_get_current_task_btf();
	note.second_ns = bpf_ktime_get_ns();
	note.pid = FOLLOW(task, tgid);
	note.at.number = datagram_read_number(s, sk);
	run_delay = reader_now(task, note.second_ns);
	/* else by the packet, which has the client where the socket has not */
	if (histograms && !s->grouped && options.by & BY_COMM)
		datagram_reader_group(sk, s);
	reader_came(&s->reader, &s->reader_pid, task, sk->__sk_common.skc_num,
		    note.second_ns);
	room = datagram_room(s, note.at.number);
	if (room_claim(room, note.at.number)) {
		datagram_was_read(s, room, note.second_ns, note.pid, run_delay);
		room_leave(room, 0);
	} else {
		datagram_read_early(s, &note, run_delay);
	}
	return 0;
}

#endif
