/* flags.c - the command line of latprof-load: its table, and whether the
 * options go together. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "clock.h"
#include "flags.h"
#include "handshake.h"
#include "workload.h"

#define AT(member) offsetof(struct options, member)
#define LOOPBACK "127.0.0.1"

enum { TRAIN_MAX = 10000, SESSIONS_MAX = 4096, CPU_PERCENT_MAX = 819200 };

enum {
	ECHO = 1 << COMMAND_ECHO,
	PINGPONG = 1 << COMMAND_PINGPONG,
	BULK = 1 << COMMAND_BULK,
	FETCH = 1 << COMMAND_FETCH,
};

enum { DATAGRAM_BYTES = 1400, WRITE_BYTES = 1 << 17 };

static const struct arg rows[] = {
	{ "netns", ARG_TEXT, AT(netns), 1, PATH_MAX - 1, "NAME|PATH",
	  "enter this network namespace first" },
	{ "address", ARG_TEXT, AT(address), 1,
	  ADDRESSES_MAX * ADDRESS_BYTES - 1, "ADDRESS",
	  "of the responder; echo: to listen on, several with commas "
	  "(127.0.0.1)" },
	{ "port", ARG_COUNT, AT(port), 0, 65535, "N",
	  "port; echo: 0 takes any (0)" },
	{ "cpu", ARG_COUNT, AT(cpu), 0, 8191, "N", "stay on this CPU" },
	{ "congestion", ARG_TEXT, AT(congestion), 1, 15, "NAME",
	  "TCP congestion control (the system's)" },
	{ "wire", ARG_CHOICE, AT(wire), 0, 0, "latprof|clear",
	  "format of the header (latprof)" },
	{ "secret-file", ARG_TEXT, AT(secret_file), 1, PATH_MAX - 1, "FILE",
	  "the secret that both ends must know; only its owner may read it" },
	{ "check", ARG_SWITCH, AT(check),
	  .help = "start nothing: the exit status tells whether it could be" },
	{ "nagle", ARG_SWITCH, AT(nagle),
	  .help = "leave Nagle's algorithm on" },
	{ "die-with-parent", ARG_SWITCH, AT(die_with_parent),
	  .help = "end when the process that started us ends" },
	{ .commands = ECHO },
	{ "until-eof", ARG_SWITCH, AT(until_eof),
	  .help = "end when stdin closes" },
	{ "workloads", ARG_TEXT, AT(workload_list), 1, 255, "NAME,...",
	  "serve these only (all)" },
	{ "max-sessions", ARG_COUNT, AT(max_sessions), 1, SESSIONS_MAX, "N",
	  "at once (64)" },
	{ "max-host-sessions", ARG_COUNT, AT(max_host_sessions), 1,
	  SESSIONS_MAX, "N",
	  "at once, of a host: an IPv4 address, or a /64 of IPv6 (all)" },
	{ "max-memory", ARG_BYTES, AT(max_memory_bytes), 1 << 20, 1ull << 40,
	  "BYTES",
	  "for messages of all sessions together, and what their UDP sockets "
	  "hold (1024mib)" },
	{ "max-host-memory", ARG_BYTES, AT(max_host_memory_bytes), 1 << 20,
	  1ull << 40, "BYTES", "of that, for the sessions of a host (all)" },
	{ "max-cpu", ARG_COUNT, AT(max_cpu_percent), 1, CPU_PERCENT_MAX,
	  "PERCENT",
	  "of one CPU, for all sessions together; where they take more for "
	  "long the busiest are ended (unlimited)" },
	{ "max-host-cpu", ARG_COUNT, AT(max_host_cpu_percent), 1,
	  CPU_PERCENT_MAX, "PERCENT",
	  "the same for the sessions of a host (unlimited)" },
	{ "max-message", ARG_BYTES, AT(max_message_bytes), HEADER_BYTES,
	  MESSAGE_BYTES_MAX, "BYTES", "of a request or a reply (64mib)" },
	{ "max-rate", ARG_BYTES, AT(max_rate), 1000, 1ull << 40, "BYTES",
	  "answered per second, all sessions together (unlimited)" },
	{ "max-duration", ARG_SECONDS, AT(max_duration_ns), NS_PER_SECOND,
	  1000 * NS_PER_HOUR, "SECONDS",
	  "of a session; one whose client said a duration may take 75 s more, "
	  "to begin and to end (unlimited)" },
	{ "idle", ARG_SECONDS, AT(idle_ns), NS_PER_SECOND, 1000 * NS_PER_HOUR,
	  "SECONDS", "end a session in which nothing moved for so long (600)" },
	{ "hand-over", ARG_COUNT, AT(hand_over), 0, INT_MAX, "N",
	  "whoever asks for the recording is handed to this Unix socket "
	  "(nobody "
	  "gets any)" },
	{ .commands = PINGPONG },
	{ "protocol", ARG_CHOICE, AT(protocol), 0, 0, "tcp|udp",
	  "transport (tcp)" },
	{ "reply", ARG_BYTES, AT(reply_bytes), HEADER_BYTES, MESSAGE_BYTES_MAX,
	  "BYTES", "size of replies (full echo)" },
	{ "think", ARG_TIME, AT(think_ns), 0, THINK_NS_MAX, "TIME",
	  "work of the responder before each answer (0)" },
	{ "busy", ARG_TIME, AT(busy_ns), 0, THINK_NS_MAX, "TIME",
	  "work of the responder after each answer, before it reads more (0)" },
	{ "peer", ARG_ENDPOINTS, AT(peers), 1, 65535, "ADDRESS:PORT",
	  "a responder; several: give it once for each" },
	{ "sizes", ARG_BYTES, AT(sizes), HEADER_BYTES, MESSAGE_BYTES_MAX,
	  "BYTES,...", "each once per round, in random order (64)",
	  .items = SIZE_MAX },
	{ "rounds", ARG_COUNT, AT(rounds), 1, UINT32_MAX, "N",
	  "measured rounds (1000)" },
	{ "duration", ARG_SECONDS, AT(duration_ns), NS_PER_MS,
	  1000 * NS_PER_HOUR, "SECONDS", "measure for this long instead" },
	{ "warmup", ARG_COUNT, AT(warmup_rounds), 0, UINT32_MAX, "N",
	  "rounds before the measured ones (0)" },
	{ "seed", ARG_COUNT, AT(seed), 0, UINT64_MAX, "N",
	  "of the random order (1)" },
	{ "interval", ARG_TIME, AT(interval_ns), 1, NS_PER_HOUR, "TIME",
	  "open loop: a message every so often (closed loop)" },
	{ "start-at", ARG_COUNT, AT(start_ns), 1, INT64_MAX, "NS",
	  "of CLOCK_MONOTONIC: when the first is due (at once)" },
	{ "max-acks", ARG_COUNT, AT(max_acks), 1, UINT32_MAX, "N",
	  "wait while so many messages have no reply (no window)" },
	{ "heartbeat-interval", ARG_TIME, AT(heartbeat_interval_ns), 1,
	  NS_PER_HOUR, "TIME",
	  "a short message every so often besides (none)" },
	{ "heartbeat-bytes", ARG_BYTES, AT(heartbeat_bytes), HEADER_BYTES,
	  MESSAGE_BYTES_MAX, "BYTES", "size of heartbeats (150)" },
	{ "train", ARG_COUNT, AT(train_messages), 2, TRAIN_MAX, "N",
	  "of each size a train of N back to back as well" },
	{ "train-gap", ARG_TIME, AT(train_gap_ns), 1, NS_PER_SECOND, "TIME",
	  "and one with this much between its sends" },
	{ "poisson", ARG_SWITCH, AT(poisson),
	  .help = "exponential gaps with mean --interval" },
	{ "spin", ARG_SWITCH, AT(spin),
	  .help = "wait busily for due times and replies" },
	{ "timeout", ARG_TIME, AT(timeout_ns), 1, NS_PER_HOUR, "TIME",
	  "UDP: a datagram is lost; TCP: the peer is dead (adaptive)" },
	{ "no-verify", ARG_SWITCH, AT(no_verify),
	  .help = "do not compare the replies' payload" },
	{ "output", ARG_TEXT, AT(output), 1, PATH_MAX - 1, "FILE",
	  "records of every message" },
	{ "progress-fd", ARG_COUNT, AT(progress_fd), 0, INT_MAX, "N",
	  "write lines `done total` to this descriptor" },
	{ .commands = BULK },
	{ "protocol", ARG_CHOICE, AT(protocol), 0, 0, "tcp|udp",
	  "transport (udp)" },
	{ "channels", ARG_COUNT, AT(channels), 1, BULK_CHANNELS_MAX, "N",
	  "each with a socket and a thread at each end (1)" },
	{ "direction", ARG_CHOICE, AT(direction), 0, 0, "up|down|both",
	  "from here, to here (up)" },
	{ "size", ARG_BYTES, AT(unit_bytes), BULK_HEADER_BYTES,
	  BULK_STREAM_UNIT_MAX, "BYTES",
	  "of a datagram (1400), or of a write to TCP (128kib)" },
	{ "bytes", ARG_BYTES, AT(volume_bytes), 1, BULK_VOLUME_BYTES_MAX,
	  "BYTES",
	  "send so many in each direction, all channels together, in whole "
	  "datagrams" },
	{ "duration", ARG_SECONDS, AT(duration_ns), NS_PER_MS,
	  BULK_DURATION_NS_MAX, "SECONDS",
	  "send for this long (10, without --bytes)" },
	{ "rate", ARG_RATE, AT(rate_bps), BULK_RATE_BPS_MIN, BULK_RATE_BPS_MAX,
	  "RATE",
	  "of each direction, all channels together, without headers (as "
	  "fast as it goes)" },
	{ "spin", ARG_SWITCH, AT(spin),
	  .help = "wait busily for what --rate makes due" },
	{ "send-way", ARG_CHOICE, AT(send_way), 0, 0, "auto|send|sendmmsg|gso",
	  "UDP: one by one, many in a call, many in a packet (auto: the last "
	  "that works)" },
	{ "receive-way", ARG_CHOICE, AT(receive_way), 0, 0,
	  "auto|recv|recvmmsg|gro", "the same of the receiver" },
	{ "receive-buffer", ARG_BYTES, AT(receive_buffer_bytes), 1024,
	  BULK_RECEIVE_BUFFER_MAX, "BYTES",
	  "UDP: SO_RCVBUF of the receiver (the system's)" },
	{ "slot", ARG_TIME, AT(slot_ns), NS_PER_MS, BULK_SLOT_NS_MAX, "TIME",
	  "count throughput in slots of this length (100ms)" },
	{ "progress-fd", ARG_COUNT, AT(progress_fd), 0, INT_MAX, "N",
	  "write lines `done total` to this descriptor" },
	{ .commands = FETCH },
	{ "hand-over", ARG_COUNT, AT(hand_over), 0, INT_MAX, "N",
	  "a Unix socket that the connection is handed to" },
	{ "since", ARG_TIME, AT(since_ns), 0, 1000 * NS_PER_HOUR, "TIME",
	  "what is wanted began so long ago, or later (0)" },
	{ "most-bytes", ARG_BYTES, AT(most_bytes), 1, INT64_MAX, "BYTES",
	  "take so many at most (1)" },
};

static const struct args commands[] = {
	[COMMAND_ECHO] = { "latprof-load echo", rows,
			   sizeof(rows) / sizeof(*rows), ECHO },
	[COMMAND_PINGPONG] = { "latprof-load pingpong", rows,
			       sizeof(rows) / sizeof(*rows), PINGPONG },
	[COMMAND_BULK] = { "latprof-load bulk", rows,
			   sizeof(rows) / sizeof(*rows), BULK },
	[COMMAND_FETCH] = { "latprof-load fetch", rows,
			    sizeof(rows) / sizeof(*rows), FETCH },
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

	if (o->wire == WIRE_CLEAR &&
	    (o->reply_bytes || o->think_ns || o->busy_ns || o->secret_file))
		return fail(failure, EINVAL,
			    "%s does not go with --wire clear, whose responder "
			    "echoes in full and asks for nothing",
			    o->reply_bytes ? "--reply" :
			    o->think_ns	   ? "--think" :
			    o->busy_ns	   ? "--busy" :
					     "--secret-file");
	if (udp && (o->congestion || o->nagle))
		return fail(failure, EINVAL,
			    "%s does not go with --protocol udp",
			    o->nagle ? "--nagle" : "--congestion");
	return check_size(o, "--reply", o->reply_bytes, failure);
}

static bool are_addresses(const char *text)
{
	size_t count = 0, length;

	do {
		length = strcspn(text, ",");
		if (!length || length >= ADDRESS_BYTES ||
		    ++count > ADDRESSES_MAX)
			return false;
		text += length + 1;
	} while (text[-1]);
	return true;
}

/* What asks for nothing can be refused nothing. */
static int check_clear_echo(const struct options *o, struct failure *failure)
{
	if (!(o->workloads & workload_bit(WORKLOAD_PINGPONG)))
		return fail(failure, EINVAL,
			    "--workloads must name pingpong with --wire clear, "
			    "got %.80s",
			    o->workload_list);
	if (o->max_message_bytes < CLEAR_BYTES_MAX)
		return fail(failure, EINVAL,
			    "--max-message must be at least %u with --wire "
			    "clear, got %llu",
			    CLEAR_BYTES_MAX,
			    (unsigned long long)o->max_message_bytes);
	return 0;
}

