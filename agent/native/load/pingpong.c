/* pingpong.c - the client: sends requests and measures their replies. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "clock.h"
#include "pingpong.h"

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
		    "datagrams were lost; start `latprof-load echo "
		    "--protocol udp` there, or raise --timeout",
		    o->address, (unsigned long long)o->port,
		    (unsigned long long)t->sent);
}

int pingpong_run(const struct options *options, struct pingpong_result *ret,
		 struct failure *failure)
{
	struct exchange x = { .options = options,
			      .stop = &stop,
			      .failure = failure };
	int error;

	*ret = (struct pingpong_result){ 0 };
	catch_signals();
	error = endpoint_connect(options, &x.fd, failure);
	if (error)
		return error;
	endpoint_limit_waits(x.fd, 0);
	error = run_loop(&x, ret);
	ret->stopped = stop;
	ret->totals = x.totals;
	endpoint_facts(x.fd, options, &ret->facts);
	close(x.fd);
	return error ? error : check_answered(options, &x.totals, failure);
}
