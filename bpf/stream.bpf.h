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
 * ranges and takes 512 bytes of kernel memory. What they do not hold goes to
 * chunks in a map of their own: socket storage is limited to 20 kB a socket on
 * older kernels (net.core.optmem_max). A chunk goes when all of it has left, or
 * with its socket.
 */
#ifndef LATPROF_STREAM_H
#define LATPROF_STREAM_H

#include "exchange.bpf.h"
#include "half.bpf.h"
#include "head.bpf.h"
#include "message_ends.bpf.h"
#include "packet.bpf.h"
#include "peer.bpf.h"
#include "work.bpf.h"

#define SHALLOW_SENDS 3
#define SHALLOW_RANGES 3
#define CHUNK_BITS 6
#define CHUNK_ENTRIES (1 << CHUNK_BITS)
#define CHUNKS 4096 /* of all sockets: 262,144 ranges, 11 MB */
#ifndef DEEP_SENDS
#define DEEP_SENDS 4096 /* 4 MB, the default limit, in writes of 1 kB */
#define DEEP_RANGES 1024
#endif

struct pending_send {
	__u64 end;
	__u64 send_ns;
	__u64 queue_ns;
	__u32 size_bytes;
	__u32 packets : 28;
	__u32 head : 4; /* of its first bytes, as the next */
	__u32 pid;
	__u16 head_id;
	__u16 merged;
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
	__u32 base; /* number of the one at place 0 of `sends`, low bits */
	__u32 buffers; /* of the last send call: where, low bits, and ... */
	__u32 buffer_count;
	__u32 out_zero; /* sequence number of the first byte */
	__u32 device; /* that packets are handed to first */
	union {
		__u32 lower_announced; /* those below, as bits */
		__u32 last_device; /* counting: of them the last; 0 none */
	};

	__u64 flow_in;
	__u64 ready_end; /* offset up to which bytes became readable ... */
	__u64 read_end; /* ... and were read */
	__u32 in_zero;
	__u32 range_tail;
	__u32 range_head;
	__u32 range_base;
	struct reader reader;
	struct work work; /* of a server's reader: at its read, and ... */

	__u32 generation; /* of the filter that wants it; 0: ask again */
	__u32 held; /* an exchange, which is not counted yet: its time */
	__u32 sender_pid; /* announced */
	__u32 reader_pid;
	union { /* that began the last reply */
		__u32 answering_thread; /* counting */
		__u32 answer; /* else the message, low bits of its number */
	};
	__u8 announced; /* bits of enum flow_side, without SIDE_ACCEPTED */
	__u8 deep : 1; /* it has, or had, chunks */
	__u8 grouped : 1; /* its group is decided */
	__u8 asked : 1; /* a request was read, and `work` is of then */
	__u8 worked : 2; /* ... between that and its answer: enum worked */
	struct handshake handshake;
	union {
		__u32 handshake_us; /* counting: RTT, until it is counted */
		__u32 acknowledged; /* else when an ACK was recorded last */
	};
	__u16 window; /* of time, that it is followed in, the low bits */
	__u16 floor_counted; /* when the RTT's floor was counted, in 2^30 ns */
	struct exchange exchange;
	struct pending_send sends[SHALLOW_SENDS];
	struct readable_range ranges[SHALLOW_RANGES];
};

_Static_assert(sizeof(struct stream) <= 440, "a stream is 512 bytes at most");

struct chunk_key {
	__u64 socket;
	__u32 number;
	__u32 side; /* enum flow_side */
};

struct chunk {
	union {
		struct pending_send sends[CHUNK_ENTRIES];
		struct readable_range ranges[CHUNK_ENTRIES];
	};
};

SOCKET_STORAGE(streams, struct stream);

