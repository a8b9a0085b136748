/*
 * exchange.bpf.h - turns of a conversation, as one end sees them: what it says
 * until the other answers.
 *
 *   client:  first send of the request  ->  last read of the reply: response
 *   server:  the request's last byte readable  ->  first send of the reply
 *
 * The client's exchange is over when it asks again, or closes; or when nothing
 * more has come for a while (idle.bpf.c). Turns in which an end went on
 * before it had read all that was there, or to which an answer came that left
 * before they arrived, are no exchange (counted): which bytes answer which is
 * not to be told from outside.
 */
#ifndef LATPROF_EXCHANGE_H
#define LATPROF_EXCHANGE_H

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
		__u64 spoke_ns; /* datagrams: this end did last */
	};
	__u32 turn; /* enum turn_state */
	__u16 group;
	__u8 role;
	__u8 due; /* server: flags of a record, when the reply leaves, in units
		   * of the first */
};

static __always_inline void exchange_count(const struct exchange *x,
					   __u32 quantity, __u64 ns)
{
	struct group_counts *counts = counts_of_group(x->group);

	histogram_add(x->group, quantity, ns, 1);
	if (counts)
		__sync_fetch_and_add(&counts->exchanges, 1);
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
		count(talked_at_once);
		return false;
	}
	exchange_count(x, RESPONSE, x->end_ns - x->begin_ns);
	return true;
}

/* The client asks, or goes on asking. */
static __always_inline void exchange_ask(struct exchange *x, __u64 now)
{
	if (x->turn == TURN_NONE && !options.closing) {
		x->turn = TURN_ASKED;
		x->begin_ns = now;
	}
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
		count(talked_at_once);
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
	if (x->role == ROLE_CLIENT) {
		if (x->turn == TURN_NONE)
			return; /* nobody asked for it */
		if (x->turn == TURN_ASKED && !heard) {
			count(talked_at_once);
			x->turn = TURN_NONE;
			return;
		}
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
