/*
 * stream.bpf.h - the state that a watched TCP socket carries, and nothing else
 * does: it dies with the socket.
 *
 * TCP has no messages on the wire, only bytes. A sender keeps a FIFO of the
 * ranges that send calls gave it; a receiver a FIFO of the ranges that became
 * readable. Offsets are 64 bits wide and count from the first byte of the
 * stream, for sockets older than the run too.
 *
 * Most sockets have little on its way, so the state itself has room for a few
 * ranges and takes 512 bytes of kernel memory. Where they do not suffice, the
 * rest goes to chunks that are allocated then, and stay. Each must stay below
 * 8000 bytes: newer kernels allocate no more at once. Older ones allow 20 kB of
 * option memory a socket (net.core.optmem_max): there the later chunks fail.
 */
#ifndef LATPROF_STREAM_H
#define LATPROF_STREAM_H

#include "half.bpf.h"
#include "packet.bpf.h"
#include "reader.bpf.h"

#define SHALLOW_SENDS 4
#define SHALLOW_RANGES 3
#define CHUNK_SENDS 192
#define CHUNK_RANGES 240
#define SEND_CHUNKS 8 /* 4 MB, the default limit, in writes of 4 kB */
#define RANGE_CHUNKS 4
#define DEEP_SENDS (CHUNK_SENDS * SEND_CHUNKS)
#define DEEP_RANGES (CHUNK_RANGES * RANGE_CHUNKS)

struct pending_send {
	__u64 end;
	__u64 send_ns;
	__u64 queue_ns;
	__u32 size_bytes;
	__u32 packets;
	__u32 pid;
	__u32 merged;
};

struct readable_range {
	__u64 end;
	__u64 ready_ns;
	__u32 stack_ns; /* from arrival to ready; 0: arrival not known */
	__u32 queue_bytes;
	__u32 run_delay; /* of the reader, see reader.bpf.h ... */
	__u8 reader; /* ... and which one that was */
	__u8 ttl;
	__u16 flags; /* enum record_flag */
};

/* The sending side is filled under the socket lock, which the hand-over to the
 * first device is under, too; `head`, `xmit_end` and `xmit_ns` move where
 * packets leave for the driver, which a qdisc may do on another CPU. The
 * receiving side is touched under the socket lock only. */
struct stream {
	__u64 flow_out;
	__u64 given_end; /* offset up to which send calls have given bytes */
	__u64 queue_end; /* the furthest segment that went to a device ... */
	__u64 queue_ns;
	__u64 xmit_end; /* ... and that left for its driver */
	__u64 xmit_ns;
	__u64 tail; /* next free; head <= queued <= tail, which never wrap */
	__u64 queued; /* first whose last byte was not handed to the device */
	__u64 head; /* first that has not left */
	__u64 base; /* number of the one at place 0 of `sends` */
	__u64 buffers; /* of the last send call: where, and ... */
	__u32 buffer_count;
	__u32 out_zero; /* sequence number of the first byte */
	__u32 device; /* that packets are handed to first */
	__u32 lower_device; /* announced */

	__u64 flow_in;
	__u64 ready_end; /* offset up to which bytes became readable ... */
	__u64 read_end; /* ... and were read */
	__u32 in_zero;
	__u32 range_tail;
	__u32 range_head;
	__u32 range_base;
	struct reader reader;

	__u32 generation; /* of the filter that wants it */
	__u32 sender_pid; /* announced */
	__u32 reader_pid;
	__u8 announced; /* bits of enum flow_side */
	struct pending_send sends[SHALLOW_SENDS];
	struct readable_range ranges[SHALLOW_RANGES];
};

_Static_assert(sizeof(struct stream) <= 440, "a stream is 512 bytes at most");

struct send_chunk {
	struct pending_send sends[CHUNK_SENDS];
};

struct range_chunk {
	struct readable_range ranges[CHUNK_RANGES];
};

#define CHUNKS(name, chunk)                            \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_SK_STORAGE); \
		__uint(map_flags, BPF_F_NO_PREALLOC);  \
		__type(key, int);                      \
		__type(value, struct chunk);           \
	} name SEC(".maps")