/* Allocated as a whole: to allocate a chunk when it is needed took 34 us. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CHUNKS);
	__type(key, struct chunk_key);
	__type(value, struct chunk);
} chunks SEC(".maps");

/* What a new chunk is made of: too large for a program's stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct chunk);
} empty_chunk SEC(".maps");

/* The chunk that holds an entry; NULL: there is none, or no memory for it. */
static __noinline struct chunk *chunk_of(struct sock *sk, struct stream *s,
					 __u64 number, __u32 side, bool create)
{
	struct chunk_key key = { (__u64)sk, number >> CHUNK_BITS, side };
	struct chunk *chunk = bpf_map_lookup_elem(&chunks, &key), *empty;
	__u32 zero = 0;

	if (chunk || !create)
		return chunk;
	empty = bpf_map_lookup_elem(&empty_chunk, &zero);
	if (!empty || bpf_map_update_elem(&chunks, &key, empty, BPF_NOEXIST)) {
		count(failed_inserts);
		return NULL;
	}
	s->deep = 1;
	return bpf_map_lookup_elem(&chunks, &key);
}

/* An entry has left for good: its chunk goes with the last of it. */
static __always_inline void chunk_leave(struct sock *sk, const struct stream *s,
					__u64 number, __u32 side)
{
	struct chunk_key key = { (__u64)sk, number >> CHUNK_BITS, side };

	if (s->deep && !((number + 1) & (CHUNK_ENTRIES - 1)))
		bpf_map_delete_elem(&chunks, &key);
}

struct chunks_left {
	struct chunk_key key;
	__u32 last;
};

static long chunk_drop(__u32 index, struct chunks_left *left)
{
	bpf_map_delete_elem(&chunks, &left->key);
	return left->key.number++ == left->last;
}

/* The socket goes, or begins anew. */
static __noinline void chunks_drop(struct sock *sk, const struct stream *s)
{
	struct chunks_left left = { .key = { .socket = (__u64)sk } };

	if (!s->deep)
		return;
	left.key.side = SIDE_SENDER;
	left.key.number = s->head >> CHUNK_BITS;
	left.last = s->tail >> CHUNK_BITS;
	bpf_loop(DEEP_SENDS / CHUNK_ENTRIES + 2, chunk_drop, &left, 0);
	left.key.side = SIDE_RECEIVER;
	left.key.number = s->range_head >> CHUNK_BITS;
	left.last = s->range_tail >> CHUNK_BITS;
	bpf_loop(DEEP_RANGES / CHUNK_ENTRIES + 2, chunk_drop, &left, 0);
}

/* A FIFO that was empty begins at place 0 again. Only an empty one moves its
 * base: whoever looks into it from another CPU meanwhile finds nothing to look
 * at. */
static __always_inline struct pending_send *
send_at(struct sock *sk, struct stream *s, __u64 number, bool create)
{
	__u32 place = (__u32)number - s->base;
	struct chunk *chunk;

	if (place < SHALLOW_SENDS)
		return &s->sends[place];
	chunk = chunk_of(sk, s, number, SIDE_SENDER, create);
	if (!chunk)
		return NULL;
	barrier_var(chunk); /* clang 22 adds to it before it is checked */
	return &chunk->sends[number & (CHUNK_ENTRIES - 1)];
}

