/*
 * bulk.c - the client of the service `bulk`: all channels of a run.
 *
 * Each channel is a session of its own. The main thread opens all of them,
 * lets them go together, and waits: for their ends, and for signals. The
 * first signal ends the sending, and what was sent is still accounted for;
 * the second ends that, too.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "bulk.h"
#include "bulk_service.h"
#include "clock.h"
#include "interrupts.h"

enum { PROGRESS_MS = 250 };

/* Hold back what ppoll() alone lets through; *ret is what it does with. */
static void hold_signals(sigset_t *ret)
{
	sigset_t held;

	sigemptyset(&held);
	sigaddset(&held, SIGINT);
	sigaddset(&held, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &held, ret);
}

/* Whole units, shared out so that no channel has more than one more. */
static uint64_t share_of(const struct options *o, uint64_t channel)
{
	uint64_t units = (o->volume_bytes + o->unit_bytes - 1) / o->unit_bytes;

	return units / o->channels + (channel < units % o->channels);
}

static struct bulk_plan plan_of(const struct options *o, uint64_t channel)
{
	return (struct bulk_plan){
		.channel = channel,
		.channels = o->channels,
		.direction = o->direction,
		.unit_bytes = o->unit_bytes,
		.units = share_of(o, channel),
		.duration_ns = o->duration_ns,
		.rate_bps = o->rate_bps,
		.slot_ns = o->slot_ns,
		.receive_buffer_bytes = o->receive_buffer_bytes,
		.send_way = o->send_way,
		.receive_way = o->receive_way,
		.spin = o->spin,
	};
}

static struct terms terms_of(const struct options *o)
{
	return (struct terms){
		.workload = WORKLOAD_BULK,
		.transport = o->protocol,
		.largest_bytes = (uint32_t)o->unit_bytes,
		.duration_ns = o->duration_ns,
		.own = { [BULK_TERM_RECEIVE_BUFFER] = o->receive_buffer_bytes },
	};
}

static const char *reason(int error)
{
	switch (error) {
	case -ECONNRESET:
		return "the responder ended it";
	case -ETIMEDOUT:
		return "no answer";
	case -EPROTO:
		return "what the responder says makes no sense";
	case -ECANCELED:
		return "it was not waited for";
	default:
		return strerror(-error);
	}
}

static int fail_channel(const struct bulk_worker *w, int error,
			const char *what, struct failure *failure)
{
	const struct options *o = w->bulk->options;
	const struct session_reason *r = NULL;

	if (error == -ECONNRESET || error == -EPIPE)
		r = session_why_ended(o, o->address, o->port, &w->link);
	return fail(
		failure, -error,
		"cannot %s channel %" PRIu64 " with %s port %" PRIu64
		": %s%s; %s",
		what, w->channel.plan.channel, o->address, o->port,
		r ? "it ended the session: " : "", r ? r->why : reason(error),
		r ? r->advice : "see that the responder runs, and its limits");
}

static int open_worker(struct bulk_worker *w, struct failure *failure)
{
	const struct options *o = w->bulk->options;
	struct bulk_channel *c = &w->channel;
	struct terms terms = terms_of(o);
	socklen_t length = sizeof(w->local);
	int error =
		session_open(o, o->address, o->port, &terms, &w->link, failure);

	if (error)
		return error;
	c->client = true;
	c->transport = o->protocol;
	c->control_fd = w->link.control;
	c->data_fd = w->link.data;
	getsockname(c->data_fd, (struct sockaddr *)&w->local, &length);
	error = bulk_channel_open(c) ?: bulk_channel_prepare(c);
	return error ? fail_channel(w, error, "prepare", failure) : 0;
}

static int open_all(struct bulk *b, struct failure *failure)
{
	const struct options *o = b->options;
	int error = 0;

	b->workers = calloc(o->channels, sizeof(*b->workers));
	b->ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!b->workers || b->ended < 0)
		return fail(failure, ENOMEM,
			    "cannot prepare %" PRIu64 " channels: out of "
			    "memory; give fewer --channels",
			    o->channels);
	for (uint64_t i = 0; !error && i < o->channels; i++) {
		struct bulk_worker *w = &b->workers[b->count++];

		w->bulk = b;
		w->link = (struct session_link){ .control = -1, .data = -1 };
		w->channel.plan = plan_of(o, i);
		error = open_worker(w, failure);
	}
	return error;
}

