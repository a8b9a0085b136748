/* exchange.c - one message's way from the schedule to its record. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "exchange.h"
#include "splitmix.h"

enum { STREAM_SLACK_BYTES = 1 << 18 };

uint64_t exchange_largest_request(const struct options *o)
{
	uint64_t largest = o->heartbeat_bytes;

	for (size_t i = 0; i < o->sizes.count; i++)
		if (o->sizes.values[i] > largest)
			largest = o->sizes.values[i];
	return largest;
}

/* In an open loop a late reply stalls nothing, so we can wait for it; how long
 * that of a train takes depends on the train. */
static uint64_t fixed_limit_ns(const struct options *o)
{
	if (o->timeout_ns || (!o->interval_ns && !o->train_messages))
		return o->timeout_ns;
	return NS_PER_SECOND;
}

/* Where in a gap peer `index` has its turn: peers are spread evenly over it,
 * from a random start, so that they are not all due at one instant. */
static uint64_t phase_ns(const struct options *o, uint64_t gap_ns, size_t index,
			 uint64_t random)
{
	return (random % gap_ns + gap_ns * index / o->peers.count) % gap_ns;
}

/* Each peer has an order of its own; the first, the one of its seed. */
static uint64_t seed_of(const struct options *o, size_t index)
{
	return index ? splitmix64(o->seed) + index : o->seed;
}

static struct plan plan_of(const struct options *o, size_t index)
{
	uint64_t heartbeat_ns = o->heartbeat_interval_ns;

	return (struct plan){
		.sizes = o->sizes.values,
		.size_count = o->sizes.count,
		.rounds = o->rounds,
		.duration_ns = o->duration_ns,
		.warmup_rounds = o->warmup_rounds,
		.interval_ns = o->interval_ns,
		.poisson = o->poisson,
		.seed = seed_of(o, index),
		.train_messages = o->train_messages,
		.train_gap_ns = o->train_gap_ns,
		.heartbeat_interval_ns = heartbeat_ns,
		.heartbeat_bytes = o->heartbeat_bytes,
		.heartbeat_phase_ns = heartbeat_ns ?
					      phase_ns(o, heartbeat_ns, index,
						       splitmix64(~o->seed)) :
					      0,
	};
}

int exchange_open(struct exchange *x)
{
	const struct options *o = x->options;
	uint64_t largest = exchange_largest_request(o);

	if (o->reply_bytes > largest)
		largest = o->reply_bytes;
	/* A heartbeat's size is one more. */
	if (payload_open(&x->payload, largest) ||
	    stream_open(&x->stream, o->wire, largest + STREAM_SLACK_BYTES,
			MESSAGE_BYTES_MAX) ||
	    loss_open(&x->loss, o->sizes.count + 1, fixed_limit_ns(o)))
		return fail(x->failure, ENOMEM,
			    "cannot prepare messages of "
			    "%" PRIu64
			    " bytes: out of memory; give smaller --sizes",
			    largest);
	return 0;
}

int exchange_schedule(struct exchange *x, uint64_t start_ns)
{
	const struct options *o = x->options;
	struct plan plan = plan_of(o, x->index);

	if (o->peers.count > 1)
		start_ns += phase_ns(o, o->interval_ns, x->index,
				     splitmix64(o->seed));
	if (schedule_open(&x->schedule, &plan, start_ns))
		return fail(x->failure, ENOMEM,
			    "cannot prepare the schedule: "
			    "out of memory; free some");
	return 0;
}

void exchange_close(struct exchange *x)
{
	schedule_close(&x->schedule);
	loss_close(&x->loss);
	stream_close(&x->stream);
	payload_close(&x->payload);
}

/* Datagrams do not say that their session has ended. */
int exchange_check_session(struct exchange *x)
{
	uint8_t ignored;

	if (!exchange_is_udp(x) || x->link.control < 0 ||
	    recv(x->link.control, &ignored, 1, MSG_DONTWAIT | MSG_PEEK))
		return 0;
	return exchange_lost_peer(x, 0);
}

/* Write the header and give the message its key. Two clear messages must not
 * have the same time: only the time distinguishes them. */
static void write_header(struct exchange *x, struct record *r)
{
	uint64_t real_ns;

	if (x->options->wire == WIRE_LATPROF) {
		x->key = r->sequence;
		wire_write(x->outgoing, KIND_REQUEST, (uint32_t)r->size_bytes,
			   (uint32_t)r->sequence, r->created_ns);
		return;
	}
	real_ns = clock_read_ns(CLOCK_REALTIME) / 1000 * 1000;
	x->key = real_ns > x->key ? real_ns : x->key + 1000;
	wire_write_clear(x->outgoing, (uint32_t)r->size_bytes, x->key);
}

void exchange_begin(struct exchange *x, const struct turn *turn,
		    struct message *ret)
{
	struct record *r = &ret->record;