static int check_echo(struct options *o, struct failure *failure)
{
	if (o->address && !are_addresses(o->address))
		return fail(failure, EINVAL,
			    "--address must be 1 to %d addresses with commas, "
			    "got %.80s",
			    ADDRESSES_MAX, o->address);
	/* Lent is what --hand-over says, whichever are named. */
	o->workloads = UINT32_MAX;
	if (o->workload_list && workloads_read(o->workload_list, &o->workloads))
		return fail(failure, EINVAL,
			    "--workloads must be some of pingpong,bulk"
			    ", with commas, got %.80s",
			    o->workload_list);
	o->workloads &= ~workload_bit(WORKLOAD_RECORDING);
	if (o->hand_over >= 0)
		o->workloads |= workload_bit(WORKLOAD_RECORDING);
	return o->wire == WIRE_CLEAR ? check_clear_echo(o, failure) : 0;
}

static int check_port(const struct options *o, struct failure *failure)
{
	if (o->port)
		return 0;
	return fail(failure, EINVAL,
		    "--port is needed: give the port that the responder "
		    "printed");
}

/* Who is to answer. */
static int check_peers(struct options *o, struct failure *failure)
{
	if (o->peers.count && (o->address || o->port))
		return fail(failure, EINVAL,
			    "--peer does not go with --address and --port; "
			    "give the responders as --peer alone");
	if (o->peers.count > 1 && !o->interval_ns)
		return fail(failure, EINVAL,
			    "several --peer need --interval: a closed loop "
			    "has one");
	if (o->peers.count)
		return 0;
	if (check_port(o, failure))
		return -EINVAL;
	o->only_peer = (struct arg_endpoint){ o->address ?: LOOPBACK, o->port };
	o->peers = (struct arg_endpoints){ &o->only_peer, 1 };
	return 0;
}

