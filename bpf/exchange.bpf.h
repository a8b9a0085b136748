/*
 * exchange.bpf.h - turns of a conversation, as one end sees them: what it says
 * until the other answers.
 *
 *   client:  first send of the request  ->  last read of the reply: response
 *   server:  the request's last byte readable  ->  first send of the reply
 *
 * The client's exchange is over when it asks again, or closes; or when nothing
 * more has come for a while (idle.bpf.c). Where an end went on before it had
 * read all that was there, or an answer came that left before they arrived,
 * both ends talk at once: which bytes answer which cannot be known, and the
 * connection has no exchange any more (counted). So has one of HTTP/2 from its
 * first bytes.
 *
 * A request that is not answered is counted when its connection ends, of
 * datagrams when the next one is sent. What a client said before a pause, and
 * nobody answered, is no part of its request.
 *
 * TLS: a handshake is no exchange, nor is what the server sends before it has
 * read the first request (tickets). What a server has read is known by its
 * length only: of a handshake whose last word is longer, or came with the
 * request in one, the first exchange is not counted at the server.
 *
 * Does not see an interim answer (100 Continue) at a client whose server is on
 * another host, nor a window of requests in datagrams at either end.
 */
#ifndef LATPROF_EXCHANGE_H
#define LATPROF_EXCHANGE_H

#include "head.bpf.h"
#include "sample.bpf.h"

RING(turns, turn);

enum turn_state {
	TURN_NONE,
	TURN_ASKED,
	TURN_ANSWERED,
};

struct exchange {
	__u64 begin_ns; /* client: asked; server: readable */
	__u64 end_ns; /* client: read last; server: replied first */
	union {
		__u64 arrive_ns; /* client: first of the reply; server: last of
				    the request */
		__u64 spoke_ns; /* this end did last, until it is answered */
	};
	__u32 turn; /* enum turn_state */
	__u16 group;
	__u8 role : 2;
	__u8 state : 3; /* enum exchange_state, bits */
	__u8 due; /* server: flags of a record, when the reply leaves, in units
		   * of the first */
};

enum exchange_state {
	TAKES_NO_TURNS = 1, /* both ends talk at once */
	IN_HANDSHAKE = 2,
	HANDSHAKE_ENDED = 4, /* the client has said its last word of it */
	WAS_ANSWERED =
		IN_HANDSHAKE, /* datagrams: else it may go one way only */
};

/* Nothing on its way, and all read, for so long: what was said before was no
 * part of the request. */
#define PAUSE_NS 100000000ULL
/* Whoever closes so soon after its last words waits for no answer. */
#define CLOSING_NS 1000000ULL
/* Datagrams that follow each other sooner are one request. */
#define BURST_NS 10000000ULL
/* A change of cipher, and the client's last word of TLS 1.3's handshake by the
 * hash that its cipher has. */
#define CHANGE_BYTES 6
#define FINISHED_BYTES 58
#define FINISHED_LONG_BYTES 74
#define MOST_READ 0xff /* more is as much */

static __always_inline void exchange_count(const struct exchange *x,
					   __u32 quantity, __u64 ns)
{
	struct group_counts *counts = counts_of_group(x->group);

	histogram_add(x->group, quantity, ns, 1);
	if (counts)
		__sync_fetch_and_add(&counts->exchanges, 1);
}

static __always_inline void turns_overlap(struct exchange *x)
{
	count(talked_at_once);
	x->state |= TAKES_NO_TURNS;
	x->turn = TURN_NONE;
}

static __noinline void no_turns_count(const struct exchange *x)
{
	struct group_counts *counts = counts_of_group(x->group);

	if (counts)
		__sync_fetch_and_add(&counts->no_turns, 1);
}

static __noinline void unanswered_count(const struct exchange *x)
{
	struct group_counts *counts = counts_of_group(x->group);

	if (counts)
		__sync_fetch_and_add(&counts->unanswered, 1);
}

/* Nobody will answer the client any more. */
static __always_inline void exchange_abandon(struct exchange *x, __u64 now)
{
	if (x->role != ROLE_CLIENT || x->turn != TURN_ASKED)
		return;
	x->turn = TURN_NONE;
	if (now - x->spoke_ns >= CLOSING_NS)
		unanswered_count(x);
}

static __always_inline bool is_last_word(__u32 bytes)
{
	return bytes == FINISHED_BYTES || bytes == FINISHED_LONG_BYTES ||
	       bytes == CHANGE_BYTES + FINISHED_BYTES ||
	       bytes == CHANGE_BYTES + FINISHED_LONG_BYTES;
}

/* An end says something of a handshake, in so many bytes. `read`: what the
 * server has read since its own last word of one. */
static __noinline void handshake_say(struct exchange *x, __u64 bytes,
				     __u8 *read)
{
	bool again = x->state & IN_HANDSHAKE;

	x->turn = TURN_NONE;
	x->state |= IN_HANDSHAKE;
	/* the client's second flight; or the server's, before TLS 1.3 */
	if (x->role == ROLE_CLIENT ? again && bytes > CHANGE_BYTES :
				     again && *read)
		x->state |= HANDSHAKE_ENDED;
	*read = 0;
}

