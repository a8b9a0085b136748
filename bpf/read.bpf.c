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
#include "readable.bpf.h"
#include "stream.bpf.h"
#include <bpf/bpf_tracing.h>

struct read_context {
	struct sock *sk;
	struct stream *s;
	__u64 before; /* offset up to which was read and written */
	__u64 read_from;
	__u64 read_end;
	__u64 now;
	__u64 ready_ns; /* of the last one ... */
	__u64 arrive_ns;
	__u64 first_arrive_ns; /* ... and the first */
	struct flow_ends *ends; /* NULL: not known */
	__u32 pid;
	__u32 run_delay;
};

/* As messages, where their sender is on this host and notes their ends. */
static __always_inline void range_count(const struct read_context *c,
					struct received_range *half)
{
	__u32 group = c->s->exchange.group, messages = 0;
	__u16 slow;

	if (c->ends) {
		messages = ends_take(c->ends, half->end);
		slow = received_count(group, RECEIVE_STACK, messages, half);
	} else {
		slow = received_count(group, RANGE_RECEIVE_STACK, 1, half);
	}
	/* where the sender notes the ends, what holds none is of no use */
	if ((messages || !c->ends) &&
	    is_range_sampled(half->flow, half->start, half->end))
		half->flags |= RECORD_SAMPLED;
	half->flags |= slow;
	if (!(half->flags & (RECORD_SAMPLED | RECORD_SLOW)))
		return;
	if (!(c->s->announced & SIDE_RECEIVER))
		stream_announce_receiver(c->sk, c->s);
	received_half(half);
}

static __always_inline void range_emit(struct read_context *c,
				       const struct readable_range *range,
				       __u64 end)
{
	bool known = end == range->end || !(range->flags & RECORD_MERGED);
	struct received_range half = {
		.flow = c->s->flow_in,
		.start = c->before,
		.end = end,
		.arrive_ns = known && range->stack_ns ?
				     range->ready_ns - range->stack_ns :
				     0,
		.ready_ns = known ? range->ready_ns : 0,
		.read_ns = c->now,
		.queue_bytes = range->queue_bytes,
		.pid = c->pid,
		.ttl = range->ttl,
		.flags = range->flags,
		.thread = c->s->reader.thread,
		.size_bytes = range->flags & RECORD_BELOW_MARK ?
				      c->sk->sk_rcvlowat :
				      0,
	};

	if (!reader_waited(&c->s->reader, range->reader, range->run_delay,
			   range->ready_ns, c->now, c->run_delay,
			   &half.wakeup_ns))
		half.flags |= RECORD_NO_WAKEUP;
	if (histograms)
		range_count(c, &half);
	else
		received_half(&half);
	c->before = end;
	c->ready_ns = range->ready_ns;
	c->arrive_ns = half.arrive_ns;
	if (!c->first_arrive_ns)
		c->first_arrive_ns = half.arrive_ns;
}

/* Returns 1 where nothing more was read. */
static __always_inline long range_read(__u32 index, struct read_context *c)
{
	struct stream *s = c->s;
	struct readable_range *range;
	__u64 end;

	if (s->range_head == s->range_tail)
		return 1;
	range = range_at(c->sk, s, s->range_head, false);
	if (!range)
		return 1;
	end = range->end;
	if (end > c->read_end) {
		/* a part of it was read: the rest keeps its stamps */
		range_emit(c, range, c->read_end);
		return 1;
	}
	range_emit(c, range, end);
	chunk_leave(c->sk, s, s->range_head++, SIDE_RECEIVER);
	return end == c->read_end;
}

static long ranges_read(__u32 index, struct read_context *c)
{
	return range_read(index, c);
}

/* These bytes became readable and no hook said so: some kernels hide what
 * interrupts certain tasks. */
