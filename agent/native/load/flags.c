/* flags.c - the command line: one table of options. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "flags.h"
#include "flags_check.h"

enum type { SWITCH, TEXT, NUMBER, SECONDS, SIZES, PROTOCOL, WIRE };
enum {
	ECHO = 1 << COMMAND_ECHO,
	PINGPONG = 1 << COMMAND_PINGPONG,
	BOTH = ECHO | PINGPONG
};

struct flag {
	const char *name;
	enum type type;
	int commands;
	size_t offset; /* of its value in struct options */
	uint64_t low, high; /* of a number or of seconds in ns */
	const char *metavar, *help;
};

#define AT(member) offsetof(struct options, member)
#define HOUR_NS (3600 * NS_PER_SECOND)

static const struct flag flags[] = {
	{ "--netns", TEXT, BOTH, AT(netns), 0, 0, "NAME|PATH",
	  "enter this network namespace first" },
	{ "--protocol", PROTOCOL, BOTH, AT(protocol), 0, 0, "tcp|udp",
	  "transport (tcp)" },
	{ "--address", TEXT, BOTH, AT(address), 0, 0, "ADDRESS",
	  "to listen on, or of the responder (127.0.0.1)" },
	{ "--port", NUMBER, BOTH, AT(port), 0, 65535, "N",
	  "port; echo: 0 takes any (0)" },
	{ "--cpu", NUMBER, BOTH, AT(cpu), 0, 8191, "N", "stay on this CPU" },
	{ "--congestion", TEXT, BOTH, AT(congestion), 0, 0, "NAME",
	  "TCP congestion control (the system's)" },
	{ "--wire", WIRE, BOTH, AT(wire), 0, 0, "latprof|clear",
	  "format of the header (latprof)" },
	{ "--reply", NUMBER, BOTH, AT(reply_bytes), HEADER_BYTES,
	  MESSAGE_BYTES_MAX, "BYTES",
	  "replies have this size; both ends must say so (full echo)" },
	{ "--nagle", SWITCH, BOTH, AT(nagle), 0, 0, NULL,
	  "leave Nagle's algorithm on" },
	{ "--die-with-parent", SWITCH, BOTH, AT(die_with_parent), 0, 0, NULL,
	  "end when the process that started us ends" },
	{ "--until-eof", SWITCH, ECHO, AT(until_eof), 0, 0, NULL,
	  "end when stdin closes" },
	{ "--sizes", SIZES, PINGPONG, AT(sizes), 0, 0, "BYTES,...",
	  "message sizes; each once per round, in random order (64)" },
	{ "--rounds", NUMBER, PINGPONG, AT(rounds), 1, UINT32_MAX, "N",
	  "measured rounds (1000)" },
	{ "--duration", SECONDS, PINGPONG, AT(duration_ns), NS_PER_MS,
	  1000 * HOUR_NS, "SECONDS", "measure for this long instead" },
	{ "--warmup", NUMBER, PINGPONG, AT(warmup_rounds), 0, UINT32_MAX, "N",
	  "rounds before the measured ones (0)" },
	{ "--seed", NUMBER, PINGPONG, AT(seed), 0, UINT64_MAX, "N",
	  "of the random order (1)" },
	{ "--interval", NUMBER, PINGPONG, AT(interval_ns), 1, HOUR_NS, "NS",
	  "open loop: a message every NS (closed loop)" },
	{ "--poisson", SWITCH, PINGPONG, AT(poisson), 0, 0, NULL,
	  "exponential gaps with mean --interval" },
	{ "--spin", SWITCH, PINGPONG, AT(spin), 0, 0, NULL,
	  "wait busily for due times and replies" },
	{ "--timeout", NUMBER, PINGPONG, AT(timeout_ns), 1, HOUR_NS, "NS",
	  "UDP: a datagram is lost; TCP: the peer is dead (adaptive)" },
	{ "--no-verify", SWITCH, PINGPONG, AT(no_verify), 0, 0, NULL,
	  "do not compare the replies' payload" },
	{ "--output", TEXT, PINGPONG, AT(output), 0, 0, "FILE",
	  "records of every message" },
	{ "--progress-fd", NUMBER, PINGPONG, AT(progress_fd), 0, INT_MAX, "N",
	  "write lines `done total` to this descriptor" },
};

#define FLAG_COUNT (sizeof(flags) / sizeof(flags[0]))

static int read_number(const struct flag *flag, const char *text, uint64_t *ret,
		       struct failure *failure)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || *ret < flag->low ||
	    *ret > flag->high)
		return fail(failure, EINVAL,
			    "%s must be a whole number from "
			    "%llu to %llu, got %s",
			    flag->name, (unsigned long long)flag->low,
			    (unsigned long long)flag->high, text);
	return 0;
}

static int read_seconds(const struct flag *flag, const char *text,
			uint64_t *ret, struct failure *failure)
{
	char *end;
	double ns = strtod(text, &end) * NS_PER_SECOND;

	if (end == text || *end || !(ns >= (double)flag->low) ||
	    !(ns <= (double)flag->high))
		return fail(failure, EINVAL,
			    "%s must be from %g to %g "
			    "seconds, got %s",
			    flag->name, (double)flag->low / NS_PER_SECOND,
			    (double)flag->high / NS_PER_SECOND, text);
	*ret = (uint64_t)llround(ns);
	return 0;
}