static __always_inline struct readable_range *
range_at(struct sock *sk, struct stream *s, __u32 number, bool create)
{
	__u32 place = number - s->range_base;
	struct chunk *chunk;

	if (place < SHALLOW_RANGES)
		return &s->ranges[place];
	chunk = chunk_of(sk, s, number, SIDE_RECEIVER, create);
	if (!chunk)
		return NULL;
	barrier_var(chunk); /* clang 22 adds to it before it is checked */
	return &chunk->ranges[number & (CHUNK_ENTRIES - 1)];
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

/* What came and went since it was watched last was not seen: it begins where
 * the socket stands now, in the same group. */
static __noinline void stream_restart(struct sock *sk, struct stream *s)
{
	chunks_drop(sk, s);
	s->flow_out = s->flow_in = 0;
	s->queued = s->head = s->tail;
	s->range_head = s->range_tail;
	s->exchange.turn = TURN_NONE;
	s->exchange.state &= TAKES_NO_TURNS;
	s->exchange.due = 0;
	s->asked = s->worked = 0;
	s->held = 0;
	s->window = options.window;
}

static __always_inline struct stream *stream_now(struct sock *sk,
						 struct stream *s)
{
	if (histograms && s->window != (__u16)options.window)
		stream_restart(sk, s);
	return s;
}

/* What is known of a socket; NULL nothing, or nothing of this window: what was
 * begun in one before is not followed. */
static __always_inline struct stream *stream_known(struct sock *sk)
{
	struct stream *s = stream_of(sk);

	return s && (!histograms || s->window == (__u16)options.window) ? s :
									  NULL;
}

/* Each once, if the filter would have it but for its protocol. */
static __noinline void subflow_count(struct sock *sk, __u32 verdict)
{
	if (options.tcp && terms_hold(sk, 0) &&
	    !bpf_sk_storage_get(&unwatched, sk, 0, 0))
		count(multipath_sockets);
	unwatched_note(sk, verdict);
}

/* The state of a socket that has none, or one of another filter; NULL: it is
 * not watched. */
static __noinline struct stream *stream_decide(struct sock *sk)
{
	__u32 generation = generation_now(), verdict = verdict_number(sk);
	enum wanted wanted = wants_socket(sk);
	struct stream *s = stream_of(sk);

	if (!wanted && !is_peer(sk)) {
		if (s) {
			chunks_drop(sk, s);
			bpf_sk_storage_delete(&streams, sk);
		}
		if (is_subflow(sk))
			subflow_count(sk, verdict);
		else if (!may_become_peer(sk))
			unwatched_note(sk, verdict);
		return NULL;
	}
	s = storage_made(&streams, sk);
	if (!s) {
		count(failed_storage);
		return NULL;
	}
	if (s->generation && s->generation != generation)
		s->grouped = 0; /* until it is, it counts where it did */
	s->generation = wanted == WANTED_SO_FAR ? 0 : generation;
	return stream_now(sk, s);
}

static __always_inline struct stream *stream_watch(struct sock *sk)
{
	struct stream *s = stream_of(sk);

	if (s && s->generation == options.generation)
		return stream_now(sk, s);
	return is_unwatched(sk) ? NULL : stream_decide(sk);
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

/* An RTT of the handshake, in us, is that of the network alone. */
static __always_inline void handshake_count(struct stream *s)
{
	histogram_add(s->exchange.group, RTT_HANDSHAKE,
		      (__u64)s->handshake_us * 1000, 1);
	s->handshake_us = 0;
}

/* The least RTT that TCP has seen is counted once a second, while exchanges are
 * seen: it measures delayed acknowledgements, too, so only its floor counts. */
static __always_inline void floor_count(struct stream *s,
					const struct tcp_sock *tp, __u64 now)
{
	__u16 second = now >> 30;

	if (s->floor_counted == second)
		return;
	s->floor_counted = second;
	if (tp->rtt_min.s[0].v != ~0U)
		histogram_add(s->exchange.group, RTT_FLOOR,
			      (__u64)tp->rtt_min.s[0].v * 1000, 1);
}

/* Bytes that wait to be read; a FIN, which counts as one, is none. */
static __always_inline __u32 unread_bytes(const struct sock *sk,
					  const struct tcp_sock *tp)
{
	__u32 unread = tp->rcv_nxt - tp->copied_seq;

	if (unread && sk->__sk_common.skc_flags & 1 << SOCK_DONE)
		unread--;
	return unread >> 31 ? 0 : unread;
}

/* The other end has, and where it is on this host has read, all that this one
 * said. A segment brings the acknowledgement of what its sender had got. */
static __always_inline bool all_is_heard(const struct stream *s,
					 const struct tcp_sock *tp)
{
	const struct flow_ends *e;

	if (offset_near(s->given_end, s->out_zero, tp->snd_una) < s->given_end)
		return false;
	e = ends_of(s->flow_out);
	return !e || !e->met || (e->noted == e->taken && !e->missed);
}

static __noinline void stream_group(struct sock *sk, struct stream *s)
{
	struct five_tuple tuple;

	tuple_of_socket(sk, &tuple);
	s->exchange.role = role_of(sk, bpf_ntohs(tuple.source_port),
				   bpf_ntohs(tuple.destination_port), false);
	s->exchange.group = group_decide(sk, &tuple, s->exchange.role);
	s->grouped = 1;
	end_note(sk, stream_number(sk),
		 s->exchange.group); /* it may be older than the run */
	if (s->handshake_us)
		handshake_count(s);
}

/* Whether a side of the stream was begun: it was announced or, where nothing
 * is, has its number. */
static __always_inline bool sender_begun(const struct stream *s)
{
	return histograms ? !!s->flow_out : s->announced & SIDE_SENDER;
}

static __always_inline bool receiver_begun(const struct stream *s)
{
	return histograms ? !!s->flow_in : s->announced & SIDE_RECEIVER;
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
	if (histograms)
		ends_begin(s->flow_out, bpf_ktime_get_ns());
	else if (flow_announce(s->flow_out, &tuple, sk, SIDE_SENDER, 0, first,
			       0))
		s->announced |= SIDE_SENDER;
}

/* Where all is counted, only samples have records, and flows before them. */
static __noinline void stream_announce_sender(struct sock *sk, struct stream *s)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct first_bytes first;
	struct five_tuple tuple;

	if (!tp)
		return;
	tuple_of_socket(sk, &tuple);
	first = first_bytes_of(tp, true);
	first.sequence = s->out_zero; /* a SYN is not counted as sent yet */
	if (flow_announce(s->flow_out, &tuple, sk, SIDE_SENDER,
			  s->exchange.group, first, 0))
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
	if (histograms)
		ends_meet(s->flow_in, bpf_ktime_get_ns());
	else if (flow_announce(s->flow_in, &tuple, sk, SIDE_RECEIVER, 0, first,
			       0))
		s->announced |= SIDE_RECEIVER;
}

static __noinline void stream_announce_receiver(struct sock *sk,
						struct stream *s)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct five_tuple tuple;
	struct first_bytes own;

	if (!tp)
		return;
	own = first_bytes_of(tp, true);
	tuple_of_socket(sk, &tuple);
	tuple_reverse(&tuple);
	if (flow_announce(s->flow_in, &tuple, sk, SIDE_RECEIVER,
			  s->exchange.group,
			  (struct first_bytes){ own.answer, own.sequence }, 0))
		s->announced |= SIDE_RECEIVER;
}

