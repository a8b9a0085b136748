/* bulk_service.c - the service `bulk`: one channel of a client's run. */
#include <errno.h>
#include <stdlib.h>

#include "bulk_channel.h"
#include "bulk_service.h"
#include "endpoint.h"

/* Frames, slots, gaps, loss runs, and what calls receive. */
enum { CHANNEL_BYTES = 4 << 20 };

bool bulk_allows(const struct terms *t)
{
	return !t->reply_bytes && !t->think_ns &&
	       t->own[BULK_TERM_RECEIVE_BUFFER] <= BULK_RECEIVE_BUFFER_MAX;
}

uint64_t bulk_memory_bytes(const struct terms *t)
{
	uint64_t queued = t->own[BULK_TERM_RECEIVE_BUFFER];
	uint64_t batches = 2 * BULK_BATCH_UNITS * (uint64_t)t->largest_bytes;

	if (t->transport == PROTOCOL_TCP)
		return CHANNEL_BYTES;
	/* Until its plan comes, the socket has what each begins with. */
	if (queued < ENDPOINT_DATAGRAM_BUFFER_BYTES)
		queued = ENDPOINT_DATAGRAM_BUFFER_BYTES;
	/* The kernel grants the double of what is asked for. */
	return CHANNEL_BYTES + batches + 2 * queued;
}

/* Does the plan keep to the terms that were agreed on? */
static bool is_within(const struct bulk_plan *plan, const struct terms *t)
{
	return plan->unit_bytes <= t->largest_bytes &&
	       plan->receive_buffer_bytes <= t->own[BULK_TERM_RECEIVE_BUFFER] &&
	       plan->duration_ns <= t->duration_ns;
}

static int run(struct bulk_channel *c)
{
	int error = bulk_channel_open(c);

	if (!error)
		error = bulk_channel_accept(c, is_within);
	return error ? error : bulk_channel_run(c);
}

int bulk_serve(struct session *session)
{
	/* More than a thread's stack should hold. */
	struct bulk_channel *c = calloc(1, sizeof(*c));
	int error;

	if (!c)
		return -ENOMEM;
	c->transport = session->terms.transport;
	c->control_fd = session->control;
	c->data_fd = session->data;
	c->session = session;
	error = run(c);
	if (error == -EPROTO || error == -EINVAL)
		session_count(&session->counters.rejected, 1);
	bulk_channel_close(c);
	free(c);
	return error;
}
