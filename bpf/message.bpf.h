/*
 * message.bpf.h - the state that a watched socket carries, and nothing else
 * does: it dies with the socket.
 *
 * TCP has no messages on the wire, only bytes. A sender keeps a FIFO of the
 * ranges that send calls gave it; a receiver a FIFO of the ranges that became
 * readable. Offsets are 64 bits wide and count from the first byte of the
 * stream, for sockets older than the run too.
 *
 * The whole of it must stay below 20 kB a socket: older kernels allow no more
 * option memory (net.core.optmem_max). Each struct must stay below 8000 bytes:
 * newer ones allocate no more at once.
 */
#ifndef LATPROF_MESSAGE_H
#define LATPROF_MESSAGE_H

#include "flow.bpf.h"

#define SENDS 128 /* powers of two */
#define RANGES 256

struct pending_send {
	__u64 end;
	__u64 send_ns;
	__u64 queue_ns;
	__u32 size_bytes;
	__u32 packets;
	__u32 pid;
	__u32 merged;
};

/* A socket's sending side. Filled under the socket lock; `head` moves where
 * packets leave, which a qdisc may do on another CPU. */
struct sender {
	__u64 flow;
	__u64 last_end; /* offset up to which send calls have given bytes */
	__u64 queue_end; /* the furthest segment that went to the device ... */
	__u64 queue_ns;
	__u64 xmit_end; /* ... and that left for the driver */
	__u64 xmit_ns;
	__u64 buffers; /* of the last send call: where, and ... */
	__u32 buffer_count;
	__u32 last_sequence; /* TCP sequence number of last_end */
	__u32 tail; /* next free; head <= queued <= tail, all modulo 2^32 */
	__u32 queued; /* first whose last byte was not handed to the device */
	__u32 head; /* first that has not left */
	__u32 pid; /* announced */
	__u32 announced; /* whether the flow was */
	__u32 base; /* place 0 of `sends` is that of number `base` */
	struct pending_send sends[SENDS];
};

struct readable_range {
	__u64 end;
	__u64 ready_ns;
	__u32 stack_ns; /* from arrival to ready; 0: arrival not known */
	__u32 queue_bytes;
	__u16 ttl;
	__u16 flags;
} __attribute__((packed, aligned(4)));

/* A socket's receiving side. Touched only under the socket lock. */
struct receiver {
	__u64 flow;
	__u64 ready_end; /* offset up to which bytes became readable ... */
	__u64 read_end; /* ... and were read */
	__u64 segment_arrive_ns; /* of the segment being received */
	__u32 segment_start;
	__u32 segment_sequence; /* its end */
	__u32 ready_sequence; /* TCP sequence number of ready_end */
	__u32 tail;
	__u32 head;
	__u32 pid; /* announced */
	__u16 ttl;
	__u16 segment_flags;
	__u32 announced;
	struct readable_range ranges[RANGES];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sender);
} senders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct receiver);
} receivers SEC(".maps");

RING(sent_messages, sent_message);
RING(received_ranges, received_range);
LABELS(record_flag);

static __always_inline struct sender *sender_of(struct sock *sk)
{
	return bpf_sk_storage_get(&senders, sk, 0, 0);
}

static __always_inline struct receiver *receiver_of(struct sock *sk)
{
	return bpf_sk_storage_get(&receivers, sk, 0, 0);
}

/* A FIFO that was empty begins at place 0 again, so that a socket with little
 * on its way uses few cache lines. Only an empty one moves its base: whoever
 * looks into it from another CPU meanwhile finds nothing to look at. */
static __always_inline struct pending_send *send_at(struct sender *s, __u32 i)
{
	return &s->sends[(i - s->base) & (SENDS - 1)];
}

static __always_inline struct readable_range *range_at(struct receiver *r,
						       __u32 i)
{
	return &r->ranges[i & (RANGES - 1)];
}

/* Sequence numbers wrap at 4 GB; offsets do not. */
static __always_inline __u64 sender_offset(const struct sender *s,
					   __u32 sequence)
{
	return s->last_end + (__s32)(sequence - s->last_sequence);
}

