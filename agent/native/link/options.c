// SPDX-License-Identifier: GPL-2.0-only
/*
 * options.c - the command line of latprof-link: one table, one check.
 */
#include "options.h"

#include <errno.h>
#include <net/if.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

#define RATE_MAX 1000000000000ull
#define DELAY_MAX (60 * NS_PER_S)
#define QUEUE_MAX (256ull << 20)

static int number_take(const char *text, uint64_t low, uint64_t high, void *ret)
{
	uint64_t value;
	int err = number_parse(text, &value);

	if (err)
		return err;
	if (value < low || value > high)
		return -ERANGE;
	*(uint64_t *)ret = value;
	return 0;
}

static int probability_take(const char *text, uint64_t low, uint64_t high,
			    void *ret)
{
	(void)low;
	(void)high;
	return probability_parse(text, ret);
}

static int burst_take(const char *text, uint64_t low, uint64_t high, void *ret)
{
	double value;
	char *end;

	value = strtod(text, &end);
	if (end == text || *end)
		return -EINVAL;
	if (!(value >= (double)low && value <= (double)high))
		return -ERANGE;
	*(double *)ret = value;
	return 0;
}

static int list_take(const char *text, uint64_t low, uint64_t high, void *ret)
{
	(void)low;
	(void)high;
	return number_list_parse(text, ret);
}

static int text_take(const char *text, uint64_t low, uint64_t high, void *ret)
{
	size_t length = strlen(text);

	if (length < low || length > high)
		return -ERANGE;
	*(const char **)ret = text;
	return 0;
}

static int ge_take(const char *text, uint64_t low, uint64_t high, void *ret)
{
	struct path_request *path = ret;
	double *fields[] = { &path->ge.good_to_bad, &path->ge.bad_to_good,
			     &path->ge.loss_in_good, &path->ge.loss_in_bad };
	char *copy = strdup(text), *rest = copy, *item;
	uint64_t count = 0;
	int err = copy ? 0 : -ENOMEM;

	while (!err && (item = strsep(&rest, ","))) {
		err = count < high ? probability_parse(item, fields[count]) :
				     -ERANGE;
		count++;
	}
	free(copy);
	path->ge_given = true;
	return err || count >= low ? err : -EINVAL;
}

struct option_row {
	const char *name;
	bool of_path; /* one field per direction */
	size_t offset;
	int (*take)(const char *text, uint64_t low, uint64_t high, void *ret);
	uint64_t low;
	uint64_t high;
	const char *rule;
};

#define OF_LINK(field) false, offsetof(struct options, field)
#define OF_PATH(field) true, offsetof(struct path_request, field)
#define WHOLE(range) "a whole number from " range
#define LIST "packet numbers from 1 on, as in 3,7,8"

/* A row without `take` is a flag. */
static const struct option_row rows[] = {
	{ "help", OF_LINK(help), NULL, 0, 0, NULL },
	{ "die-with-parent", OF_LINK(die_with_parent), NULL, 0, 0, NULL },
	{ "a-netns", OF_LINK(netns[AB]), text_take, 1, 4095,
	  "a name or a path" },
	{ "b-netns", OF_LINK(netns[BA]), text_take, 1, 4095,
	  "a name or a path" },
	{ "a-name", OF_LINK(name[AB]), text_take, 1, IFNAMSIZ - 1,
	  "1 to 15 characters" },
	{ "b-name", OF_LINK(name[BA]), text_take, 1, IFNAMSIZ - 1,
	  "1 to 15 characters" },
	{ "mtu", OF_LINK(mtu_bytes), number_take, 68, 65535,
	  WHOLE("68 to 65535") },
	{ "seed", OF_LINK(seed), number_take, 0, UINT64_MAX,
	  WHOLE("0 to 2^64 - 1") },
	{ "drop-a", OF_LINK(path[AB].path.drops), list_take, 0, 0, LIST },
	{ "drop-b", OF_LINK(path[BA].path.drops), list_take, 0, 0, LIST },
	{ "rate", OF_PATH(path.rate_bps), number_take, 0, RATE_MAX,
	  WHOLE("0 to 10^12") },
	{ "delay", OF_PATH(path.delay_ns), number_take, 0, DELAY_MAX,
	  WHOLE("0 to 60000000000") },
	{ "queue", OF_PATH(path.queue_bytes), number_take, 1, QUEUE_MAX,
	  WHOLE("1 to 268435456") },
	{ "loss", OF_PATH(loss), probability_take, 0, 0,
	  "a probability from 0 to 1" },
	{ "loss-burst", OF_PATH(loss_burst), burst_take, 1, 1000000000,
	  "a number from 1 to 10^9" },
	{ "ge", true, 0, ge_take, 4, 4, "four probabilities P,R,1-K,1-H" },
	{ "reorder", OF_PATH(path.reorders), list_take, 0, 0, LIST },
	{ "reorder-delay", OF_PATH(path.reorder_delay_ns), number_take, 0,
	  DELAY_MAX, WHOLE("0 to 60000000000") },
};

