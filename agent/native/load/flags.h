/* flags.h - the command line of latprof-load. */
#ifndef LATPROF_LOAD_FLAGS_H
#define LATPROF_LOAD_FLAGS_H

#include <stdbool.h>

#include "args.h"
#include "clock.h"
#include "secret.h"
#include "wire.h"

enum { ADDRESSES_MAX = 8, ADDRESS_BYTES = 256 };
enum {
	BULK_HEADER_BYTES = 24, /* bulk_plan.h */
	BULK_STREAM_UNIT_MAX = 1 << 20,
	BULK_CHANNELS_MAX = 64,
	BULK_RECEIVE_BUFFER_MAX = 256 << 20,
	BULK_RATE_BPS_MIN = 1000,
};
#define BULK_RATE_BPS_MAX UINT64_C(1000000000000)
#define BULK_VOLUME_BYTES_MAX (UINT64_C(1) << 50)
#define BULK_DURATION_NS_MAX (1000 * NS_PER_HOUR)
#define BULK_SLOT_NS_MAX NS_PER_HOUR

enum command { COMMAND_ECHO, COMMAND_PINGPONG, COMMAND_BULK, COMMAND_FETCH };
enum protocol { PROTOCOL_TCP, PROTOCOL_UDP };
enum bulk_direction { BULK_UP, BULK_DOWN, BULK_BOTH };
/* Auto: the fastest that the kernel allows. */
enum send_way { SEND_WAY_AUTO, SEND_WAY_SEND, SEND_WAY_MMSG, SEND_WAY_GSO };
enum receive_way {
	RECEIVE_WAY_AUTO,
	RECEIVE_WAY_RECV,
	RECEIVE_WAY_MMSG,
	RECEIVE_WAY_GRO,
};

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
	struct secret secret; /* in it; whoever has read the flags reads it */
	bool check;
	bool nagle;
	bool die_with_parent;
	bool until_eof;
	int64_t hand_over; /* a Unix socket; -1: no recording is lent */
	uint64_t since_ns; /* ago */
	uint64_t most_bytes;
	const char *workload_list; /* as given; NULL: all */
	uint32_t workloads; /* the set of it */
	uint64_t max_sessions;
	uint64_t max_memory_bytes;
	uint64_t max_message_bytes;
	uint64_t max_cpu_percent; /* of one CPU; 0: unlimited */
	uint64_t max_host_sessions; /* of each host; 0: as of all */
	uint64_t max_host_memory_bytes;
	uint64_t max_host_cpu_percent;
	uint64_t max_rate; /* bytes per second; 0: unlimited */
	uint64_t max_duration_ns; /* 0: unlimited */
	uint64_t idle_ns; /* 0: never */
	uint64_t reply_bytes; /* 0: echo in full */
	uint64_t think_ns;
	uint64_t busy_ns;
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
	uint64_t channels;
	enum bulk_direction direction;
	uint64_t unit_bytes; /* of a datagram, or of a write */
	uint64_t volume_bytes; /* 0: by duration */
	uint64_t rate_bps; /* of each direction; 0: as fast as it goes */
	uint64_t slot_ns;
	uint64_t receive_buffer_bytes; /* 0: the system's */
	enum send_way send_way;
	enum receive_way receive_way;
};

/* Read argv into *ret and check all of it. 0, 1 where --help was asked for, or
 * -EINVAL with a line for the user. Strings are borrowed from argv. */
int flags_read(int argc, char **argv, struct options *ret,
	       struct failure *failure);
void flags_help(FILE *to);

#endif
