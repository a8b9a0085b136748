// SPDX-License-Identifier: GPL-2.0-only
/*
 * latprof-link - a link with known rate, delay, queue and loss between two
 * network namespaces, for kernels without netem and as truth for tests.
 *
 *   TUN in a  ->  path ab  ->  TUN in b
 *   TUN in a  <-  path ba  <-  TUN in b
 *
 * Counts IP packets: a link layer header, which a real link would carry and
 * count, there is none.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "emulator.h"
#include "options.h"
#include "streams.h"
#include "tun.h"

enum { EXIT_DONE, EXIT_FAILED, EXIT_USAGE };

static int complain(const struct failure *failure, int status)
{
	fprintf(stderr, "latprof-link: %s\n", failure->text);
	return status;
}

/* What to do about an error, for some error numbers. */
static const char *remedy(int err, const char *otherwise)
{
	switch (-err) {
	case EPERM:
	case EACCES:
		return "run as root with all capabilities, outside of a user"
		       " namespace";
	case EMFILE:
		return "raise `ulimit -n`";
	case ENOMEM:
	case ENOBUFS:
		return "free some memory";
	default:
		return otherwise;
	}
}

static int failed(const char *what, const char *object, int err,
		  const char *otherwise)
{
	struct failure failure;

	fail(&failure, -err, "cannot %s %.300s: %s; %s", what, object,
	     strerror(-err), remedy(err, otherwise));
	return complain(&failure, EXIT_FAILED);
}

static void print_path(const char *name, const struct path *path)
{
	const struct path_counters *c = &path->counters;
	uint64_t delivered = c->packets_out + c->dropped_write;
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{ "packets_in", c->packets_in },
		{ "bytes_in", c->bytes_in },
		{ "packets_out", c->packets_out },
		{ "bytes_out", c->bytes_out },
		{ "dropped_queue", c->dropped_queue },
		{ "dropped_loss", c->dropped_loss },
		{ "dropped_listed", c->dropped_listed },
		{ "dropped_write", c->dropped_write },
		{ "in_flight", c->in_flight },
		{ "queued_bytes", path->queued_bytes },
		{ "reordered", c->reordered },
		{ "max_queue_bytes", c->max_queue_bytes },
		{ "lateness_max_ns", c->lateness_max_ns },
		{ "lateness_mean_ns",
		  delivered ? c->lateness_sum_ns / delivered : 0 },
	};
	size_t i;

	printf("\"%s\": {", name);
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		printf("%s\"%s\": %" PRIu64, i ? ", " : "", rows[i].name,
		       rows[i].value);
	putchar('}');
}

static void print_link(const struct link *link)
{
	putchar('{');
	print_path("ab", &link->path[AB]);
	fputs(", ", stdout);
	print_path("ba", &link->path[BA]);
	putchar('}');
}

/* Of one link an object, of several a list of them. */
static void print_counters(const struct emulator *emulator)
{
	bool several = emulator->count > 1;

	if (several)
		putchar('[');
	for (size_t i = 0; i < emulator->count; i++) {
		if (i)
			fputs(", ", stdout);
		print_link(&emulator->links[i]);
	}
	puts(several ? "]" : "");
	fflush(stdout);
}

static int open_end(const struct end_request *end, uint64_t mtu_bytes,
		    int *ret_fd)
{
	const char *netns = end->netns, *name = end->name;
	enum tun_step step;
	int fd = tun_open(netns, name, (uint32_t)mtu_bytes, &step);

	*ret_fd = fd;
	if (fd >= 0)
		return EXIT_DONE;
	if (step == TUN_NETNS)
		return failed("enter the network namespace", netns, fd,
			      "see `ip netns`");
	if (step == TUN_CLONE)
		return failed("open", "/dev/net/tun", fd,
			      "load the module tun, or create the device with"
			      " mknod /dev/net/tun c 10 200");
	if (step == TUN_CREATE)
		return failed("create the TUN device", name, fd,
			      "choose a name that is free, and see that"
			      " /dev/net/tun is what `mknod c 10 200` makes");
	return failed("set the MTU and queue of", name, fd,
		      "choose another --mtu");
}

/* The signals that end the link or ask for its counters, as a descriptor. */
static int open_signals(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	/* Whoever reads the counters may be gone; that is no reason to end. */
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

static int open_link(const struct options *options, size_t number,
		     struct link *link)
{
	int end, status;

	for (end = AB; end < DIRECTIONS; end++) {
		status = open_end(&options->ends[number][end],
				  options->mtu_bytes, &link->tun[end]);
		if (status)
			return status;
		/* Streams of random numbers that are far apart. */
		path_init(&link->path[end], &options->path[end].path,
			  options->seed ^ (uint64_t)end << 63 ^
				  (uint64_t)number << 48);
	}
	return EXIT_DONE;
}

static int run(const struct options *options)
{
	struct emulator emulator = { .mtu_bytes = options->mtu_bytes,
				     .signals = open_signals(),
				     .report = print_counters };
	int status, err;
	size_t i;

	if (emulator.signals < 0)
		return failed("receive", "signals", -errno, "free some memory");
	for (; emulator.count < options->links; emulator.count++) {
		status = open_link(options, emulator.count,
				   &emulator.links[emulator.count]);
		if (status)
			return status;
	}
	puts("ready");
	fflush(stdout);
	err = emulator_run(&emulator);
	print_counters(&emulator);
	for (i = 0; i < emulator.count; i++) {
		path_deinit(&emulator.links[i].path[AB]);
		path_deinit(&emulator.links[i].path[BA]);
	}
	if (err)
		return failed("carry packets between", "the TUN devices", err,
			      "were the namespaces deleted?");
	return EXIT_DONE;
}

int main(int argc, char **argv)
{
	pid_t parent = getppid();
	struct failure failure;
	struct options options;
	int error;

	streams_open();
	error = options_read(argc, argv, &options, &failure);
	if (error < 0)
		return complain(&failure, EXIT_USAGE);
	if (error) {
		options_help(stdout);
		return EXIT_DONE;
	}
	if (options.die_with_parent) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		/* A parent that ended before could no longer signal. */
		if (getppid() != parent)
			return EXIT_DONE;
	}
	return run(&options);
}
