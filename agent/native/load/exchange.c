/* exchange.c - one message's way from the schedule to its record. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "exchange.h"

static const uint64_t upkeep_gap_ns = 250 * NS_PER_MS;

enum { STREAM_SLACK_BYTES = 1 << 18 };

static size_t largest_size(const struct options *o)
{
	size_t largest = o->reply_bytes;

	for (size_t i = 0; i < o->sizes.count; i++)
		if (o->sizes.values[i] > largest)
			largest = o->sizes.values[i];
	return largest;
}

/* In an open loop a late reply stalls nothing, so we can wait for it. */
static uint64_t fixed_limit_ns(const struct options *o)
{
	if (o->timeout_ns || !o->interval_ns)
		return o->timeout_ns;
	return NS_PER_SECOND;
}

static struct plan plan_of(const struct options *o)
{
	return (struct plan){
		.sizes = o->sizes.values,
		.size_count = o->sizes.count,
		.rounds = o->rounds,
		.duration_ns = o->duration_ns,
		.warmup_rounds = o->warmup_rounds,
		.interval_ns = o->interval_ns,
		.poisson = o->poisson,
		.seed = o->seed,
	};
}

int exchange_open(struct exchange *x)
{
	const struct options *o = x->options;
	size_t largest = largest_size(o);
	struct plan plan = plan_of(o);
	int error = records_open(&x->records, o->output, x->failure);

	if (error)
		return error;
	if (payload_open(&x->payload, largest) ||
	    stream_open(&x->stream, o->wire, largest + STREAM_SLACK_BYTES,
			MESSAGE_BYTES_MAX) ||
	    loss_open(&x->loss, o->sizes.count, fixed_limit_ns(o)))
		return fail(x->failure, ENOMEM,
			    "cannot prepare messages of "
			    "%zu bytes: out of memory; give smaller --sizes",
			    largest);
	/* A millisecond ahead: the first message is on time as well. */
	x->started_ns = x->upkept_ns = clock_ns() + NS_PER_MS;
	if (schedule_open(&x->schedule, &plan, x->started_ns))
		return fail(x->failure, ENOMEM,
			    "cannot prepare the schedule: "
			    "out of memory; free some");
	return 0;
}

static void show_progress(const struct exchange *x, uint64_t now_ns)
{
	const struct totals *t = &x->totals;
	uint64_t done = t->received + t->lost, total;
	uint64_t measured_ns = x->schedule.measured_ns;

	if (x->options->progress_fd < 0)
		return;
	total = schedule_total(&x->schedule);
	if (!total) {
		total = x->options->duration_ns / NS_PER_MS;
		done = measured_ns && now_ns > measured_ns ?
			       (now_ns - measured_ns) / NS_PER_MS :
			       0;
	}
	/* Whoever watched may have gone; the run goes on. */
	dprintf((int)x->options->progress_fd, "%" PRIu64 " %" PRIu64 "\n", done,
		total);
}

int exchange_close(struct exchange *x)
{
	int error = records_close(&x->records, x->failure);

	show_progress(x, clock_ns());
	schedule_close(&x->schedule);
	loss_close(&x->loss);
	stream_close(&x->stream);
	payload_close(&x->payload);
	return error;
}

/* Datagrams do not say that their session has ended. */
static bool has_ended(const struct exchange *x)
{
	uint8_t ignored;

	return x->control >= 0 &&
	       !recv(x->control, &ignored, 1, MSG_DONTWAIT | MSG_PEEK);
}

int exchange_upkeep(struct exchange *x, uint64_t now_ns)
{
	if ((int64_t)(now_ns - x->upkept_ns) < (int64_t)upkeep_gap_ns)
		return 0;
	x->upkept_ns = now_ns;
	if (has_ended(x))
		return exchange_lost_peer(x, 0);
	show_progress(x, now_ns);
	return records_write(&x->records, SIZE_MAX, x->failure);
}

/* Write the header and give the message its key. Two clear messages must not
 * have the same time: it is all that tells them apart. */
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
		.flags = turn->warmup ? RECORD_WARMUP : 0,
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

int exchange_settle(struct exchange *x, const struct message *m)
{
	struct totals *t = &x->totals;
	uint64_t flags = m->record.flags;

	if (flags & RECORD_WARMUP) {
		t->warmup++;
	} else {
		t->sent++;
		t->received += !(flags & RECORD_LOST);
		t->lost += !!(flags & RECORD_LOST);
		t->corrupt += !!(flags & RECORD_CORRUPT);
	}
	return records_add(&x->records, &m->record, x->failure);
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

int exchange_lost_peer(struct exchange *x, int error)
{
	const struct options *o = x->options;

	return fail(x->failure, error ? error : ECONNRESET,
		    "lost the responder %s port %" PRIu64 " after %" PRIu64
		    " replies: %s; see there why `latprof-load echo` ended, "
		    "or start it",
		    o->address, o->port, x->totals.replies,
		    error ? strerror(error) : "it closed the connection");
}

int exchange_fail_send(struct exchange *x, const struct message *m, int error)
{
	if (!exchange_is_udp(x) || error == ECONNREFUSED)
		return exchange_lost_peer(x, error);
	return fail(x->failure, error,
		    "cannot send a datagram of %" PRIu64
		    " bytes to %s: %s; give --sizes and --address that its "
		    "route takes",
		    m->record.size_bytes, x->options->address, strerror(error));
}

int exchange_bad_stream(struct exchange *x)
{
	return fail(x->failure, EPROTO,
		    "cannot read reply %" PRIu64 ": the "
		    "stream does not hold it; give both ends the same --wire, "
		    "and the port of a `latprof-load echo`",
		    x->totals.replies + 1);
}