/* What goes with an open loop alone, and with what it goes. */
static int check_pacing(const struct options *o, struct failure *failure)
{
	if (!o->interval_ns &&
	    (o->poisson || o->max_acks || o->heartbeat_interval_ns))
		return fail(failure, EINVAL, "%s needs --interval",
			    o->poisson	? "--poisson" :
			    o->max_acks ? "--max-acks" :
					  "--heartbeat-interval");
	if (o->heartbeat_bytes && !o->heartbeat_interval_ns)
		return fail(failure, EINVAL,
			    "--heartbeat-bytes needs --heartbeat-interval");
	if (o->train_gap_ns && !o->train_messages)
		return fail(failure, EINVAL, "--train-gap needs --train");
	if (o->train_messages && (o->max_acks || o->heartbeat_interval_ns))
		return fail(failure, EINVAL,
			    "%s does not go with --train, whose messages "
			    "leave together",
			    o->max_acks ? "--max-acks" :
					  "--heartbeat-interval");
	return 0;
}

/* A channel without a unit would have no end. */
static int check_volume(const struct options *o, struct failure *failure)
{
	uint64_t least = (o->channels - 1) * o->unit_bytes;

	if (!o->volume_bytes || o->volume_bytes > least)
		return 0;
	return fail(failure, EINVAL,
		    "--bytes must be more than %llu for %llu channels of "
		    "--size %llu, got %llu; give fewer --channels or a smaller "
		    "--size",
		    (unsigned long long)least, (unsigned long long)o->channels,
		    (unsigned long long)o->unit_bytes,
		    (unsigned long long)o->volume_bytes);
}

