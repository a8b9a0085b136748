/* arrival.c - a client between its connection and its session. */
#include <errno.h>
#include <string.h>

#include "arrival.h"
#include "session.h"

void arrival_begin(struct arrival *a, const struct secret *secret)
{
	*a = (struct arrival){ .handshake.secret = secret };
}

static size_t room(uint8_t *message, size_t size, size_t got, uint8_t **ret)
{
	*ret = message + got;
	return size - got;
}

size_t arrival_room(struct arrival *a, uint8_t **ret)
{
	struct handshake *h = &a->handshake;

	switch (a->stage) {
	case ARRIVAL_HELLO:
		/* Of another version only the beginning is known. */
		return room(h->hello,
			    a->got < HANDSHAKE_PREFIX_BYTES ?
				    HANDSHAKE_PREFIX_BYTES :
				    HELLO_BYTES,
			    a->got, ret);
	case ARRIVAL_PROOF:
		return room(h->proof, PROOF_BYTES, a->got, ret);
	case ARRIVAL_BEGIN:
		return room(a->scratch, FRAME_HEADER_BYTES, a->got, ret);
	default:
		return room(a->scratch, sizeof(a->scratch), 0, ret);
	}
}

static void enter(struct arrival *a, enum arrival_stage stage)
{
	a->stage = stage;
	a->got = 0;
}

static int challenge(struct arrival *a, const struct admission *d,
		     enum handshake_status status, uint64_t bound,
		     struct answer *ret)
{
	int error =
		handshake_challenge(&a->handshake, status, d->workloads, bound);

	a->refused = status;
	enter(a, status == STATUS_OK ? ARRIVAL_PROOF : ARRIVAL_LEAVING);
	*ret = (struct answer){ a->handshake.challenge, CHALLENGE_BYTES };
	return error;
}

static int take_hello(struct arrival *a, const struct admission *d,
		      struct answer *ret)
{
	enum handshake_status status;
	uint64_t bound = 0;

	if (a->got < HANDSHAKE_PREFIX_BYTES)
		return 0;
	if (handshake_read_hello(&a->handshake, &a->terms))
		return -EPROTO;
	if (handshake_version(a->handshake.hello) != HANDSHAKE_VERSION)
		return challenge(a, d, STATUS_VERSION, 0, ret);
	if (a->got < HELLO_BYTES)
		return 0;
	status = d->admit(d->context, &a->terms, &bound);
	return challenge(a, d, status, bound, ret);
}

static int take_proof(struct arrival *a, const struct admission *d,
		      struct answer *ret)
{
	enum arrival_stage next = ARRIVAL_LEAVING;
	uint64_t bound;

	if (a->got < PROOF_BYTES)
		return 0;
	a->refused = STATUS_SECRET;
	if (handshake_is_proven(&a->handshake))
		a->refused = d->admit(d->context, &a->terms, &bound);
	if (a->refused == STATUS_OK)
		next = a->terms.transport == PROTOCOL_UDP ? ARRIVAL_OPEN :
							    ARRIVAL_DONE;
	enter(a, next);
	*ret = (struct answer){ a->handshake.accept, ACCEPT_BYTES };
	return handshake_accept(&a->handshake, a->refused, &d->limits);
}

static int take_begin(struct arrival *a)
{
	static const uint8_t begin[FRAME_HEADER_BYTES] = { FRAME_BEGIN };

	if (memcmp(a->scratch, begin, a->got))
		return -EPROTO;
	if (a->got == FRAME_HEADER_BYTES)
		enter(a, ARRIVAL_DONE);
	return 0;
}

int arrival_take(struct arrival *a, size_t count, const struct admission *d,
		 struct answer *ret)
{
	*ret = (struct answer){ 0 };
	a->got += count;
	switch (a->stage) {
	case ARRIVAL_HELLO:
		return take_hello(a, d, ret);
	case ARRIVAL_PROOF:
		return take_proof(a, d, ret);
	case ARRIVAL_BEGIN:
		return take_begin(a);
	case ARRIVAL_LEAVING:
		return 0;
	default: /* nothing is due on this connection */
		return -EPROTO;
	}
}

void arrival_opened(struct arrival *a)
{
	enter(a, ARRIVAL_BEGIN);
}
