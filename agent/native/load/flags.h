/* flags.h - the command line of latprof-load. */
#ifndef LATPROF_LOAD_FLAGS_H
#define LATPROF_LOAD_FLAGS_H

#include <stdbool.h>

#include "args.h"
#include "wire.h"

enum command { COMMAND_ECHO, COMMAND_PINGPONG };
enum protocol { PROTOCOL_TCP, PROTOCOL_UDP };

struct options {
	enum command command;
	const char *netns; /* NULL: the caller's */
	enum protocol protocol;
	enum wire wire;
	const char *address; /* echo: several, with commas */
	uint64_t port;
	/* Of a client at least one: without --peer, --address and --port. */
	struct arg_endpoints peers;
	struct arg_endpoint only_peer;
	int64_t cpu; /* -1: not pinned */
	const char *congestion; /* NULL: the system's default */
	const char *secret_file; /* NULL: none */
	bool nagle;
	bool die_with_parent;
	bool until_eof;
	const char *workload_list; /* as given; NULL: all */
	uint32_t workloads; /* the set of it */
	uint64_t max_sessions;
	uint64_t max_memory_bytes;
	uint64_t max_message_bytes;
	uint64_t max_rate; /* bytes per second; 0: unlimited */
	uint64_t max_duration_ns; /* 0: unlimited */
	uint64_t idle_ns; /* 0: never */
	uint64_t reply_bytes; /* 0: echo in full */
	uint64_t think_ns;
	struct arg_list sizes;
	uint64_t rounds; /* 0: by duration */
	uint64_t duration_ns; /* 0: by rounds */
	uint64_t warmup_rounds;
	uint64_t seed;
	uint64_t interval_ns; /* 0: closed loop */
	bool poisson;
	uint64_t start_ns; /* CLOCK_MONOTONIC; 0: at once */
	uint64_t max_acks; /* 0: no window */
	uint64_t heartbeat_interval_ns; /* 0: none */
	uint64_t heartbeat_bytes;
	uint64_t train_messages; /* 0: none */
	uint64_t train_gap_ns; /* 0: no trains with a gap */
	bool spin;
	bool no_verify;
	uint64_t timeout_ns; /* 0: adaptive */
	const char *output; /* NULL: no records */
	int64_t progress_fd; /* -1: no progress */
};

/* Read argv into *ret and check all of it. 0, 1 where --help was asked for, or
 * -EINVAL with a line for the user. Strings are borrowed from argv. */
int flags_read(int argc, char **argv, struct options *ret,
	       struct failure *failure);
void flags_help(FILE *to);

#endif
