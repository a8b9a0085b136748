// SPDX-License-Identifier: GPL-2.0-only
/*
 * options.c - the command line of latprof-link: its table, and whether the
 * options go together.
 */
#include "options.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>

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
	{ "a-netns", ARG_TEXT, AT(netns[AB]), 1, LIST_MAX, "NAME|PATH",
	  "network namespace of a; needed" },
	{ "b-netns", ARG_TEXT, AT(netns[BA]), 1, LIST_MAX, "NAME|PATH",
	  "network namespace of b; needed" },
	{ "a-name", ARG_TEXT, AT(name[AB]), 1, LIST_MAX, "NAME",
	  "of the device in a (tun0)" },
	{ "b-name", ARG_TEXT, AT(name[BA]), 1, LIST_MAX, "NAME",
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

/* What an option names: one for all links, or one for each of them. */
struct list {
	const char *option;
	const char *items; /* one behind the other, each ends with a NUL */
	size_t count;
};

static void list_read(struct list *list, char *text)
{
	list->items = text;
	for (list->count = 1; (text = strchr(text, ',')); list->count++)
		*text++ = '\0';
}

static const char *list_item(const struct list *list, size_t link)
{
	const char *item = list->items;

	for (size_t i = 0; list->count > 1 && i < link; i++)
		item += strlen(item) + 1;
	return item;
}

/* Each list has an item for each link, or one for all. */
static int links_count(struct options *options, const struct list *lists,
		       size_t count, struct failure *failure)
{
	size_t i;

	options->links = 1;
	for (i = 0; i < count; i++) {
		if (lists[i].count > options->links)
			options->links = lists[i].count;
	}
	if (options->links > LINKS_MAX)
		return fail(failure, EINVAL,
			    "there must be at most %d links, got %zu",
			    LINKS_MAX, options->links);
	for (i = 0; i < count; i++) {
		if (lists[i].count != 1 && lists[i].count != options->links)
			return fail(failure, EINVAL,
				    "--%s must name one for all links or %zu, "
				    "as the longest list, got %zu",
				    lists[i].option, options->links,
				    lists[i].count);
	}
	return 0;
}

static int end_settle(struct end_request *end, const struct list *netns,
		      const struct list *name, size_t link,
		      struct failure *failure)
{
	size_t letters;

	*end = (struct end_request){ .netns = list_item(netns, link),
				     .name = list_item(name, link) };
	letters = strlen(end->name);
	if (!letters || letters >= IFNAMSIZ)
		return fail(failure, EINVAL,
			    "--%s must be a text with a length from 1 to %d, "
			    "got %s",
			    name->option, IFNAMSIZ - 1, end->name);
	if (!*end->netns)
		return fail(failure, EINVAL,
			    "--%s must name a namespace for each link, "
			    "got none for one",
			    netns->option);
	return 0;
}

static int links_settle(struct options *options, struct failure *failure)
{
	struct list lists[] = {
		{ "a-netns" }, { "b-netns" }, { "a-name" }, { "b-name" }
	};
	const char *texts[] = { options->netns[AB], options->netns[BA],
				options->name[AB], options->name[BA] };
	const size_t count = sizeof(lists) / sizeof(*lists);
	int error;

	if (!options->netns[AB] || !options->netns[BA])
		return fail(failure, EINVAL,
			    "--a-netns and --b-netns are both needed");
	for (size_t i = 0; i < count; i++)
		list_read(&lists[i], strcpy(options->items[i], texts[i]));
	error = links_count(options, lists, count, failure);
	for (size_t i = 0; !error && i < options->links * DIRECTIONS; i++) {
		size_t link = i / DIRECTIONS, end = i % DIRECTIONS;

		error = end_settle(&options->ends[link][end], &lists[end],
				   &lists[DIRECTIONS + end], link, failure);
	}
	return error;
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
	return error ? error : links_settle(ret, failure);
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
	      "UDP payload. Of two options that meet, the later counts.\n"
	      "Namespaces and names may be lists with commas: that makes as "
	      "many links, all\nalike; counters are then a list. One name in "
	      "place of a list is that of all links.\n" ARGS_UNITS,
	      to);
	args_help(&args, to);
}
