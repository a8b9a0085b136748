/* args.c - a command line as one table, read with getopt_long(), which musl
 * has as well (it has no argp). */
#include "args.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* What getopt_long() returns: above any character. */
enum { HELP = 256, FIRST_ROW };

static const char *const nouns[] = {
	[ARG_TEXT] = "a text with a length",
	[ARG_COUNT] = "a whole number",
	[ARG_BYTES] = "a size",
	[ARG_RATE] = "a rate",
	[ARG_TIME] = "a time",
	[ARG_SECONDS] = "a time",
	[ARG_REAL] = "a number",
	[ARG_ENDPOINTS] = "ADDRESS:PORT or [ADDRESS]:PORT with a port",
};

static const struct unit {
	enum arg_type type;
	const char *name;
	uint64_t scale;
} units[] = {
	{ ARG_BYTES, "k", 1000 },      { ARG_BYTES, "m", 1000000 },
	{ ARG_BYTES, "kib", 1 << 10 }, { ARG_BYTES, "mib", 1 << 20 },
	{ ARG_RATE, "bit", 1 },	       { ARG_RATE, "kbit", 1000 },
	{ ARG_RATE, "mbit", 1000000 }, { ARG_RATE, "gbit", 1000000000 },
	{ ARG_TIME, "ns", 1 },	       { ARG_TIME, "us", 1000 },
	{ ARG_TIME, "ms", 1000000 },   { ARG_TIME, "s", 1000000000 },
};

static bool unit_is_of(const struct unit *unit, enum arg_type type)
{
	return unit->type == (type == ARG_SECONDS ? ARG_TIME : type);
}

/* How much the unit at `name` multiplies by; 0: there is none of that name. */
static uint64_t read_unit(enum arg_type type, const char *name, size_t length)
{
	if (!length)
		return type == ARG_SECONDS ? 1000000000 : 1;
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (unit_is_of(&units[i], type) &&
		    strlen(units[i].name) == length &&
		    !strncmp(units[i].name, name, length))
			return units[i].scale;
	return 0;
}

/* A number with its unit, up to the next comma, where *ret_end then is. A long
 * double holds every whole number of 64 bits. */
static bool read_number(const struct arg *arg, const char *text,
			long double *ret, const char **ret_end)
{
	char *end;
	long double value = strtold(text, &end);
	size_t length = strcspn(end, ",");
	uint64_t scale = read_unit(arg->type, end, length);

	*ret_end = end + length;
	*ret = value * (long double)scale;
	/* strtold() knows hexadecimal, nan and inf as well. */
	if (!scale || end == text ||
	    strspn(text, "0123456789.eE-+") < (size_t)(end - text))
		return false;
	if (arg->type != ARG_REAL) {
		/* There is no half of a byte, but there is of a kilobyte. */
		if (scale == 1 && value != roundl(value))
			return false;
		*ret = roundl(*ret);
	}
	return *ret >= (long double)arg->low && *ret <= (long double)arg->high;
}

static bool read_numbers(const struct arg *arg, const char *text, void *to)
{
	bool listed = arg->items && arg->type != ARG_REAL;
	size_t count = 0, most = arg->items ? arg->items : 1;
	struct arg_list *list = listed ? to : NULL;
	uint64_t *wholes = to;
	double *reals = to;
	long double value;

	/* Every number but the last needs two characters. */
	if (list)
		wholes = list->values =
			calloc(strlen(text) / 2 + 1, sizeof(*wholes));
	do {
		if (!wholes || count == most ||
		    !read_number(arg, text, &value, &text))
			return false;
		if (arg->type == ARG_REAL)
			reals[count++] = (double)value;
		else
			wholes[count++] = (uint64_t)value;
	} while (*text++);
	if (list)
		list->count = count;
	return list || count == most;
}

static bool read_choice(const struct arg *arg, const char *text,
			unsigned int *ret)
{
	const char *word = arg->metavar;
	size_t length;

	for (*ret = 0; *word; ++*ret, word += length + !!word[length]) {
		length = strcspn(word, "|");
		if (strlen(text) == length && !strncmp(text, word, length))
			return true;
	}
	return false;
}

/* Cut `ADDRESS:PORT` or `[ADDRESS]:PORT` in two. */
static bool read_endpoint(const struct arg *arg, const char *text,
			  struct arg_endpoint *ret)
{
	bool bracketed = *text == '[';
	size_t length = strcspn(text += bracketed, bracketed ? "]" : ":");
	const char *rest = text + length + bracketed;
	char *address = calloc(length + 1, 1);
	long double port;

	if (!address)
		return false;
	memcpy(address, text, length);
	*ret = (struct arg_endpoint){ .address = address };
	if (!length || !text[length] || *rest != ':' ||
	    strspn(rest + 1, "0123456789") != strlen(rest + 1) ||
	    !read_number(arg, rest + 1, &port, &rest))
		return false;
	ret->port = (uint64_t)port;
	return true;
}

static bool add_endpoint(const struct arg *arg, const char *text,
			 struct arg_endpoints *to)
{
	struct arg_endpoint *values = calloc(to->count + 1, sizeof(*values));