static __noinline void unseen_read(struct read_context *c)
{
	struct received_range half = {
		.flow = c->s->flow_in,
		.start = c->before,
		.end = c->read_end,
		.read_ns = c->now,
		.pid = c->pid,
		.flags = RECORD_MERGED | RECORD_NO_WAKEUP,
		.thread = c->s->reader.thread,
	};

	count(unseen_ready);
	if (histograms)
		range_count(c, &half);
	else
		received_half(&half);
	c->before = c->s->ready_end = c->read_end;
	c->ready_ns = c->arrive_ns = 0;
}

static __always_inline void counting_begin(struct read_context *c)
{
	if (!c->s->grouped)
		stream_group(c->sk, c->s);
	c->ends = ends_meet(c->s->flow_in, c->now);
}

/* Its sender is on this host and has said so. */
static __always_inline bool is_interim(const struct read_context *c)
{
	return c->ends && c->ends->interim_end == (__u32)c->read_end &&
	       c->read_end - c->read_from == CONTINUE_BYTES;
}

SEC("?tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(on_read, struct sock *sk)
{
	struct read_context c = {};
	struct task_struct *task;
	struct tcp_sock *tp;
	struct stream *s = stream_known(sk);

	if (!s || (s->range_head == s->range_tail && !receiver_begun(s)))
		return 0; /* nothing, or bytes from before we watched */
	/* what could not be known before it was accepted is known now */
	if (!s->generation)
		s = stream_decide(sk);
	tp = s ? tcp_of(sk) : NULL;
	if (!tp)
		return 0;
	if (sk->sk_rcvlowat > 1)
		below_mark_settle(sk, s, tp);
	c.read_end = offset_near(s->ready_end, s->in_zero, tp->copied_seq);
	c.before = s->read_end;
	if (c.read_end <= c.before)
		return 0;
	s->read_end = c.read_end;
	c.read_from = c.before;
	c.sk = sk;
	c.s = s;
	c.now = bpf_ktime_get_ns();
	task = bpf_get_current_task_btf();
	c.run_delay = reader_now(task, c.now);
	c.pid = FOLLOW(task, tgid);
	reader_came(&s->reader, &s->reader_pid, task, sk->__sk_common.skc_num,
		    c.now);
	if (sk->sk_max_ack_backlog) { /* accepted: at a server */
		s->worked = 0;
		s->asked = work_begin(&s->reader, task, c.now, &s->work);
	}
	if (histograms)
		counting_begin(&c);
	if (!range_read(0, &c))
		bpf_loop(DEEP_RANGES, ranges_read, &c, 0);
	if (c.read_end > s->ready_end)
		unseen_read(&c);
	if (histograms && !is_interim(&c)) {
		if (s->exchange.role != ROLE_CLIENT)
			s->exchange.arrive_ns = c.arrive_ns;
		else if (s->exchange.turn == TURN_ASKED)
			s->exchange.arrive_ns = c.first_arrive_ns;
		handshake_read(&s->exchange, c.read_end - c.read_from, c.now,
			       &s->handshake);
		if (!(s->exchange.state & TAKES_NO_TURNS))
			reply_was_one(&s->exchange, &s->held);
		exchange_read(&s->exchange, c.now, c.ready_ns,
			      all_is_heard(s, tp));
	} else if (!histograms && has_recorder && sk->sk_max_ack_backlog) {
		s->exchange.begin_ns = c.ready_ns;
	}
	return 0;
}

SEC("?tp_btf/sock_recv_length")
int BPF_PROG(on_receive_return, struct sock *sk, int length, int flags)
{
	if (sk->sk_protocol != IPPROTO_UDP || length < 0 ||
	    flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	if (!length && datagram_none(sk))
		return 0;
	return datagram_read(sk);
}

SEC("?fentry/skb_consume_udp")
int BPF_PROG(on_udp_consume, struct sock *sk, struct sk_buff *skb)
{
	/* a peek holds a reference of its own */
	if (skb->users.refs.counter > 1)
		return 0;
	return datagram_read(sk);
}
