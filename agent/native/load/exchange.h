/*
 * exchange.h - one message's way from the schedule to its record; what the
 * closed and the open loop share.
 */
#ifndef LATPROF_LOAD_EXCHANGE_H
#define LATPROF_LOAD_EXCHANGE_H

#include <signal.h>
#include <stdbool.h>

#include "client.h"
#include "flags.h"
#include "loss.h"
#include "outstanding.h"
#include "payload.h"
#include "records.h"
#include "schedule.h"
#include "session.h"
#include "stream.h"

/* Of measured messages; warm-up ones are only in `warmup`.
 * sent = received + lost + unanswered. */
struct counts {
	uint64_t sent, received, lost, corrupt, warmup;
	uint64_t unanswered; /* the run ended before their replies came */
};

struct totals {
	struct counts messages, heartbeats;
	uint64_t replies; /* of warm-up messages and heartbeats too */
	uint64_t unsent; /* lost, because the kernel refused to send */
	/* Datagrams that came and changed nothing: */
	uint64_t late, duplicates, strays;
};

/* With one peer. */
struct exchange {
	const struct options *options;
	const volatile sig_atomic_t *stop;
	struct failure *failure;
	struct client *client;
	const struct arg_endpoint *peer;
	size_t index; /* of that among all */
	struct session_link link;
	int fd; /* its data socket */
	struct schedule schedule;
	struct payload payload;
	struct stream stream; /* UDP: its memory holds one datagram */
	struct loss loss;
	struct totals totals;
	uint8_t *outgoing; /* the message begun last */
	uint64_t key; /* of that */
	uint64_t request_end, reply_end; /* see records.h */
};

/* The longest message that is sent. */
uint64_t exchange_largest_request(const struct options *o);
/* Everything but the session, which the caller opens before and closes after,
 * and the schedule. 0 or -errno with a line. */
int exchange_open(struct exchange *x);
/* Those of all peers begin at start_ns, this one's at its turn. 0 or -errno
 * with a line. */
int exchange_schedule(struct exchange *x, uint64_t start_ns);
void exchange_close(struct exchange *x);

/* Make a message of a turn: x->outgoing is what to send. */
void exchange_begin(struct exchange *x, const struct turn *turn,
		    struct message *ret);
/* UDP: the message has left and is a datagram with a number. */
void exchange_count_datagram(struct exchange *x, struct message *m);
/* Fill in the reply, which is `length` bytes long. -EPROTO with a line when
 * the two ends do not agree on the size of replies. */
int exchange_answer(struct exchange *x, struct message *m,
		    const struct header *header, const uint8_t *reply,
		    size_t length, uint64_t received_ns);
/* The message is lost: no reply, or never sent. */
void exchange_lose(struct exchange *x, struct message *m);
/* The message is answered or lost: count it and keep its record. */
int exchange_settle(struct exchange *x, const struct message *m);
/* The run ends before the message is answered or lost. */
void exchange_abandon(struct exchange *x, const struct message *m);
/* A reply to none of those that wait. */
void exchange_ignore(struct exchange *x, uint64_t key);
/* Read a datagram's header; widens the key to 64 bits. False: not a reply. */
bool exchange_parse(struct exchange *x, const uint8_t *reply, size_t length,
		    struct header *ret);
/* Say in a line if the responder has ended a session of datagrams. */
int exchange_check_session(struct exchange *x);
/* Say in a line that the peer is gone: error 0 means that it closed. */
int exchange_lost_peer(struct exchange *x, int error);
/* Say in a line that a message cannot be sent. */
int exchange_fail_send(struct exchange *x, const struct message *m, int error);
/* Say that the stream holds something that is not the reply. */
int exchange_bad_stream(struct exchange *x);

/* The two ways to pace a ping-pong. Both run the whole schedule, or until
 * *x->stop. 0, also when stopped, or -errno with a line for the user. */

/* One message after the other: each waits for the reply before it. */
int closed_loop(struct exchange *x);
/* Messages leave when they are due, whatever has become of earlier ones; also
 * trains. To all peers at once. */
int open_loop(struct client *c);

static inline bool exchange_is_udp(const struct exchange *x)
{
	return x->options->protocol == PROTOCOL_UDP;
}

#endif