static int read_sizes(const struct flag *flag, const char *text,
		      struct options *ret, struct failure *failure)
{
	const char *at = text;

	for (ret->size_count = 0; ret->size_count < SIZES_MAX; at++) {
		char *end;
		unsigned long size = strtoul(at, &end, 10);

		if (*at < '0' || *at > '9' || size > MESSAGE_BYTES_MAX)
			break;
		ret->sizes[ret->size_count++] = (uint32_t)size;
		at = end;
		if (!*at)
			return 0;
		if (*at != ',')
			break;
	}
	return fail(failure, EINVAL,
		    "%s must be at most %d whole numbers up "
		    "to %u with commas between, got %s",
		    flag->name, SIZES_MAX, MESSAGE_BYTES_MAX, text);
}

/* One of two words; the values of both enums are 0 and 1. */
static int read_choice(const struct flag *flag, const char *text,
		       const char *const words[2], unsigned int *ret,
		       struct failure *failure)
{
	for (*ret = 0; *ret < 2; ++*ret)
		if (!strcmp(text, words[*ret]))
			return 0;
	return fail(failure, EINVAL, "%s must be %s or %s, got %s", flag->name,
		    words[0], words[1], text);
}

static int read_value(const struct flag *flag, const char *text,
		      struct options *ret, struct failure *failure)
{
	static const char *const protocols[] = { "tcp", "udp" };
	static const char *const wires[] = { "latprof", "clear" };
	void *to = (char *)ret + flag->offset;

	switch (flag->type) {
	case SWITCH:
		*(bool *)to = true;
		return 0;
	case TEXT:
		*(const char **)to = text;
		return 0;
	case NUMBER:
		return read_number(flag, text, to, failure);
	case SECONDS:
		return read_seconds(flag, text, to, failure);
	case SIZES:
		return read_sizes(flag, text, ret, failure);
	case PROTOCOL:
		return read_choice(flag, text, protocols, to, failure);
	case WIRE:
		return read_choice(flag, text, wires, to, failure);
	}
	return 0;
}

static const struct flag *find_flag(const char *word, size_t length,
				    enum command command)
{
	for (size_t i = 0; i < FLAG_COUNT; i++)
		if (strlen(flags[i].name) == length &&
		    !strncmp(flags[i].name, word, length) &&
		    flags[i].commands & 1 << command)
			return &flags[i];
	return NULL;
}

/* Read the flag at argv[*index], and move the index to its last word. */
static int read_flag(char **argv, int *index, struct options *ret,
		     struct failure *failure)
{
	const char *word = argv[*index];
	size_t length = strcspn(word, "=");
	const struct flag *flag = find_flag(word, length, ret->command);
	const char *value = word[length] ? word + length + 1 : NULL;

	if (!flag)
		return fail(failure, EINVAL,
			    "unknown option %s of %s; see "
			    "latprof-load --help",
			    word,
			    ret->command == COMMAND_ECHO ? "echo" : "pingpong");
	if (flag->type == SWITCH && value)
		return fail(failure, EINVAL, "%s takes no value", flag->name);
	if (flag->type != SWITCH && !value)
		value = argv[++*index];
	if (flag->type != SWITCH && !value)
		return fail(failure, EINVAL, "%s needs a value: %s", flag->name,
			    flag->metavar);
	return read_value(flag, value, ret, failure);
}

static int read_command(const char *word, struct options *ret,
			struct failure *failure)
{
	if (word && !strcmp(word, "echo"))
		ret->command = COMMAND_ECHO;
	else if (word && !strcmp(word, "pingpong"))
		ret->command = COMMAND_PINGPONG;
	else if (!word || strcmp(word, "--help"))
		return fail(failure, EINVAL,
			    "command must be echo or "
			    "pingpong, got %s; see latprof-load --help",
			    word ? word : "nothing");
	return 0;
}

int flags_read(int argc, char **argv, struct options *ret,
	       struct failure *failure)
{
	int error = 0;

	*ret = (struct options){ .address = "127.0.0.1",
				 .cpu = -1,
				 .sizes = { 64 },
				 .size_count = 1,
				 .seed = 1,
				 .progress_fd = -1 };
	if (read_command(argc > 1 ? argv[1] : NULL, ret, failure))
		return -EINVAL;
	for (int i = 2; i < argc && !error; i++) {
		if (!strcmp(argv[i], "--help"))
			ret->command = COMMAND_HELP;
		if (ret->command == COMMAND_HELP)
			return 0;
		error = read_flag(argv, &i, ret, failure);
	}
	if (error || ret->command == COMMAND_HELP)
		return error;
	return flags_check(ret, failure);
}

void flags_help(FILE *to)
{
	fputs("usage: latprof-load echo|pingpong [OPTION ...]\n"
	      "echo answers requests; pingpong sends them and measures.\n",
	      to);
	for (int command = COMMAND_ECHO; command <= COMMAND_PINGPONG;
	     command++) {
		fprintf(to, "\n%s:\n",
			command == COMMAND_ECHO ? "echo" : "pingpong");
		for (size_t i = 0; i < FLAG_COUNT; i++)
			if (flags[i].commands & 1 << command)
				fprintf(to, "  %-17s %-14s %s\n", flags[i].name,
					flags[i].metavar ? flags[i].metavar :
							   "",
					flags[i].help);
	}
}
