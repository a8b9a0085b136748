/*
 * exchange.h - one message's way from the schedule to its record; what the
 * closed and the open loop share.
 */
#ifndef LATPROF_LOAD_EXCHANGE_H
#define LATPROF_LOAD_EXCHANGE_H

#include <signal.h>
#include <stdbool.h>

#include "flags.h"
#include "loss.h"
#include "outstanding.h"
#include "payload.h"
#include "records.h"
#include "schedule.h"
#include "stream.h"

/* Of measured messages; warm-up ones are only in `warmup`.
 * sent = received + lost + unanswered. */
struct totals {
	uint64_t sent, received, lost, corrupt, warmup;
	uint64_t unanswered; /* the run ended before their replies came */
	uint64_t replies; /* of warm-up messages too */
	uint64_t unsent; /* lost, because the kernel refused to send */
	/* Datagrams that came and changed nothing: */
	uint64_t late, duplicates, strays;
};

struct exchange {
	const struct options *options;
	const volatile sig_atomic_t *stop;
	struct failure *failure;
	int fd;
	int control; /* a UDP session's connection; else -1 */
	struct schedule schedule;
	struct payload payload;
	struct stream stream; /* UDP: its memory holds one datagram */
	struct loss loss;
	struct records records;
	struct totals totals;
	uint8_t *outgoing; /* the message begun last */
	uint64_t key; /* of that */
	uint64_t request_end, reply_end; /* see records.h */
	uint64_t started_ns, upkept_ns;
};

/* Everything but the socket, which the caller has put into x->fd and closes.
 * 0 or -errno with a line. */
int exchange_open(struct exchange *x);
/* Write the last records and the last progress. */
int exchange_close(struct exchange *x);

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
/* A reply to none of those that wait. */
void exchange_ignore(struct exchange *x, uint64_t key);
/* Read a datagram's header; widens the key to 64 bits. False: not a reply. */
bool exchange_parse(struct exchange *x, const uint8_t *reply, size_t length,
		    struct header *ret);
/* Four times a second: write records and progress. Between messages only. */
int exchange_upkeep(struct exchange *x, uint64_t now_ns);
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
/* Messages leave when they are due, whatever has become of earlier ones. */
int open_loop(struct exchange *x);

static inline bool exchange_is_udp(const struct exchange *x)
{
	return x->options->protocol == PROTOCOL_UDP;
}

#endif