CHUNKS(streams, stream);
CHUNKS(send_chunks_0, send_chunk);
CHUNKS(send_chunks_1, send_chunk);
CHUNKS(send_chunks_2, send_chunk);
CHUNKS(send_chunks_3, send_chunk);
CHUNKS(send_chunks_4, send_chunk);
CHUNKS(send_chunks_5, send_chunk);
CHUNKS(send_chunks_6, send_chunk);
CHUNKS(send_chunks_7, send_chunk);
CHUNKS(range_chunks_0, range_chunk);
CHUNKS(range_chunks_1, range_chunk);
CHUNKS(range_chunks_2, range_chunk);
CHUNKS(range_chunks_3, range_chunk);

#define CHUNK_OF(name, n)                                         \
	case n:                                                   \
		chunk = bpf_sk_storage_get(&name, sk, 0, create); \
		break

/* Give `create` where it is to be filled; NULL: no memory. */
static __noinline struct pending_send *deep_send(struct sock *sk, __u64 number,
						 __u64 create)
{
	__u32 place = number % DEEP_SENDS;
	__u64 at = place % CHUNK_SENDS;
	struct send_chunk *chunk = NULL;

	switch (place / CHUNK_SENDS) {
		CHUNK_OF(send_chunks_0, 0);
		CHUNK_OF(send_chunks_1, 1);
		CHUNK_OF(send_chunks_2, 2);
		CHUNK_OF(send_chunks_3, 3);
		CHUNK_OF(send_chunks_4, 4);
		CHUNK_OF(send_chunks_5, 5);
		CHUNK_OF(send_chunks_6, 6);
		CHUNK_OF(send_chunks_7, 7);
	}
	if (!chunk)
		return NULL;
	/* older verifiers do not see the bound of a remainder */
	barrier_var(at);
	if (at >= CHUNK_SENDS)
		return NULL;
	barrier_var(at);
	return &chunk->sends[at];
}

static __noinline struct readable_range *deep_range(struct sock *sk,
						    __u32 number, __u64 create)
{
	__u32 place = number % DEEP_RANGES;
	__u64 at = place % CHUNK_RANGES;
	struct range_chunk *chunk = NULL;

	switch (place / CHUNK_RANGES) {
		CHUNK_OF(range_chunks_0, 0);
		CHUNK_OF(range_chunks_1, 1);
		CHUNK_OF(range_chunks_2, 2);
		CHUNK_OF(range_chunks_3, 3);
	}
	if (!chunk)
		return NULL;
	barrier_var(at);
	if (at >= CHUNK_RANGES)
		return NULL;
	barrier_var(at);
	return &chunk->ranges[at];
}

/* A FIFO that was empty begins at place 0 again. Only an empty one moves its
 * base: whoever looks into it from another CPU meanwhile finds nothing to look
 * at. */
static __always_inline struct pending_send *
send_at(struct sock *sk, struct stream *s, __u64 number, __u64 create)
{
	__u64 place = number - s->base;

	return place < SHALLOW_SENDS ? &s->sends[place] :
				       deep_send(sk, number, create);
}

static __always_inline struct readable_range *
range_at(struct sock *sk, struct stream *s, __u32 number, __u64 create)
{
	__u32 place = number - s->range_base;

	return place < SHALLOW_RANGES ? &s->ranges[place] :
					deep_range(sk, number, create);
}

/* The offset of a sequence number that is less than 2 GB from a known offset.
 * `near` is read once: another CPU may move it meanwhile. */
static __always_inline __u64 offset_near(__u64 near, __u32 zero, __u32 sequence)
{
	return near + (__s32)(sequence - (__u32)(near + zero));
}

static __always_inline struct stream *stream_of(struct sock *sk)
{
	return bpf_sk_storage_get(&streams, sk, 0, 0);
}

/* The state of a socket that has none, or one of another filter; NULL: it is
 * not watched. */