/* It is counted; a sample and slow ones have records, too. */
static __always_inline void sent_half_count(struct sock *sk, struct stream *s,
					    struct sent_message *half)
{
	half->flags |= sent_count(s->exchange.group, half);
	if (is_message_sampled(half->flow, half->end))
		half->flags |= RECORD_SAMPLED;
	if (!(half->flags & (RECORD_SAMPLED | RECORD_SLOW)))
		return;
	if (!(s->announced & SIDE_SENDER))
		stream_announce_sender(sk, s);
	sent_half(half);
}

/* The server's exchange is counted, and what its thread did is known. */
static __noinline void work_count(const struct stream *s)
{
	struct group_counts *counts = counts_of_group(s->exchange.group);
	__u64 whole_ns = s->exchange.end_ns - s->exchange.begin_ns;
	__u64 run_ns = (__u64)s->work.run * WORK_NS;
	__u64 wait_ns = (__u64)s->work.waited * WORK_NS;

	/* of longer ones the counts have gone round */
	if (!counts || whole_ns >= (__u64)WORK_NS << 32)
		return;
	if (wait_ns > whole_ns)
		wait_ns = whole_ns;
	if (run_ns > whole_ns - wait_ns)
		run_ns = whole_ns - wait_ns;
	__sync_fetch_and_add(&counts->server_run_ns, run_ns);
	__sync_fetch_and_add(&counts->server_wait_ns, wait_ns);
	__sync_fetch_and_add(&counts->server_rest_ns,
			     whole_ns - wait_ns - run_ns);
}

/* `number`: of the message. */
static __always_inline void send_emit(struct sock *sk, struct stream *s,
				      const struct pending_send *m,
				      __u64 number, __u64 xmit_ns, __u16 flags)
{
	struct sent_message half = {
		.flow = s->flow_out,
		.end = m->end,
		.send_ns = m->send_ns,
		.queue_ns = m->queue_ns,
		.xmit_ns = xmit_behind(m->queue_ns, xmit_ns),
		.size_bytes = m->size_bytes,
		.packets = m->packets,
		.pid = m->pid,
		.merged = m->merged,
		.flags = flags | (m->merged ? RECORD_MERGED : 0),
		.head = m->head,
		.head_id = m->head_id,
	};

	if (!histograms && s->worked && s->answer == (__u32)number) {
		half.flags |= RECORD_ANSWER;
		half.run =
			s->worked == WORK_AND_SLEEP ? s->work.run : NEVER_SLEPT;
		half.waited = s->work.waited;
	}
	if (histograms)
		sent_half_count(sk, s, &half);
	else
		sent_half(&half);
}