static __always_inline __u64 receiver_offset(const struct receiver *r,
					     __u32 sequence)
{
	return r->ready_end + (__s32)(sequence - r->ready_sequence);
}

static __always_inline struct sender *sender_create(struct sock *sk,
						    struct tcp_sock *tp)
{
	__u64 sent = tp->bytes_sent - tp->bytes_retrans;
	struct five_tuple tuple;
	struct sender *s;

	s = bpf_sk_storage_get(&senders, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		count(failed_storage);
		return NULL;
	}
	if (!s->flow) {
		tuple_of_socket(sk, &tuple);
		s->flow = flow_number(&tuple, tp->snd_nxt - (__u32)sent);
		s->last_sequence = tp->write_seq;
		s->last_end = sent + (tp->write_seq - tp->snd_nxt);
		s->queue_end = s->xmit_end = sent;
	}
	if (!s->announced) {
		tuple_of_socket(sk, &tuple);
		s->announced = flow_announce(s->flow, &tuple, sk, SIDE_SENDER);
	}
	return s;
}

static __always_inline struct receiver *receiver_create(struct sock *sk,
							struct tcp_sock *tp)
{
	__u64 received = tp->bytes_received;
	struct five_tuple tuple;
	struct receiver *r;

	r = bpf_sk_storage_get(&receivers, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!r) {
		count(failed_storage);
		return NULL;
	}
	tuple_of_socket(sk, &tuple);
	tuple_reverse(&tuple);
	if (!r->flow) {
		r->flow = flow_number(&tuple, tp->rcv_nxt - (__u32)received);
		r->ready_sequence = tp->rcv_nxt;
		r->ready_end = received;
		r->read_end = received - (tp->rcv_nxt - tp->copied_seq);
	}
	if (!r->announced)
		r->announced =
			flow_announce(r->flow, &tuple, sk, SIDE_RECEIVER);
	return r;
}

/* For bytes that became readable without tcp_probe: after shutdown(SHUT_WR),
 * or with the handshake. What is unread became so just now. */
static __always_inline struct receiver *
receiver_create_late(struct sock *sk, struct tcp_sock *tp)
{
	struct receiver *r = receiver_create(sk, tp);

	if (!r)
		return NULL;
	r->ready_end = r->read_end;
	r->ready_sequence = tp->copied_seq;
	r->segment_sequence = tp->copied_seq; /* arrival not known */
	return r;
}

static __always_inline void send_emit(const struct sender *s,
				      const struct pending_send *m,
				      __u64 xmit_ns, __u16 flags)
{
	struct sent_message *record = RESERVE(sent_messages);

	if (!record)
		return;
	record->flow = s->flow;
	record->key = 0;
	record->end = m->end;
	record->send_ns = m->send_ns;
	record->queue_ns = m->queue_ns;
	record->xmit_ns = xmit_ns;
	record->size_bytes = m->size_bytes;
	record->packets = m->packets;
	record->pid = m->pid;
	record->merged = m->merged;
	record->flags = flags | (m->merged ? RECORD_MERGED : 0);
	SUBMIT(record);
}

/* The last byte of the last send call stands at `end`: nothing follows it yet,
 * so if it was handed on already, it was in the furthest segment. */
static __always_inline void send_cut(struct sender *s, __u64 end,
				     __u32 sequence)
{
	struct pending_send *m = send_at(s, s->tail - 1);
	__s64 cut = s->last_end - end;

	s->last_end = end;
	s->last_sequence = sequence;
	/* cut < 0: bytes were written that we did not see */
	if (cut <= 0 || s->tail == s->queued)
		return;
	if (m->size_bytes <= cut) {
		s->tail -= !m->merged;
		return;
	}
	m->end = end;
	m->size_bytes -= cut;
	if (end > s->queue_end)
		return;
	m->queue_ns = s->queue_ns;
	s->queued = s->tail;
	if (end > s->xmit_end || s->head != s->tail - 1)
		return;
	m->packets += !m->packets;
	send_emit(s, m, s->xmit_ns, 0);
	s->head = s->tail;
}

#endif