	if (!values)
		return false;
	if (to->count)
		memcpy(values, to->values, to->count * sizeof(*values));
	free(to->values);
	to->values = values;
	return read_endpoint(arg, text, &values[to->count++]);
}

static bool read_value(const struct arg *arg, const char *text, void *to)
{
	switch (arg->type) {
	case ARG_SWITCH:
		return *(bool *)to = true;
	case ARG_TEXT:
		*(const char **)to = text;
		return strlen(text) >= arg->low && strlen(text) <= arg->high;
	case ARG_CHOICE:
		return read_choice(arg, text, to);
	case ARG_ENDPOINTS:
		return add_endpoint(arg, text, to);
	default:
		return read_numbers(arg, text, to);
	}
}

/* A bound in the largest unit that leaves no fraction. */
static const char *write_bound(enum arg_type type, uint64_t bound,
			       char ret[static 32])
{
	const struct unit *best = &(struct unit){ type, "", 1 };

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (unit_is_of(&units[i], type) && bound &&
		    bound % units[i].scale == 0 &&
		    units[i].scale >= best->scale)
			best = &units[i];
	snprintf(ret, 32, "%" PRIu64 "%s", bound / best->scale, best->name);
	return ret;
}

static int refuse(const struct arg *arg, const char *got,
		  struct failure *failure)
{
	bool probability = arg->type == ARG_REAL && arg->high == 1;
	char low[32], high[32];

	if (arg->type == ARG_CHOICE)
		return fail(failure, EINVAL,
			    "--%s must be one of %s, got %.80s", arg->name,
			    arg->metavar, got);
	return fail(failure, EINVAL,
		    "--%s must be %s%s%s from %s to %s, got %.80s", arg->name,
		    arg->items ? arg->metavar : "", arg->items ? ", each " : "",
		    probability ? "a probability" : nouns[arg->type],
		    write_bound(arg->type, arg->low, low),
		    write_bound(arg->type, arg->high, high), got);
}

static bool heading_is_for(const struct arg *heading, const struct args *args)
{
	return !heading->commands || heading->commands & args->command;
}

/* What the command knows. The caller frees it. */
static struct option *list_options(const struct args *args)
{
	struct option *ret = calloc(args->count + 2, sizeof(*ret)), *next = ret;
	bool known = true;

	for (size_t i = 0; ret && i < args->count; i++) {
		const struct arg *arg = &args->rows[i];

		if (!arg->name)
			known = heading_is_for(arg, args);
		else if (known)
			*next++ = (struct option){
				.name = arg->name,
				.has_arg = arg->type != ARG_SWITCH,
				.val = FIRST_ROW + (int)i,
			};
	}
	if (ret)
		*next = (struct option){ "help", no_argument, NULL, HELP };
	return ret;
}

/* What getopt_long() found, or would not take, at `word`. */
static int read_option(const struct args *args, int found, const char *word,
		       char *to, struct failure *failure)
{
	int value = found == '?' || found == ':' ? optopt : found;
	const struct arg *arg =
		value < FIRST_ROW ? NULL : &args->rows[value - FIRST_ROW];
	size_t length = strcspn(word, "=");

	/* It takes the beginning of a name as well; we do not, so that a new
	 * option cannot change what an old command line means. */
	if (!arg || length != strlen(arg->name) + 2)
		return fail(failure, EINVAL,
			    "%.80s is not an option of %s; see %s --help", word,
			    args->program, args->program);
	if (found == ':')
		return fail(failure, EINVAL, "--%s needs a value: %s",
			    arg->name, arg->metavar);
	if (found == '?')
		return fail(failure, EINVAL, "--%s takes no value, got %.80s",
			    arg->name, word + length + 1);
	to += arg->offset;
	if (read_value(arg, optarg, to) &&
	    (!arg->twin || read_value(arg, optarg, to + arg->twin)))
		return 0;
	return refuse(arg, optarg, failure);
}

int args_read(const struct args *args, int argc, char **argv, void *ret,
	      struct failure *failure)
{
	struct option *options = list_options(args);
	int error = options ? 0 : fail(failure, ENOMEM, "out of memory");

	opterr = 0;
	while (!error && optind < argc) {
		const char *word = argv[optind];
		int found = getopt_long(argc, argv, "+:", options, NULL);

		if (found == HELP)
			error = 1;
		else
			error = read_option(args, found, word, ret, failure);
	}
	free(options);
	return error;
}

void args_help(const struct args *args, FILE *to)
{
	bool known = true;
	char label[64];

	fprintf(to, "\n%s:\n", args->program);
	for (size_t i = 0; i < args->count; i++) {
		const struct arg *arg = &args->rows[i];

		if (!arg->name)
			known = heading_is_for(arg, args);
		if (!known || !arg->help)
			continue;
		snprintf(label, sizeof(label), "--%s %s", arg->name,
			 arg->metavar ? arg->metavar : "");
		fprintf(to, "  %-22s %s\n", arg->name ? label : "", arg->help);
	}
}
