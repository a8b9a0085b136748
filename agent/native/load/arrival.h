/*
 * arrival.h - a client between its connection and its session: what it has
 * said, what it is answered, what is expected next. No sockets here.
 */
#ifndef LATPROF_LOAD_ARRIVAL_H
#define LATPROF_LOAD_ARRIVAL_H

#include "handshake.h"

enum arrival_stage {
	ARRIVAL_HELLO,
	ARRIVAL_PROOF,
	ARRIVAL_OPEN, /* UDP: a datagram with the token */
	ARRIVAL_BEGIN, /* UDP: the client knows that it came */
	ARRIVAL_DONE, /* the session begins */
	ARRIVAL_LEAVING, /* it is refused, and gets the reason */
};

/* Who decides on terms. STATUS_OK or why not; *bound is what it may be. */
struct admission {
	enum handshake_status (*admit)(void *context, const struct terms *terms,
				       uint64_t *bound);
	void *context;
	uint32_t workloads;
	struct limits limits; /* as the client gets them */
};

struct arrival {
	enum arrival_stage stage;
	struct handshake handshake;
	struct terms terms; /* from ARRIVAL_PROOF on */
	enum handshake_status refused; /* why, when it is leaving */
	size_t got; /* bytes of the message that is coming */
	uint8_t scratch[64]; /* what no message is made of */
};

/* Bytes to send; empty in most cases. */
struct answer {
	const uint8_t *bytes;
	size_t size;
};

void arrival_begin(struct arrival *a, const struct secret *secret);
/* Where the next bytes go, and how many at most: never 0, and never more than
 * belong to the handshake. Not for ARRIVAL_DONE. */
size_t arrival_room(struct arrival *a, uint8_t **ret);
/* So many bytes came there. 0, -EPROTO where they are no handshake, -EIO. */
int arrival_take(struct arrival *a, size_t count, const struct admission *d,
		 struct answer *ret);
/* UDP: its datagram came. */
void arrival_opened(struct arrival *a);

#endif
