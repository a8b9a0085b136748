/* pingpong.c - the client: sends requests and measures their replies. */
#include <errno.h>
#include <signal.h>

#include "clock.h"
#include "pingpong.h"
#include "session.h"

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

/* Without SA_RESTART: a blocking receive must return. */
static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int run_loop(struct exchange *x, struct pingpong_result *ret)
{
	struct failure closing;
	int error = exchange_open(x), closed;
	uint64_t ended_ns;

	if (error)
		return error;
	ret->ran = true;
	error = x->options->interval_ns ? open_loop(x) : closed_loop(x);
	ended_ns = clock_ns();
	if (x->schedule.measured_ns && ended_ns > x->schedule.measured_ns)
		ret->elapsed_ns = ended_ns - x->schedule.measured_ns;
	if (error)
		x->failure = &closing; /* keep the line of the first error */
	closed = exchange_close(x);
	return error ? error : closed;
}

/* A datagram socket notices no missing responder: say it at the end. */
static int check_answered(const struct options *o, const struct totals *t,
			  struct failure *failure)
{
	if (stop || !t->lost || t->replies || t->unsent)
		return 0;
	return fail(failure, ETIMEDOUT,
		    "no reply from %s port %llu: all %llu "
		    "datagrams were lost; see that a responder of the same "
		    "--wire is there, or raise --timeout",
		    o->address, (unsigned long long)o->port,
		    (unsigned long long)t->sent);
}

static uint64_t largest_size(const struct options *o)
{
	uint64_t largest = 0;

	for (size_t i = 0; i < o->sizes.count; i++)
		if (o->sizes.values[i] > largest)
			largest = o->sizes.values[i];
	return largest;
}

static struct terms terms_of(const struct options *o)
{
	return (struct terms){
		.workload = WORKLOAD_PINGPONG,
		.transport = o->protocol,
		.reply_bytes = (uint32_t)o->reply_bytes,
		.largest_bytes = (uint32_t)largest_size(o),
		.think_ns = o->think_ns,
		.duration_ns = o->duration_ns,
	};
}

int pingpong_run(const struct options *options, struct pingpong_result *ret,
		 struct failure *failure)
{
	struct exchange x = { .options = options,
			      .stop = &stop,
			      .failure = failure };
	struct terms terms = terms_of(options);
	struct session_link link;
	int error;

	*ret = (struct pingpong_result){ 0 };
	catch_signals();
	error = session_open(options, options->address, options->port, &terms,
			     &link, failure);
	if (error)
		return error;
	x.fd = link.data;
	x.control = link.control == link.data ? -1 : link.control;
	x.request_end = link.sent_before;
	x.reply_end = link.received_before;
	error = run_loop(&x, ret);
	ret->stopped = stop;
	ret->totals = x.totals;
	endpoint_facts(x.fd, options->protocol, &ret->facts);
	session_close(&link);
	return error ? error : check_answered(options, &x.totals, failure);
}
