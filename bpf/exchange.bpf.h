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
 * first bytes. A window of requests looks like turns at first: of TCP each one
 * counts when the next is over, too, or nothing more comes.
 *
 * A request that is not answered is counted when its connection ends, of
 * datagrams when the next one is sent. What a client said before a pause, and
 * nobody answered, is no part of its request.
 *
 * TLS: a handshake is no exchange, nor is what the server sends before it has
 * read the first request (tickets). How it ends, the server's hello says; what
 * a server has read is known by its length only. Of a connection's first
 * exchange the server's time is not known where a ticket may have preceded a
 * reply of several messages; and it is not counted where the request came with
 * the hello (0-RTT) or may have been read with a client's certificate: how many
 * there are at most is counted.
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
	__u8 state : 4; /* enum exchange_state, bits */
	__u8 due; /* server: flags of a record, when the reply leaves, in units
		   * of the first */
};

enum exchange_state {
	TAKES_NO_TURNS = 1, /* both ends talk at once */
	IN_HANDSHAKE = 2,
	HANDSHAKE_ENDED = 4, /* the client has said its last word of it */
	REPLY_UNSURE = 8, /* server: a ticket may precede its first reply */
	REQUEST_EARLY = REPLY_UNSURE, /* client: it came with the hello */
	WAS_ANSWERED =
		IN_HANDSHAKE, /* datagrams: else it may go one way only */
};

/* What an end knows of a handshake, beside its state. */
struct handshake {
	__u8 heard; /* bytes that it has read since it spoke */
	/* server: enum tls_end; client: how many words of its second flight it
	 * has said, or WORDS_IN_CLEAR; later the bytes that it said last */
	__u8 end;
};

/* Nothing on its way, and all read, for so long: what was said before was no
 * part of the request. */
#define PAUSE_NS 100000000ULL
/* Whoever closes so soon after its last words waits for no answer. */
#define CLOSING_NS 1000000ULL
/* Datagrams that follow each other sooner are one request. */
#define BURST_NS 10000000ULL
#define MOST_BYTES 0xff /* more is as much */
#define WORDS_IN_CLEAR 0xff /* before TLS 1.3: the server has the last one */
#define MOST_WORDS 3 /* certificate, proof, last word */
#define ALERT_BYTES 24
#define FILLED_BYTES 16 /* some fill records of TLS 1.3 up by (Java) */

static __always_inline void exchanges_add(const struct exchange *x)
{
	struct group_counts *counts = counts_of_group(x->group);

	if (counts)
		__sync_fetch_and_add(&counts->exchanges, 1);
}

static __always_inline void exchange_count(const struct exchange *x,
					   __u32 quantity, __u64 ns)
{
	histogram_add(x->group, quantity, ns, 1);
	exchanges_add(x);
}

#define HELD_NS 64 /* unit of what is held */

/* The one that is held counts, if any, and this one is held; 0 none. Of turns
 * that were none nothing counts. */
static __noinline void exchange_hold(struct exchange *x, __u32 *held, __u64 ns)
{
	__u64 units = (ns + HELD_NS / 2) / HELD_NS;
	__u32 before;

	if (ns && !units)
		units = 1;
	before = atomic_exchange(held, units > 0xffffffff ? 0xffffffff : units);
	if (before && !(x->state & TAKES_NO_TURNS))
		exchange_count(x, x->role == ROLE_CLIENT ? RESPONSE : SERVER,
			       (__u64)before * HELD_NS);
}