/* Whoever counts `head` on has the message; two CPUs may want to. */
static __always_inline bool send_claim(struct stream *s, __u64 number)
{
	return atomic_replace(&s->head, number, number + 1);
}

/* Both ends choose by the request's last byte. */
static __always_inline __u16 turn_flags(const struct stream *s, __u64 flow,
					__u64 end)
{
	return exchange_flags(&s->exchange, is_message_sampled(flow, end));
}

/* A record of the turn up to a byte of a flow, without its times; NULL: no
 * room. */
static __always_inline struct turn *turn_reserve(__u64 flow, __u64 end,
						 __u8 role)
{
	struct turn *record = RESERVE(turns);

	if (!record)
		return NULL;
	__builtin_memset(record, 0, sizeof(*record));
	record->flow = flow;
	record->end = end;
	record->role = role;
	return record;
}

/* The client's exchange is over, and it has sent nothing since. */
static __noinline void client_turn_write(struct sock *sk, struct stream *s)
{
	__u16 flags = turn_flags(s, s->flow_out, s->given_end);
	struct turn *record;

	if (!flags)
		return;
	if (!(s->announced & SIDE_SENDER))
		stream_announce_sender(sk, s);
	record = turn_reserve(s->flow_out, s->given_end, ROLE_CLIENT);
	if (!record)
		return;
	record->send_ns = s->exchange.begin_ns;
	record->xmit_ns = s->xmit_end == s->given_end ? s->xmit_ns : 0;
	record->arrive_ns = s->exchange.arrive_ns;
	record->read_ns = s->exchange.end_ns;
	record->pid = s->reader_pid;
	record->group = s->exchange.group;
	record->flags = flags;
	SUBMIT(record);
}

/* The reply leaves, and nothing more was read. */
static __noinline void server_turn_write(struct sock *sk, struct stream *s,
					 __u64 now)
{
	__u16 flags = s->exchange.due * RECORD_SAMPLED;
	struct turn *record;

	s->exchange.due = 0;
	if (!(s->announced & SIDE_RECEIVER))
		stream_announce_receiver(sk, s);
	record = turn_reserve(s->flow_in, s->read_end, ROLE_SERVER);
	if (!record)
		return;
	record->send_ns = s->exchange.end_ns;
	record->xmit_ns = now;
	record->arrive_ns = s->exchange.arrive_ns;
	record->ready_ns = s->exchange.begin_ns;
	record->pid = s->sender_pid;
	record->thread = s->answering_thread;
	record->group = s->exchange.group;
	record->flags = flags;
	SUBMIT(record);
}

/* A server begins to answer what it has read last: of a run, which counts no
 * turns, a long one is written, so that what CPUs did meanwhile is kept. */
static __noinline void answer_notice(struct stream *s, __u64 now)
{
	__u64 id, ready_ns = s->exchange.begin_ns;
	struct turn *record;

	s->exchange.begin_ns = 0;
	if (!long_notice(A_TURN, ready_ns, now))
		return;
	id = bpf_get_current_pid_tgid();
	record = turn_reserve(s->flow_in, s->read_end, ROLE_SERVER);
	if (!record)
		return;
	record->ready_ns = ready_ns;
	record->send_ns = now;
	record->pid = id >> 32;
	record->thread = id;
	SUBMIT(record);
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
	m = send_at(sk, s, s->tail - 1, false);
	if (!m)
		return;
	if (m->size_bytes <= cut) {
		s->tail -= !m->merged;
		return;
	}
	m->end = end;
	m->size_bytes -= cut;
	if (histograms)
		ends_cut(s->flow_out, end);
	if (end > s->queue_end)
		return;
	m->queue_ns = s->queue_ns;
	s->queued = s->tail;
	if (end > *(volatile __u64 *)&s->xmit_end || s->head != s->tail - 1 ||
	    !send_claim(s, s->tail - 1))
		return;
	m->packets += !m->packets;
	send_emit(sk, s, m, s->tail - 1, *(volatile __u64 *)&s->xmit_ns, 0);
}

#endif