static int check_bulk(struct options *o, struct failure *failure)
{
	bool udp = o->protocol == PROTOCOL_UDP;

	if (check_port(o, failure))
		return -EINVAL;
	if (o->wire == WIRE_CLEAR)
		return fail(failure, EINVAL,
			    "--wire clear does not go with bulk; leave it out");
	if (o->volume_bytes && o->duration_ns)
		return fail(failure, EINVAL,
			    "--bytes and --duration do not go together; give "
			    "one");
	if (!udp && (o->send_way || o->receive_way || o->receive_buffer_bytes))
		return fail(failure, EINVAL,
			    "%s does not go with --protocol tcp",
			    o->send_way	   ? "--send-way" :
			    o->receive_way ? "--receive-way" :
					     "--receive-buffer");
	if (o->spin && !o->rate_bps)
		return fail(failure, EINVAL, "--spin needs --rate");
	if (!o->volume_bytes && !o->duration_ns)
		o->duration_ns = 10 * NS_PER_SECOND;
	if (!o->unit_bytes)
		o->unit_bytes = udp ? DATAGRAM_BYTES : WRITE_BYTES;
	if (udp && check_size(o, "--size", o->unit_bytes, failure))
		return -EINVAL;
	return check_volume(o, failure);
}

static int check_fetch(const struct options *o, struct failure *failure)
{
	if (o->hand_over < 0)
		return fail(failure, EINVAL,
			    "--hand-over is needed: give a Unix socket");
	if (o->wire == WIRE_CLEAR)
		return fail(
			failure, EINVAL,
			"--wire clear does not go with fetch; leave it out");
	return check_port(o, failure);
}

