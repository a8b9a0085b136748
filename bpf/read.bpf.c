/*
 * read.bpf.c - when a receive call took the last byte of what became readable.
 *
 *   tcp_rcv_space_adjust:  copied_seq moved        ->  receiver's half, written
 *   sock_recv_length:      UDP: the oldest datagram was read
 *
 * Does not see which of two threads that read one UDP socket at the same
 * instant got which datagram: they may exchange read times.
 */
#include "datagram_receive.bpf.h"
#include "message.bpf.h"
#include "wakeup.bpf.h"
#include <bpf/bpf_tracing.h>

static __always_inline void range_emit(const struct receiver *r,
				       const struct readable_range *range,
				       __u64 end, __u64 now,
				       const struct reader *reader, __u32 pid)
{
	struct received_range *record = RESERVE(received_ranges);
	bool known = end == range->end || !(range->flags & RECORD_MERGED);

	if (!record)
		return;
	record->flow = r->flow;
	record->key = 0;
	record->end = end;
	record->arrive_ns = known && range->stack_ns ?
				    range->ready_ns - range->stack_ns :
				    0;
	record->ready_ns = known ? range->ready_ns : 0;
	record->read_ns = now;
	record->size_bytes = 0;
	record->wakeup_ns = 0;
	record->queue_bytes = range->queue_bytes;
	record->pid = pid;
	record->ttl = range->ttl;
	record->flags = range->flags;
	if (!wakeup_between(reader, range->ready_ns, now, &record->wakeup_ns))
		record->flags |= RECORD_NO_WAKEUP;
	record->pad = 0;
	SUBMIT(record);
}

struct read_context {
	struct receiver *r;
	const struct reader *reader;
	__u64 read_end;
	__u64 now;
	__u32 pid;
};

static long range_read(__u32 index, struct read_context *context)
{
	struct receiver *r = context->r;
	struct readable_range *range;
	__u64 end;

	if (r->head == r->tail)
		return 1;
	range = range_at(r, r->head);
	end = range->end;
	if (end > context->read_end) {
		/* a part of it was read: the rest keeps its stamps */
		range_emit(r, range, context->read_end, context->now,
			   context->reader, context->pid);
		return 1;
	}
	range_emit(r, range, end, context->now, context->reader, context->pid);
	r->head++;
	return end == context->read_end;
}

SEC("?tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(on_read, struct sock *sk)
{
	struct read_context context = {};
	struct tcp_sock *tp;
	struct receiver *r;

	if (!wants_socket(sk))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	r = receiver_of(sk);
	if (!tp || !r)
		return 0;
	context.read_end = receiver_offset(r, tp->copied_seq);
	if (context.read_end <= r->read_end)
		return 0;
	r->read_end = context.read_end;
	if (r->head == r->tail)
		return 0; /* bytes that were there before we watched */
	context.r = r;
	context.now = bpf_ktime_get_ns();
	context.pid = bpf_get_current_pid_tgid() >> 32;
	context.reader = reader_of_current();
	if (r->pid != context.pid && task_announce(context.pid))
		r->pid = context.pid;
	bpf_loop(RANGES, range_read, &context, 0);
	return 0;
}

SEC("?tp_btf/sock_recv_length")
int BPF_PROG(on_receive_return, struct sock *sk, int length, int flags)
{
	if (length < 0 || flags & (MSG_PEEK | MSG_ERRQUEUE) ||
	    sk->sk_protocol != IPPROTO_UDP || !wants_socket(sk))
		return 0;
	return datagram_read(sk);
}

SEC("?fentry/skb_consume_udp")
int BPF_PROG(on_udp_consume, struct sock *sk, struct sk_buff *skb)
{
	/* a peek holds a reference of its own */
	if (skb->users.refs.counter > 1 || !wants_socket(sk))
		return 0;
	return datagram_read(sk);
}

/* The kernel gave up a datagram because its socket was full: where it died. */
