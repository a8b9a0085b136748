/* pingpong.c - the client: sends requests and measures their replies. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "interrupts.h"
#include "pingpong.h"
#include "responder.h"

/* Connected, and nothing sent: others may begin meanwhile. */
static void wait_until(uint64_t ns)
{
	uint64_t now;

	while (!interrupts && (now = clock_ns()) < ns) {
		uint64_t left = ns - now, most = INTERRUPTS_LOOK_MS * NS_PER_MS;
		struct timespec nap = {
			.tv_nsec = (long)(left < most ? left : most),
		};

		nanosleep(&nap, NULL);
	}
}

static int run_loop(struct client *c, struct pingpong_result *ret)
{
	const struct options *o = c->options;
	struct failure *kept = c->failure, closing;
	int error = client_open(c), closed;
	uint64_t ended_ns, measured_ns;

	if (error)
		return error;
	ret->ran = true;
	if (o->interval_ns || o->train_messages) {
		error = open_loop(c);
	} else {
		wait_until(o->start_ns);
		error = closed_loop(c->exchanges);
	}
	ended_ns = clock_ns();
	measured_ns = client_measured_ns(c);
	if (measured_ns && ended_ns > measured_ns)
		ret->elapsed_ns = ended_ns - measured_ns;
	if (error)
		c->failure = &closing; /* keep the line of the first error */
	closed = client_close(c);
	c->failure = kept;
	return error ? error : closed;
}

/* A datagram socket notices no missing responder: say it at the end. */
static int check_answered(const struct exchange *x)
{
	const struct totals *t = &x->totals;
	uint64_t lost = t->messages.lost + t->heartbeats.lost;

	if (interrupts || !lost || t->replies || t->unsent)
		return 0;
	return fail(x->failure, ETIMEDOUT,
		    "no reply from %s port %llu: all %llu "
		    "datagrams were lost; see that a responder of the same "
		    "--wire is there, or raise --timeout",
		    x->peer->address, (unsigned long long)x->peer->port,
		    (unsigned long long)lost);
}

static int check_all_answered(const struct client *c)
{
	int error = 0;

	for (size_t i = 0; !error && i < c->options->peers.count; i++)
		error = check_answered(&c->exchanges[i]);
	return error;
}

static struct terms terms_of(const struct options *o)
{
	return (struct terms){
		.workload = WORKLOAD_PINGPONG,
		.transport = o->protocol,
		.reply_bytes = (uint32_t)o->reply_bytes,
		.largest_bytes = (uint32_t)exchange_largest_request(o),
		.think_ns = o->think_ns,
		.duration_ns = o->duration_ns,
		.own = { [PINGPONG_TERM_BUSY] = o->busy_ns },
	};
}

static int connect_all(struct client *c)
{
	struct terms terms = terms_of(c->options);
	int error = client_reserve(c);

	for (size_t i = 0; !error && i < c->options->peers.count; i++) {
		struct exchange *x = &c->exchanges[i];

		error = session_open(c->options, x->peer->address,
				     x->peer->port, &terms, &x->link,
				     c->failure);
		x->fd = x->link.data;
		x->request_end = x->link.sent_before;
		x->reply_end = x->link.received_before;
	}
	return error;
}

static void disconnect_all(struct client *c)
{
	for (size_t i = 0; c->exchanges && i < c->options->peers.count; i++)
		session_close(&c->exchanges[i].link);
	client_release(c);
}

static void add_counts(struct counts *to, const struct counts *more)
{
	to->sent += more->sent;
	to->received += more->received;
	to->lost += more->lost;
	to->corrupt += more->corrupt;
	to->warmup += more->warmup;
	to->unanswered += more->unanswered;
}

static void add_totals(struct totals *to, const struct totals *more)
{
	add_counts(&to->messages, &more->messages);
	add_counts(&to->heartbeats, &more->heartbeats);
	to->replies += more->replies;
	to->unsent += more->unsent;
	to->late += more->late;
	to->duplicates += more->duplicates;
	to->strays += more->strays;
}

/* What the sockets and the exchanges came to. */
static void collect(const struct client *c, struct pingpong_result *ret)
{
	ret->stopped = interrupts;
	endpoint_facts(c->exchanges->fd, c->options->protocol, &ret->facts);
	for (size_t i = 0; i < c->options->peers.count; i++) {
		const struct exchange *x = &c->exchanges[i];

		endpoint_local(x->fd, &ret->peers[i].local);
		ret->peers[i].totals = x->totals;
		ret->max_rate = session_lower_rate(
			ret->max_rate, x->link.limits.bytes_per_second);
		add_totals(&ret->totals, &x->totals);
	}
}

int pingpong_run(const struct options *options, struct pingpong_result *ret,
		 struct failure *failure)
{
	struct client c = { .options = options,
			    .stop = &interrupts,
			    .failure = failure };
	int error;

	*ret = (struct pingpong_result){
		.peers = calloc(options->peers.count, sizeof(*ret->peers)),
	};
	if (!ret->peers)
		return client_fail_memory(&c);
	interrupts_catch();
	error = connect_all(&c);
	if (!error) {
		error = run_loop(&c, ret);
	} else if (error == -ECANCELED) {
		ret->ran = true; /* an empty result is one, too */
		error = 0;
	}
	if (ret->ran)
		collect(&c, ret);
	if (!error)
		error = check_all_answered(&c);
	disconnect_all(&c);
	return error;
}