static int check_pingpong(struct options *o, struct failure *failure)
{
	int error = check_peers(o, failure);

	if (!error)
		error = check_pacing(o, failure);
	if (error)
		return error;
	if (o->rounds && o->duration_ns)
		return fail(failure, EINVAL,
			    "--rounds and --duration do not go together; give "
			    "one");
	if (!o->rounds && !o->duration_ns)
		o->rounds = 1000;
	if (o->heartbeat_interval_ns && !o->heartbeat_bytes)
		o->heartbeat_bytes = 150;
	error = check_size(o, "--heartbeat-bytes", o->heartbeat_bytes, failure);
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
	else if (word && !strcmp(word, "bulk"))
		ret->command = COMMAND_BULK;
	else if (word && !strcmp(word, "fetch"))
		ret->command = COMMAND_FETCH;
	else if (!word || strcmp(word, "--help"))
		return fail(failure, EINVAL,
			    "command must be echo, pingpong, bulk or fetch, "
			    "got %s; "
			    "see latprof-load --help",
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

	*ret = (struct options){ .cpu = -1,
				 .sizes = { &default_size, 1 },
				 .seed = 1,
				 .progress_fd = -1,
				 .hand_over = -1,
				 .most_bytes = 1,
				 .max_sessions = 64,
				 .max_memory_bytes = 1 << 30,
				 .max_message_bytes = MESSAGE_BYTES_MAX,
				 .idle_ns = 600 * NS_PER_SECOND,
				 .channels = 1,
				 .slot_ns = 100 * NS_PER_MS };
	error = read_command(argv[1], ret, failure);
	if (ret->command == COMMAND_BULK)
		ret->protocol = PROTOCOL_UDP;
	if (!error)
		error = args_read(&commands[ret->command], argc - 1, argv + 1,
				  ret, failure);
	if (!error)
		error = check_common(ret, failure);
	if (!error)
		error = ret->command == COMMAND_ECHO ?
				check_echo(ret, failure) :
			ret->command == COMMAND_BULK ?
				check_bulk(ret, failure) :
			ret->command == COMMAND_FETCH ?
				check_fetch(ret, failure) :
				check_pingpong(ret, failure);
	if (!error && !ret->address)
		ret->address = LOOPBACK;
	return error;
}

void flags_help(FILE *to)
{
	fputs("usage: latprof-load echo|pingpong|bulk|fetch [OPTION ...]\n"
	      "echo answers requests; pingpong sends them and measures; bulk "
	      "sends or\nreceives a mass of data; fetch asks for what a "
	      "responder has recorded.\n" ARGS_UNITS,
	      to);
	args_help(&commands[COMMAND_ECHO], to);
	args_help(&commands[COMMAND_PINGPONG], to);
	args_help(&commands[COMMAND_BULK], to);
	args_help(&commands[COMMAND_FETCH], to);
}
