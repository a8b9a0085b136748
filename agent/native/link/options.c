// SPDX-License-Identifier: GPL-2.0-only
/*
 * options.c - the command line of latprof-link: its table, and whether the
 * options go together.
 */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <net/if.h>

#include "clock.h"

#define RATE_MAX 1000000000000ull
#define DELAY_MAX (60 * NS_PER_SECOND)
#define QUEUE_MAX (256ull << 20)

#define AT(field) offsetof(struct options, field)
/* An option of both directions, or of one with -ab or -ba behind its name. */
#define PATH(name, field, help, twin, type, items, low, high, metavar) \
	{ name, type, AT(field), low, high, metavar, help, items, 0, twin }
#define PATHS(name, field, help, ...)                                   \
	PATH(name, path[AB].field, help, sizeof(struct path_request),   \
	     __VA_ARGS__),                                              \
		PATH(name "-ab", path[AB].field, NULL, 0, __VA_ARGS__), \
		PATH(name "-ba", path[BA].field, NULL, 0, __VA_ARGS__)

static const struct arg rows[] = {
	{ "a-netns", ARG_TEXT, AT(netns[AB]), 1, PATH_MAX - 1, "NAME|PATH",
	  "network namespace of a; needed" },
	{ "b-netns", ARG_TEXT, AT(netns[BA]), 1, PATH_MAX - 1, "NAME|PATH",
	  "network namespace of b; needed" },
	{ "a-name", ARG_TEXT, AT(name[AB]), 1, IFNAMSIZ - 1, "NAME",
	  "of the device in a (tun0)" },
	{ "b-name", ARG_TEXT, AT(name[BA]), 1, IFNAMSIZ - 1, "NAME",
	  "of the device in b (tun0)" },
	{ "mtu", ARG_COUNT, AT(mtu_bytes), 68, 65535, "BYTES",
	  "largest IP packet (1500)" },
	{ "seed", ARG_COUNT, AT(seed), 0, UINT64_MAX, "N",
	  "of the random loss (1)" },
	{ "drop-a", ARG_COUNT, AT(path[AB].path.drops), 1, UINT64_MAX,
	  "N,N,...", "drop these packets of a's", SIZE_MAX },
	{ "drop-b", ARG_COUNT, AT(path[BA].path.drops), 1, UINT64_MAX,
	  "N,N,...", "drop these packets of b's", SIZE_MAX },
	{ "die-with-parent", ARG_SWITCH, AT(die_with_parent),
	  .help = "end when the parent process ends" },
	{ .help = "for both directions, or with -ab or -ba behind it for "
		  "one:" },
	PATHS("rate", path.rate_bps, "of IP packets, 0 is infinite (0)",
	      ARG_RATE, 0, 0, RATE_MAX, "RATE"),
	PATHS("delay", path.delay_ns, "after the last bit has departed (0)",
	      ARG_TIME, 0, 0, DELAY_MAX, "TIME"),
	PATHS("queue", path.queue_bytes,
	      "of packets not yet departed (1000000)", ARG_BYTES, 0, 1,
	      QUEUE_MAX, "BYTES"),
	PATHS("loss", loss, "probability that a packet is lost (0)", ARG_REAL,
	      0, 0, 1, "P"),
	PATHS("loss-burst", loss_burst, "mean length of a run of losses",
	      ARG_REAL, 0, 1, 1000000000, "PACKETS"),
	PATHS("ge", ge, "good to bad, bad to good, loss in good, in bad",
	      ARG_REAL, 4, 0, 1, "P,R,1-K,1-H"),
	PATHS("reorder", path.reorders, "hold these for the reorder delay",
	      ARG_COUNT, SIZE_MAX, 1, UINT64_MAX, "N,N,..."),
	PATHS("reorder-delay", path.reorder_delay_ns, "(1ms)", ARG_TIME, 0, 0,
	      DELAY_MAX, "TIME"),
};

static const struct args args = { "latprof-link", rows,
				  sizeof(rows) / sizeof(*rows) };

/* Which loss was asked for. */
static int path_settle(struct path_request *request, struct failure *failure)
{
	struct gilbert_elliott *loss = &request->path.loss;
	bool ge_given = request->ge.good_to_bad >= 0;

	if (ge_given && (request->loss > 0 || request->loss_burst > 0))
		return fail(failure, EINVAL,
			    "--ge excludes --loss and --loss-burst");
	if (ge_given)
		*loss = request->ge;
	else if (request->loss_burst <= 0)
		loss->loss_in_good = request->loss;
	else if (gilbert_of_burst(request->loss, request->loss_burst, loss))
		return fail(failure, EINVAL,
			    "--loss-burst must be at least loss / (1 - loss), "
			    "with a loss below 1, got %g with a loss of %g",
			    request->loss_burst, request->loss);
	return 0;
}

int options_read(int argc, char **argv, struct options *ret,
		 struct failure *failure)
{
	struct path_request request = {
		.path = { .queue_bytes = 1000000,
			  .reorder_delay_ns = NS_PER_MS },
		.ge = { .good_to_bad = -1 },
	};
	int error;

	*ret = (struct options){ .name = { "tun0", "tun0" },
				 .path = { request, request },
				 .seed = 1,
				 .mtu_bytes = 1500 };
	error = args_read(&args, argc, argv, ret, failure);
	for (int direction = AB; !error && direction < DIRECTIONS; direction++)
		error = path_settle(&ret->path[direction], failure);
	if (!error && (!ret->netns[AB] || !ret->netns[BA]))
		error = fail(failure, EINVAL,
			     "--a-netns and --b-netns are both needed");
	return error;
}

void options_help(FILE *to)
{
	fputs("usage: latprof-link --a-netns NETNS --b-netns NETNS [OPTION "
	      "...]\n"
	      "Emulates a link between two network namespaces, with a TUN "
	      "device "
	      "in each. Prints\n`ready` once both exist, and counters as one "
	      "line of JSON on SIGUSR1 and at the\nend (SIGTERM, SIGINT). N "
	      "counts, from 1, the packets of a direction that carry\nTCP or "
	      "UDP payload. Of two options that meet, the later "
	      "counts.\n" ARGS_UNITS,
	      to);
	args_help(&args, to);
}