/* Whether what an end says, encrypted, is still of the handshake. */
static __noinline bool handshake_goes_on(struct exchange *x, __u8 *read)
{
	bool ended = x->state & HANDSHAKE_ENDED;

	if (x->role == ROLE_CLIENT) {
		x->state |= HANDSHAKE_ENDED;
		if (ended)
			x->state &= ~IN_HANDSHAKE;
		return !ended;
	}
	if (!*read || (ended && is_last_word(*read))) {
		/* more of its flight; or a ticket */
		x->turn = TURN_NONE;
		*read = 0;
		return true;
	}
	x->state &= ~IN_HANDSHAKE;
	if (!ended) /* was the request in it? */
		x->turn = TURN_ANSWERED;
	return false;
}

/* Whether a message takes part in turns; what it is says its head. */
static __always_inline bool
takes_turn(struct exchange *x, const struct head *head, __u64 bytes, __u8 *read)
{
	if (x->state & TAKES_NO_TURNS)
		return false;
	switch (head->kind) {
	case HEAD_HTTP2:
		turns_overlap(x);
		return false;
	case HEAD_TLS_HANDSHAKE:
		handshake_say(x, bytes, read);
		return false;
	case HEAD_TLS_ALERT:
	case HEAD_INTERIM:
		return false;
	default:
		return !(x->state & IN_HANDSHAKE) ||
		       !handshake_goes_on(x, read);
	}
}

/* The server has read more of a handshake, or its first request. */
static __always_inline void handshake_read(struct exchange *x, __u64 bytes,
					   __u8 *read)
{
	if (!(x->state & IN_HANDSHAKE) || x->role != ROLE_SERVER)
		return;
	*read = bytes > MOST_READ - *read ? MOST_READ : *read + bytes;
	if (x->state & HANDSHAKE_ENDED || !is_last_word(*read))
		return;
	x->state |= HANDSHAKE_ENDED;
	*read = 0;
}

/* The client's reply is whole. `unread`: more of it waits. */
static __always_inline bool exchange_end(struct exchange *x, bool unread)
{
	if (x->role != ROLE_CLIENT || x->turn != TURN_ANSWERED)
		return false;
	/* it may be found to be idle just now */
	if (__sync_val_compare_and_swap(&x->turn, TURN_ANSWERED, TURN_NONE) !=
	    TURN_ANSWERED)
		return false;
	if (unread) {
		turns_overlap(x);
		return false;
	}
	exchange_count(x, RESPONSE, x->end_ns - x->begin_ns);
	return true;
}

/* The client asks, or goes on asking. `idle`: all that it has said was read. */
static __always_inline void exchange_ask(struct exchange *x, __u64 now,
					 bool idle)
{
	if (x->turn == TURN_NONE && !options.closing) {
		x->turn = TURN_ASKED;
		x->begin_ns = now;
	} else if (x->turn == TURN_ASKED && idle &&
		   now - x->spoke_ns >= PAUSE_NS) {
		x->begin_ns = now;
	}
	if (x->turn == TURN_ASKED)
		x->spoke_ns = now;
}

/* The server sends: whether it begins to answer what it has read. */
static __always_inline bool exchange_answer(struct exchange *x, __u64 now,
					    bool unread)
{
	bool asked = x->turn == TURN_ASKED;

	if (asked)
		x->end_ns = now;
	x->turn = TURN_ANSWERED;
	if (asked && unread)
		turns_overlap(x);
	if (!asked || unread)
		return false;
	exchange_count(x, SERVER, now - x->begin_ns);
	return true;
}

/* This end has read what became readable at `ready_ns`. `heard`: the other end
 * has what this one said. Of datagrams another CPU may look on. */
static __always_inline void exchange_read(struct exchange *x, __u64 now,
					  __u64 ready_ns, bool heard)
{
	if (x->state & TAKES_NO_TURNS)
		return;
	if (x->role == ROLE_CLIENT) {
		if (x->turn == TURN_NONE)
			return; /* nobody asked for it */
		if (x->turn == TURN_ASKED && !heard) {
			/* behind a handshake: a ticket */
			if (!(x->state & HANDSHAKE_ENDED))
				turns_overlap(x);
			return;
		}
		x->state &= ~HANDSHAKE_ENDED;
		x->end_ns = now;
		barrier();
		x->turn = TURN_ANSWERED;
	} else {
		x->begin_ns = ready_ns;
		x->due = 0;
		barrier();
		x->turn = TURN_ASKED;
	}
}

/* Whether a record of this exchange is wanted: flags of it. */
static __always_inline __u16 exchange_flags(const struct exchange *x,
					    bool sampled)
{
	struct group_limit *limit = limit_of(x->group);
	__u64 ns = x->end_ns - x->begin_ns;

	return (sampled ? RECORD_SAMPLED : 0) |
	       (limit ? slow_flag(limit, ns, limit->turn_ns) : 0);
}

#endif