	*r = (struct record){
		.sequence = turn->sequence,
		.size_bytes = turn->size,
		.reply_bytes = x->options->reply_bytes ?
				       x->options->reply_bytes :
				       turn->size,
		.intended_ns = turn->due_ns,
		.created_ns = turn->due_ns,
		.flags = (turn->warmup ? RECORD_WARMUP : 0) |
			 (turn->heartbeat ? RECORD_HEARTBEAT : 0),
		.peer = x->index,
		.train = turn->train,
		.train_messages = turn->train_messages,
		.train_gap_ns = turn->train_gap_ns,
	};
	if (!exchange_is_udp(x))
		r->request_end = x->request_end += turn->size;
	x->outgoing = payload_begin(&x->payload, (uint32_t)turn->sequence);
	write_header(x, r);
	ret->key = x->key;
	ret->size_index = turn->size_index;
	ret->settled = false;
}

void exchange_count_datagram(struct exchange *x, struct message *m)
{
	m->record.request_end = ++x->request_end;
}

static int fail_reply_size(struct exchange *x, uint64_t expected, uint64_t size)
{
	return fail(x->failure, EPROTO,
		    "reply has %" PRIu64 " bytes: %" PRIu64
		    " were asked for; install the same latprof at both ends",
		    size, expected);
}

int exchange_answer(struct exchange *x, struct message *m,
		    const struct header *header, const uint8_t *reply,
		    size_t length, uint64_t received_ns)
{
	struct record *r = &m->record;

	if (header->size == length && length != r->reply_bytes)
		return fail_reply_size(x, r->reply_bytes, length);
	r->received_ns = received_ns;
	r->reply_created_ns = header->created_ns;
	if (header->size != length ||
	    (!x->options->no_verify &&
	     !payload_matches(&x->payload, (uint32_t)r->sequence, reply,
			      length)))
		r->flags |= RECORD_CORRUPT;
	r->reply_bytes = length;
	if (!exchange_is_udp(x))
		r->reply_end = x->reply_end += length;
	m->settled = true;
	x->totals.replies++;
	return 0;
}

void exchange_lose(struct exchange *x, struct message *m)
{
	m->record.flags |= RECORD_LOST;
	m->settled = true;
	loss_add(&x->loss, m->size_index, m->key);
}

static struct counts *counts_of(struct exchange *x, const struct message *m)
{
	return m->record.flags & RECORD_HEARTBEAT ? &x->totals.heartbeats :
						    &x->totals.messages;
}

void exchange_abandon(struct exchange *x, const struct message *m)
{
	struct counts *counts = counts_of(x, m);

	if (m->record.flags & RECORD_WARMUP)
		return;
	counts->sent++;
	counts->unanswered++;
}

int exchange_settle(struct exchange *x, const struct message *m)
{
	struct counts *counts = counts_of(x, m);
	uint64_t flags = m->record.flags;

	if (flags & RECORD_WARMUP) {
		counts->warmup++;
	} else {
		counts->sent++;
		counts->received += !(flags & RECORD_LOST);
		counts->lost += !!(flags & RECORD_LOST);
		counts->corrupt += !!(flags & RECORD_CORRUPT);
	}
	return records_add(&x->client->records, &m->record, x->failure);
}

void exchange_ignore(struct exchange *x, uint64_t key)
{
	if (loss_take(&x->loss, key))
		x->totals.late++;
	else
		x->totals.duplicates++;
}

bool exchange_parse(struct exchange *x, const uint8_t *reply, size_t length,
		    struct header *ret)
{
	uint64_t newest = x->schedule.sequence;

	if (length < HEADER_BYTES || wire_parse(x->options->wire, reply, ret) ||
	    ret->kind != KIND_REPLY) {
		x->totals.strays++;
		return false;
	}
	if (x->options->wire == WIRE_LATPROF)
		ret->key = newest - (uint32_t)((uint32_t)newest - ret->key);
	return true;
}

/* It may have closed the connection, and can say why. */
static const struct session_reason *why_closed(const struct exchange *x,
					       int error)
{
	if (error && error != ECONNRESET && error != EPIPE)
		return NULL;
	return session_why_ended(x->options, x->peer->address, x->peer->port,
				 &x->link);
}

int exchange_lost_peer(struct exchange *x, int error)
{
	const struct session_reason *r = why_closed(x, error);
	const char *why = error ? strerror(error) : "it closed the connection";

	return fail(x->failure, error ? error : ECONNRESET,
		    "lost the responder %s port %" PRIu64 " after %" PRIu64
		    " replies: %s%s; %s",
		    x->peer->address, x->peer->port, x->totals.replies,
		    r ? "it ended the session: " : "", r ? r->why : why,
		    r ? r->advice :
			"see there why `latprof echo` ended, or start it");
}

int exchange_fail_send(struct exchange *x, const struct message *m, int error)
{
	if (!exchange_is_udp(x) || error == ECONNREFUSED)
		return exchange_lost_peer(x, error);
	return fail(x->failure, error,
		    "cannot send a datagram of %" PRIu64
		    " bytes to %s: %s; give --sizes and --address that its "
		    "route takes",
		    m->record.size_bytes, x->peer->address, strerror(error));
}

int exchange_bad_stream(struct exchange *x)
{
	return fail(x->failure, EPROTO,
		    "cannot read reply %" PRIu64 ": the "
		    "stream does not hold it; give both ends the same --wire, "
		    "and the port of a `latprof echo`",
		    x->totals.replies + 1);
}