static __noinline struct stream *stream_decide(struct sock *sk)
{
	struct stream *s;

	if (!is_wanted(sk)) {
		bpf_sk_storage_delete(&streams, sk);
		return NULL;
	}
	s = bpf_sk_storage_get(&streams, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (s)
		s->generation = options.generation;
	else
		count(failed_storage);
	return s;
}

static __always_inline struct stream *stream_watch(struct sock *sk)
{
	struct stream *s = stream_of(sk);

	return s && s->generation == options.generation ? s : stream_decide(sk);
}

static __always_inline struct first_bytes first_bytes_of(struct tcp_sock *tp,
							 bool answered)
{
	__u32 sent = tp->bytes_sent - tp->bytes_retrans;

	return (struct first_bytes){
		.sequence = tp->snd_nxt - sent,
		.answer =
			answered ? tp->rcv_nxt - (__u32)tp->bytes_received : 0,
	};
}

/* The first send call that we see. */
static __noinline void sender_begin(struct sock *sk, struct stream *s,
				    struct tcp_sock *tp)
{
	bool answered = sk->__sk_common.skc_state != TCP_SYN_SENT;
	struct first_bytes first = first_bytes_of(tp, answered);
	__u64 sent = tp->bytes_sent - tp->bytes_retrans;
	struct five_tuple tuple;

	tuple_of_socket(sk, &tuple);
	if (!s->flow_out) {
		s->flow_out = flow_number(&tuple, first.sequence);
		s->out_zero = first.sequence;
		s->given_end = sent + (tp->write_seq - tp->snd_nxt);
		s->queue_end = s->xmit_end = sent;
	}
	if (flow_announce(s->flow_out, &tuple, sk, SIDE_SENDER, first))
		s->announced |= SIDE_SENDER;
}

/* The first segment that we see. */
static __noinline void receiver_begin(struct sock *sk, struct stream *s,
				      struct tcp_sock *tp)
{
	struct first_bytes first = first_bytes_of(tp, true);
	__u64 received = tp->bytes_received;
	struct five_tuple tuple;

	first = (struct first_bytes){ first.answer, first.sequence };
	tuple_of_socket(sk, &tuple);
	tuple_reverse(&tuple);
	if (!s->flow_in) {
		s->flow_in = flow_number(&tuple, first.sequence);
		s->in_zero = first.sequence;
		s->ready_end = received;
		s->read_end = received - (tp->rcv_nxt - tp->copied_seq);
		if (!s->reader.task)
			reader_guess(&s->reader, sk->__sk_common.skc_num);
	}
	if (flow_announce(s->flow_in, &tuple, sk, SIDE_RECEIVER, first))
		s->announced |= SIDE_RECEIVER;
}

static __always_inline void send_emit(const struct stream *s,
				      const struct pending_send *m,
				      __u64 xmit_ns, __u16 flags)
{
	struct sent_message half = {
		.flow = s->flow_out,
		.end = m->end,
		.send_ns = m->send_ns,
		.queue_ns = m->queue_ns,
		.xmit_ns = xmit_ns,
		.size_bytes = m->size_bytes,
		.packets = m->packets,
		.pid = m->pid,
		.merged = m->merged,
		.flags = flags | (m->merged ? RECORD_MERGED : 0),
	};

	sent_half(&half);
}

/* Whoever counts `head` on has the message; two CPUs may want to. */
static __always_inline bool send_claim(struct stream *s, __u64 number)
{
	return __sync_val_compare_and_swap(&s->head, number, number + 1) ==
	       number;
}

/* The last byte of the last send call stands at `end`: nothing follows it yet,
 * so if it was handed on already, it was in the furthest segment. */
static __noinline void send_cut(struct sock *sk, struct stream *s, __u64 end)
{
	struct pending_send *m;
	__s64 cut = s->given_end - end;

	s->given_end = end;
	/* cut < 0: bytes were written that we did not see */
	if (cut <= 0 || s->tail == s->queued)
		return;
	m = send_at(sk, s, s->tail - 1, 0);
	if (!m)
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
	if (end > s->xmit_end || s->head != s->tail - 1 ||
	    !send_claim(s, s->tail - 1))
		return;
	m->packets += !m->packets;
	send_emit(s, m, s->xmit_ns, 0);
}

#endif
