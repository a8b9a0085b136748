/* flags.c - the command line of latprof-load: its table, and whether the
 * options go together. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "clock.h"
#include "flags.h"

#define AT(member) offsetof(struct options, member)
#define HOUR_NS (3600 * NS_PER_SECOND)

enum { ECHO = 1 << COMMAND_ECHO, PINGPONG = 1 << COMMAND_PINGPONG };

static const struct arg rows[] = {
	{ "netns", ARG_TEXT, AT(netns), 1, PATH_MAX - 1, "NAME|PATH",
	  "enter this network namespace first" },
	{ "protocol", ARG_CHOICE, AT(protocol), 0, 0, "tcp|udp",
	  "transport (tcp)" },
	{ "address", ARG_TEXT, AT(address), 1, 255, "ADDRESS",
	  "to listen on, or of the responder (127.0.0.1)" },
	{ "port", ARG_COUNT, AT(port), 0, 65535, "N",
	  "port; echo: 0 takes any (0)" },
	{ "cpu", ARG_COUNT, AT(cpu), 0, 8191, "N", "stay on this CPU" },
	{ "congestion", ARG_TEXT, AT(congestion), 1, 15, "NAME",
	  "TCP congestion control (the system's)" },
	{ "wire", ARG_CHOICE, AT(wire), 0, 0, "latprof|clear",
	  "format of the header (latprof)" },
	{ "reply", ARG_BYTES, AT(reply_bytes), HEADER_BYTES, MESSAGE_BYTES_MAX,
	  "BYTES", "size of replies; both ends must say so (full echo)" },
	{ "nagle", ARG_SWITCH, AT(nagle),
	  .help = "leave Nagle's algorithm on" },
	{ "die-with-parent", ARG_SWITCH, AT(die_with_parent),
	  .help = "end when the process that started us ends" },
	{ .commands = ECHO },
	{ "until-eof", ARG_SWITCH, AT(until_eof),
	  .help = "end when stdin closes" },
	{ .commands = PINGPONG },
	{ "sizes", ARG_BYTES, AT(sizes), HEADER_BYTES, MESSAGE_BYTES_MAX,
	  "BYTES,...", "each once per round, in random order (64)",
	  .items = SIZE_MAX },
	{ "rounds", ARG_COUNT, AT(rounds), 1, UINT32_MAX, "N",
	  "measured rounds (1000)" },
	{ "duration", ARG_SECONDS, AT(duration_ns), NS_PER_MS, 1000 * HOUR_NS,
	  "SECONDS", "measure for this long instead" },
	{ "warmup", ARG_COUNT, AT(warmup_rounds), 0, UINT32_MAX, "N",
	  "rounds before the measured ones (0)" },
	{ "seed", ARG_COUNT, AT(seed), 0, UINT64_MAX, "N",
	  "of the random order (1)" },
	{ "interval", ARG_TIME, AT(interval_ns), 1, HOUR_NS, "TIME",
	  "open loop: a message every so often (closed loop)" },
	{ "poisson", ARG_SWITCH, AT(poisson),
	  .help = "exponential gaps with mean --interval" },
	{ "spin", ARG_SWITCH, AT(spin),
	  .help = "wait busily for due times and replies" },
	{ "timeout", ARG_TIME, AT(timeout_ns), 1, HOUR_NS, "TIME",
	  "UDP: a datagram is lost; TCP: the peer is dead (adaptive)" },
	{ "no-verify", ARG_SWITCH, AT(no_verify),
	  .help = "do not compare the replies' payload" },
	{ "output", ARG_TEXT, AT(output), 1, PATH_MAX - 1, "FILE",
	  "records of every message" },
	{ "progress-fd", ARG_COUNT, AT(progress_fd), 0, INT_MAX, "N",
	  "write lines `done total` to this descriptor" },
};

static const struct args commands[] = {
	[COMMAND_ECHO] = { "latprof-load echo", rows,
			   sizeof(rows) / sizeof(*rows), ECHO },
	[COMMAND_PINGPONG] = { "latprof-load pingpong", rows,
			       sizeof(rows) / sizeof(*rows), PINGPONG },
};

static uint32_t largest(const struct options *o)
{
	if (o->protocol == PROTOCOL_UDP)
		return DATAGRAM_BYTES_MAX;
	return o->wire == WIRE_CLEAR ? CLEAR_BYTES_MAX : MESSAGE_BYTES_MAX;
}

static int check_size(const struct options *o, const char *name, uint64_t bytes,
		      struct failure *failure)
{
	if (bytes <= largest(o))
		return 0;
	return fail(failure, EINVAL, "%s must be at most %u here, got %llu",
		    name, largest(o), (unsigned long long)bytes);
}

static int check_common(const struct options *o, struct failure *failure)
{
	bool udp = o->protocol == PROTOCOL_UDP;

	if (o->wire == WIRE_CLEAR && o->reply_bytes)
		return fail(failure, EINVAL,
			    "--reply does not go with --wire clear, whose "
			    "responder echoes in full");
	if (udp && (o->congestion || o->nagle))
		return fail(failure, EINVAL,
			    "%s does not go with --protocol udp",
			    o->nagle ? "--nagle" : "--congestion");
	return check_size(o, "--reply", o->reply_bytes, failure);
}

static int check_pingpong(struct options *o, struct failure *failure)
{
	int error = 0;

	if (!o->port)
		return fail(failure, EINVAL,
			    "--port is needed: give the port that the "
			    "responder printed");
	if (o->rounds && o->duration_ns)
		return fail(failure, EINVAL,
			    "--rounds and --duration do not go together; give "
			    "one");
	if (o->poisson && !o->interval_ns)
		return fail(failure, EINVAL, "--poisson needs --interval");
	if (!o->rounds && !o->duration_ns)
		o->rounds = 1000;
	for (size_t i = 0; !error && i < o->sizes.count; i++)
		error = check_size(o, "--sizes", o->sizes.values[i], failure);
	return error;
}

/* 1: --help. */
static int read_command(const char *word, struct options *ret,
			struct failure *failure)
{
	if (word && !strcmp(word, "echo"))
		ret->command = COMMAND_ECHO;
	else if (word && !strcmp(word, "pingpong"))
		ret->command = COMMAND_PINGPONG;
	else if (!word || strcmp(word, "--help"))
		return fail(failure, EINVAL,
			    "command must be echo or pingpong, got %s; see "
			    "latprof-load --help",
			    word ? word : "nothing");
	else
		return 1;
	return 0;
}

int flags_read(int argc, char **argv, struct options *ret,
	       struct failure *failure)
{
	static uint64_t default_size = 64;
	int error;

	*ret = (struct options){ .address = "127.0.0.1",
				 .cpu = -1,
				 .sizes = { &default_size, 1 },
				 .seed = 1,
				 .progress_fd = -1 };
	error = read_command(argv[1], ret, failure);
	if (!error)
		error = args_read(&commands[ret->command], argc - 1, argv + 1,
				  ret, failure);
	if (!error)
		error = check_common(ret, failure);
	if (!error && ret->command == COMMAND_PINGPONG)
		error = check_pingpong(ret, failure);
	return error;
}

void flags_help(FILE *to)
{
	fputs("usage: latprof-load echo|pingpong [OPTION ...]\n"
	      "echo answers requests; pingpong sends them and "
	      "measures.\n" ARGS_UNITS,
	      to);
	args_help(&commands[COMMAND_ECHO], to);
	args_help(&commands[COMMAND_PINGPONG], to);
}