static void *run_worker(void *argument)
{
	struct bulk_worker *w = argument;
	uint64_t one = 1;

	w->error = bulk_channel_run(&w->channel);
	endpoint_facts(w->channel.data_fd, w->channel.transport, &w->facts);
	while (write(w->bulk->ended, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	return NULL;
}

static void stop_all(struct bulk *b, bool at_once)
{
	for (size_t i = 0; i < b->count; i++) {
		atomic_store(&b->workers[i].channel.stop, true);
		if (at_once)
			atomic_store(&b->workers[i].channel.ended, true);
	}
}

static int start_all(struct bulk *b, struct failure *failure)
{
	int error = 0;

	for (size_t i = 0; !error && i < b->count; i++)
		error = bulk_channel_go(&b->workers[i].channel);
	for (size_t i = 0; !error && i < b->count; i++) {
		struct bulk_worker *w = &b->workers[i];

		error = -pthread_create(&w->thread, NULL, run_worker, w);
		w->runs = !error;
		b->ran = true;
	}
	return error ? fail(failure, -error,
			    "cannot start the channels: %s; give fewer "
			    "--channels, or raise `ulimit -u`",
			    reason(error)) :
		       0;
}

/* Whoever watched may have gone; the run goes on. */
static void show_progress(const struct bulk *b, uint64_t started_ns)
{
	const struct options *o = b->options;
	uint64_t done = 0, total = o->duration_ns / NS_PER_MS;

	if (o->progress_fd < 0)
		return;
	if (total)
		done = (clock_ns() - started_ns) / NS_PER_MS;
	for (size_t i = 0; !o->duration_ns && i < b->count; i++) {
		const struct bulk_channel *c = &b->workers[i].channel;

		done += atomic_load(&c->sent_units) +
			atomic_load(&c->received_units);
		total += c->plan.units * (o->direction == BULK_BOTH ? 2 : 1);
	}
	dprintf((int)o->progress_fd, "%" PRIu64 " %" PRIu64 "\n",
		done < total ? done : total, total);
}

/* A channel that failed ends the others: there is no result to wait for. */
static void note_ended(struct bulk *b)
{
	uint64_t more;

	if (read(b->ended, &more, sizeof(more)) == sizeof(more))
		b->ended_count += more;
	for (size_t i = 0; i < b->count; i++)
		if (b->workers[i].error)
			stop_all(b, false);
}

static void wait_for_all(struct bulk *b, const sigset_t *open)
{
	static const struct timespec look = { .tv_nsec =
						      PROGRESS_MS * NS_PER_MS };
	uint64_t started_ns = clock_ns();
	size_t started = 0;

	for (size_t i = 0; i < b->count; i++)
		started += b->workers[i].runs;
	while (b->ended_count < started) {
		struct pollfd ended = { .fd = b->ended, .events = POLLIN };

		ppoll(&ended, 1, &look, open);
		note_ended(b);
		if (interrupts)
			stop_all(b, interrupts > 1);
		show_progress(b, started_ns);
	}
	for (size_t i = 0; i < b->count; i++)
		if (b->workers[i].runs)
			pthread_join(b->workers[i].thread, NULL);
	b->stopped = interrupts > 0;
}

/* The first thing that went wrong, as a line. */
static int check_all(const struct bulk *b, struct failure *failure)
{
	for (size_t i = 0; i < b->count; i++) {
		const struct bulk_worker *w = &b->workers[i];
		const struct bulk_channel *c = &w->channel;

		if (c->send_error && c->send_error != -ECONNRESET &&
		    c->send_error != -ECANCELED)
			return fail_channel(w, c->send_error, "send on",
					    failure);
		if (w->error)
			return fail_channel(w, w->error, "finish", failure);
		if (c->peer_has_sent && c->peer_sent.totals.error)
			return fail_channel(
				w, -(int)(c->peer_sent.totals.error & 0xfff),
				"have the responder send on", failure);
	}
	return 0;
}

int bulk_run(struct bulk *b, const struct options *options,
	     struct failure *failure)
{
	sigset_t open;
	int error;

	*b = (struct bulk){ .options = options, .ended = -1 };
	interrupts_catch();
	error = open_all(b, failure);
	if (error == -ECANCELED) /* nothing was measured */
		return 0;
	if (error)
		return error;
	hold_signals(&open);
	error = start_all(b, failure);
	if (error)
		stop_all(b, true);
	wait_for_all(b, &open);
	return error ? error : check_all(b, failure);
}

void bulk_close(struct bulk *b)
{
	for (size_t i = 0; i < b->count; i++) {
		bulk_channel_close(&b->workers[i].channel);
		session_close(&b->workers[i].link);
	}
	free(b->workers);
	if (b->ended >= 0)
		close(b->ended);
}