/* At the server. What became readable unseen has no time. */
static __noinline void answer_count(struct exchange *x, __u32 *held)
{
	if (x->begin_ns)
		exchange_hold(x, held, x->end_ns - x->begin_ns);
	else
		exchanges_add(x);
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

static __noinline void uncounted_count(const struct exchange *x)
{
	struct group_counts *counts = counts_of_group(x->group);

	if (counts)
		__sync_fetch_and_add(&counts->uncounted, 1);
}

static __always_inline bool is_alert(__u64 bytes)
{
	return bytes == ALERT_BYTES || bytes == ALERT_BYTES + FILLED_BYTES;
}

/* Nobody will answer the client any more. */
static __always_inline void
exchange_abandon(struct exchange *x, const struct handshake *h, __u64 now)
{
	if (x->role != ROLE_CLIENT || x->turn != TURN_ASKED)
		return;
	x->turn = TURN_NONE;
	if (now - x->spoke_ns >= CLOSING_NS && !is_alert(h->end))
		unanswered_count(x);
}

/* Whether so many bytes may be a client's last word, which a change of cipher
 * may precede. */
static __always_inline bool is_last_word(__u64 bytes, __u64 end)
{
	return bytes == end || bytes == end + CHANGE_BYTES ||
	       bytes == end + FILLED_BYTES ||
	       bytes == end + FILLED_BYTES + CHANGE_BYTES;
}

#define EARLY_END_BYTES 26 /* of what came with the hello, precedes it then */

/* Whether the server has read the client's last word, and nothing behind it.
 * Some read the header of each record by itself. */
static __noinline bool last_word_was_read(const struct handshake *h,
					  __u64 bytes)
{
	if (h->end == TLS_END_SERVER)
		return false;
	if (h->end == TLS_END_UNKNOWN)
		return is_last_word(h->heard, TLS_END_13) ||
		       is_last_word(h->heard, TLS_END_13_LONG);
	if (!is_of_13(h->end))
		return h->heard == h->end;
	bytes += TLS_HEADER_BYTES;
	return is_last_word(h->heard, h->end) ||
	       h->heard == h->end + EARLY_END_BYTES ||
	       (h->heard > bytes &&
		(bytes == h->end || bytes == h->end + FILLED_BYTES));
}

static __noinline void request_was_early(struct exchange *x)
{
	if (x->state & REQUEST_EARLY)
		return;
	x->state |= REQUEST_EARLY;
	uncounted_count(x);
}

/* `until`: when the last word was said, or read. One whose hello was not seen
 * has no time. */
static __noinline void handshake_end(struct exchange *x, __u64 until)
{
	if (x->begin_ns && until > x->begin_ns)
		histogram_add(x->group, TLS_HANDSHAKE, until - x->begin_ns, 1);
	x->state |= HANDSHAKE_ENDED;
}

/* The client sends a part of a handshake, as its head shows. */
static __noinline void client_says(struct exchange *x, __u16 head, __u64 bytes,
				   __u64 now, struct handshake *h)
{
	bool again = x->state & IN_HANDSHAKE;
	bool hello = head == HEAD_TLS_HELLO || head == HEAD_TLS_EARLY;

	x->state |= IN_HANDSHAKE;
	if (!again)
		x->begin_ns = hello ? now : 0;
	if (head == HEAD_TLS_EARLY)
		request_was_early(x);
	if (hello) {
		/* again, where the server has asked for another */
		x->state &= ~HANDSHAKE_ENDED;
		h->end = 0;
	} else if (head == HEAD_TLS_HANDSHAKE) {
		x->state |= HANDSHAKE_ENDED;
		h->end = WORDS_IN_CLEAR;
	} else if (bytes > CHANGE_BYTES && !(x->state & HANDSHAKE_ENDED)) {
		handshake_end(x, now);
	}
}

/* The server does. `end`: of its hello. */
static __noinline void server_says(struct exchange *x, __u16 head, __u8 end,
				   struct handshake *h)
{
	bool again = x->state & IN_HANDSHAKE;

	x->state |= IN_HANDSHAKE;
	x->state &= ~REPLY_UNSURE;
	if (head == HEAD_TLS_HELLO) {
		x->state &= ~HANDSHAKE_ENDED;
		h->end = end;
	} else if (again && h->heard && !is_of_13(h->end)) {
		x->state |= HANDSHAKE_ENDED;
		h->end = TLS_END_SERVER;
	}
	h->heard = 0;
}

/* Whether what the client says, encrypted, is still of the handshake. Its
 * flight may be one message, or one for each word. */
static __noinline bool client_goes_on(struct exchange *x, __u64 bytes,
				      __u64 now, struct handshake *h)
{
	if (x->state & HANDSHAKE_ENDED) {
		if (h->end == WORDS_IN_CLEAR)
			handshake_end(x, x->end_ns);
		x->state &= ~(IN_HANDSHAKE | REQUEST_EARLY);
		return false;
	}
	if (x->state & REQUEST_EARLY || is_last_word(bytes, TLS_END_13) ||
	    is_last_word(bytes, TLS_END_13_LONG))
		handshake_end(x, now);
	else if (++h->end == MOST_WORDS)
		x->state |= HANDSHAKE_ENDED;
	return true;
}

/* The same of the server: more of its flight, or a ticket. */
static __noinline bool server_goes_on(struct exchange *x, struct handshake *h)
{
	bool ended = x->state & HANDSHAKE_ENDED;

	if (!h->heard) {
		x->turn = TURN_NONE;
		/* what it says later is a reply */
		if (ended)
			h->end = TLS_END_SERVER;
		return true;
	}
	x->state &= ~IN_HANDSHAKE;
	h->heard = 0;
	if (h->end != TLS_END_UNKNOWN && !is_of_13(h->end))
		return false;
	if (ended) {
		x->state |= REPLY_UNSURE;
	} else {
		/* was the request in it? */
		x->turn = TURN_ANSWERED;
		uncounted_count(x);
	}
	return false;
}

/* Each message of DNS is whole: another query before an answer, or another
 * answer before a query, is of a window of them (or of a zone's transfer). */
static __always_inline bool is_window_of_dns(const struct exchange *x,
					     __u16 head, __u64 now)
{
	if (x->role == ROLE_CLIENT)
		return head == HEAD_DNS_QUERY && x->turn == TURN_ASKED &&
		       now - x->spoke_ns < PAUSE_NS;
	return head == HEAD_DNS_ANSWER && x->turn == TURN_ANSWERED;
}

/* Whether a message takes part in turns; what it is says its head. `end`: of a
 * server's hello, enum tls_end. */
static __always_inline bool takes_turn(struct exchange *x,
				       const struct head *head, __u64 bytes,
				       __u64 now, __u8 end, struct handshake *h)
{
	bool client = x->role == ROLE_CLIENT, closing;

	if (x->state & TAKES_NO_TURNS)
		return false;
	switch (head->kind) {
	case HEAD_HTTP2:
		turns_overlap(x);
		return false;
	case HEAD_TLS_HELLO:
	case HEAD_TLS_EARLY:
	case HEAD_TLS_HANDSHAKE:
	case HEAD_TLS_CHANGE:
		x->turn = TURN_NONE;
		if (client)
			client_says(x, head->kind, bytes, now, h);
		else
			server_says(x, head->kind, end, h);
		return false;
	case HEAD_TLS_ALERT:
	case HEAD_INTERIM:
		return false;
	default:
		break;
	}
	if (x->state & IN_HANDSHAKE)
		return client ? !client_goes_on(x, bytes, now, h) :
				!server_goes_on(x, h);
	closing = !client && head->kind == HEAD_TLS_DATA && is_alert(bytes) &&
		  is_alert(h->heard);
	h->heard = 0;
	if (closing)
		return false;
	if (client)
		h->end = head->kind != HEAD_TLS_DATA ? 0 :
			 bytes < MOST_BYTES	     ? bytes :
						       MOST_BYTES;
	if (is_window_of_dns(x, head->kind, now)) {
		turns_overlap(x);
		return false;
	}
	return true;
}

/* An end has read so much: of a handshake, of the server's request, or of what
 * answers the client's closing words, which is no reply. */
static __always_inline void handshake_read(struct exchange *x, __u64 bytes,
					   __u64 now, struct handshake *h)
{
	h->heard =
		bytes > MOST_BYTES - h->heard ? MOST_BYTES : h->heard + bytes;
	if (!(x->state & IN_HANDSHAKE)) {
		if (x->role == ROLE_CLIENT && is_alert(h->end) &&
		    is_alert(h->heard))
			x->turn = TURN_NONE;
		return;
	}
	if (x->role == ROLE_CLIENT) {
		x->end_ns = now;
		/* what it said was its flight, of another length */
		if (h->end)
			x->state |= HANDSHAKE_ENDED;
	} else if (!(x->state & HANDSHAKE_ENDED) &&
		   last_word_was_read(h, bytes)) {
		x->state |= HANDSHAKE_ENDED;
		h->heard = 0;
	}
}

/* The client's reply is whole. `unread`: more of it waits. `held`: where it is
 * held until the next one is over; NULL: nowhere. */
static __always_inline bool exchange_end(struct exchange *x, bool unread,
					 __u32 *held)
{
	if (x->role != ROLE_CLIENT || x->turn != TURN_ANSWERED)
		return false;
	/* it may be found to be idle just now */
	if (!atomic_replace(&x->turn, TURN_ANSWERED, TURN_NONE))
		return false;
	if (unread) {
		turns_overlap(x);
		return false;
	}
	if (held)
		exchange_hold(x, held, x->end_ns - x->begin_ns);
	else
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

/* The server has said nothing behind its first reply: that was no ticket. */
static __noinline void reply_was_one(struct exchange *x, __u32 *held)
{
	if (x->role != ROLE_SERVER || x->turn != TURN_ANSWERED ||
	    !(x->state & REPLY_UNSURE))
		return;
	x->state &= ~REPLY_UNSURE;
	answer_count(x, held);
}

/* The server sends: whether it begins to answer what it has read. */
static __always_inline bool exchange_answer(struct exchange *x, __u64 now,
					    bool unread, __u64 bytes,
					    __u32 *held)
{
	bool asked = x->turn == TURN_ASKED;

	if (asked) {
		x->end_ns = now;
	} else if (x->state & REPLY_UNSURE && x->turn == TURN_ANSWERED &&
		   !is_alert(bytes)) {
		x->state &= ~REPLY_UNSURE;
		exchanges_add(x);
	}
	x->turn = TURN_ANSWERED;
	if (asked && unread)
		turns_overlap(x);
	if (!asked || unread || x->state & REPLY_UNSURE)
		return false;
	answer_count(x, held);
	return x->begin_ns;
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
