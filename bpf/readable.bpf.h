/*
 * readable.bpf.h - the receive FIFO of a stream: what became readable, when.
 *
 * For fewer bytes than a socket's low water mark (SO_RCVLOWAT) nobody is woken
 * and no hook is called. tcp_probe shows each segment right before TCP takes
 * it: what is to stand in the FIFO is noted then, and put there at the
 * socket's next segment or read, which shows that TCP has taken it.
 *
 * Does not see which bytes came early where one of those few fills a hole.
 */
#ifndef LATPROF_READABLE_H
#define LATPROF_READABLE_H

#include "stream.bpf.h"

/* The last segment of a socket with a low water mark. */
SOCKET_STORAGE(below_mark, struct readable_range);

static __always_inline struct readable_range *
range_append(struct sock *sk, struct stream *s, __u16 *flags)
{
	__u32 pending = s->range_tail - s->range_head;
	struct readable_range *range;

	if (!pending)
		s->range_base = s->range_tail;
	range = pending < DEEP_RANGES ? range_at(sk, s, s->range_tail, true) :
					NULL;
	if (range) {
		s->range_tail++;
		return range;
	}
	count(merged_reads);
	*flags |= RECORD_MERGED;
	return range_at(sk, s, s->range_tail - 1, false);
}

static __always_inline void range_describe(struct readable_range *range,
					   const struct sock *sk,
					   const struct stream *s, __u64 end,
					   __u64 now, __u64 arrive_ns, __u8 ttl,
					   __u32 queue_bytes, __u16 flags)
{
	__u64 stack_ns = arrive_ns ? now - arrive_ns : 0;

	if (!sk->sk_socket)
		flags |= RECORD_NOT_ACCEPTED;
	range->end = end;
	range->ready_ns = now;
	range->stack_ns = stack_ns > 0xffffffff ? 0 : stack_ns;
	range->queue_bytes = queue_bytes;
	range->reader = reader_note(&s->reader, now, &range->run_delay);
	range->ttl = ttl;
	range->flags = flags;
}

/* Readable and not read. */
static __always_inline __u32 waiting_bytes(const struct stream *s,
					   const struct tcp_sock *tp)
{
	return s->ready_end -
	       offset_near(s->ready_end, s->in_zero, tp->copied_seq);
}

/* What is up to `sequence` and was not before is readable from now on. */
static __always_inline void range_ready(struct sock *sk, struct stream *s,
					const struct tcp_sock *tp,
					__u32 sequence, __u64 now,
					__u64 arrive_ns, __u8 ttl, __u16 flags)
{
	__u64 end = offset_near(s->ready_end, s->in_zero, sequence);
	__u32 queue_bytes = waiting_bytes(s, tp);
	struct readable_range *range;

	range = options.closing ? NULL : range_append(sk, s, &flags);
	if (range)
		range_describe(range, sk, s, end, now, arrive_ns, ttl,
			       queue_bytes, flags);
	s->ready_end = end;
}

/* TCP is about to take a segment whose bytes are next. */
static __always_inline void below_mark_note(struct sock *sk,
					    const struct stream *s,
					    const struct tcp_sock *tp,
					    __u32 sequence, __u64 arrive_ns,
					    __u8 ttl, __u16 flags)
{
	__u64 end = offset_near(s->ready_end, s->in_zero, sequence);
	struct readable_range *noted;

	noted = bpf_sk_storage_get(&below_mark, sk, 0,
				   BPF_SK_STORAGE_GET_F_CREATE);
	if (noted)
		range_describe(noted, sk, s, end, bpf_ktime_get_ns(), arrive_ns,
			       ttl, waiting_bytes(s, tp),
			       flags | RECORD_BELOW_MARK);
	else
		count(failed_storage);
}

/* What was noted is readable since then, if TCP took it and woke nobody. */
static __noinline void below_mark_settle(struct sock *sk, struct stream *s,
					 const struct tcp_sock *tp)
{
	const struct readable_range *noted;
	struct readable_range *range;
	__u64 received;
	__u16 flags;

	noted = bpf_sk_storage_get(&below_mark, sk, 0, 0);
	received = offset_near(s->ready_end, s->in_zero, tp->rcv_nxt);
	if (!noted || noted->end <= s->ready_end || noted->end > received)
		return;
	flags = noted->flags;
	range = options.closing ? NULL : range_append(sk, s, &flags);
	if (range) {
		*range = *noted;
		range->flags = flags;
	}
	s->ready_end = noted->end;
}

#endif