enum { FOR_AB = 1 << AB, FOR_BA = 1 << BA };

/* The row of an option without its dashes; *ret_for: which directions. */
static const struct option_row *row_find(const char *name, size_t length,
					 unsigned int *ret_for)
{
	const struct option_row *row;
	const char *ending;

	for (row = rows; row < rows + sizeof(rows) / sizeof(*rows); row++) {
		size_t own = strlen(row->name);

		if (length < own || strncmp(name, row->name, own))
			continue;
		ending = name + own;
		*ret_for = FOR_AB | FOR_BA;
		if (length == own)
			return row;
		if (!row->of_path || length != own + 3)
			continue;
		*ret_for = !strncmp(ending, "-ab", 3) ? FOR_AB :
			   !strncmp(ending, "-ba", 3) ? FOR_BA :
							0;
		if (*ret_for)
			return row;
	}
	return NULL;
}

static int row_take(const struct option_row *row, const char *text,
		    unsigned int directions, struct options *options)
{
	int direction, err = 0;

	if (!row->of_path)
		return row->take(text, row->low, row->high,
				 (char *)options + row->offset);
	for (direction = AB; !err && direction < DIRECTIONS; direction++) {
		char *path = (char *)&options->path[direction];

		if (directions & 1u << direction)
			err = row->take(text, row->low, row->high,
					path + row->offset);
	}
	return err;
}

static int usage(struct usage_error *error, const char *what, const char *rule,
		 const char *got)
{
	snprintf(error->text, sizeof(error->text), "%s %s%s%.80s", what, rule,
		 got ? ", got " : "", got ? got : "");
	return -EINVAL;
}

/* Takes argv[*at] and, where it is apart, its value. */
static int option_parse(char **argv, int *at, struct options *options,
			struct usage_error *error)
{
	const char *option = argv[*at], *text = strchr(option, '=');
	const struct option_row *row = NULL;
	unsigned int directions;
	char rule[128], name[64];
	size_t length = text ? (size_t)(text++ - option) : strlen(option);

	if (!strncmp(option, "--", 2))
		row = row_find(option + 2, length - 2, &directions);
	if (!row)
		return usage(error, option, "is not an option", NULL);
	snprintf(name, sizeof(name), "%.*s", (int)length, option);
	if (!row->take) {
		*((bool *)options + row->offset) = true;
		return text ? usage(error, name, "takes no value", text) : 0;
	}
	if (!text)
		text = argv[++*at];
	if (!text)
		return usage(error, name, "needs a value", NULL);
	if (!row_take(row, text, directions, options))
		return 0;
	snprintf(rule, sizeof(rule), "must be %s", row->rule);
	return usage(error, name, rule, text);
}

/* Which loss was asked for. */
static int path_settle(struct path_request *request, struct usage_error *error)
{
	struct gilbert_elliott *loss = &request->path.loss;

	if (request->ge_given && (request->loss > 0 || request->loss_burst > 0))
		return usage(error, "--ge", "excludes --loss and --loss-burst",
			     NULL);
	if (request->ge_given)
		*loss = request->ge;
	else if (request->loss_burst <= 0)
		loss->loss_in_good = request->loss;
	else if (gilbert_of_burst(request->loss, request->loss_burst, loss))
		return usage(error, "--loss-burst",
			     "must be at least loss / (1 - loss), with a loss "
			     "below 1",
			     NULL);
	return 0;
}

int options_parse(int argc, char **argv, struct options *ret,
		  struct usage_error *ret_error)
{
	int at, direction, err = 0;

	*ret = (struct options){ .seed = 1, .mtu_bytes = 1500 };
	for (direction = AB; direction < DIRECTIONS; direction++) {
		ret->name[direction] = "tun0";
		ret->path[direction].path.queue_bytes = 1000000;
		ret->path[direction].path.reorder_delay_ns = 1000000;
	}
	for (at = 1; !err && at < argc; at++)
		err = option_parse(argv, &at, ret, ret_error);
	for (direction = AB; !err && direction < DIRECTIONS; direction++)
		err = path_settle(&ret->path[direction], ret_error);
	if (err || ret->help)
		return err;
	if (!ret->netns[AB] || !ret->netns[BA])
		return usage(ret_error, "--a-netns and --b-netns",
			     "are both needed", NULL);
	return 0;
}

void options_deinit(struct options *options)
{
	int direction;

	for (direction = AB; direction < DIRECTIONS; direction++) {
		number_list_deinit(&options->path[direction].path.drops);
		number_list_deinit(&options->path[direction].path.reorders);
	}
}
