/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_PATH_H
#define LINK_PATH_H

#include <stddef.h>
#include <stdint.h>

#include "args.h"
#include "loss_model.h"

/* What one direction of the link does to packets. */
struct path_options {
	uint64_t rate_bps; /* of IP packets; 0 is infinite */
	uint64_t delay_ns; /* after the last bit has departed */
	uint64_t queue_bytes; /* of packets that have not departed */
	struct gilbert_elliott loss;
	struct arg_list drops;
	struct arg_list reorders;
	uint64_t reorder_delay_ns;
};

/*
 * in = out + dropped + what is in flight. The numbers in the two lists count
 * the packets that carry payload of a transport, from 1, as they come in.
 */
struct path_counters {
	uint64_t packets_in;
	uint64_t bytes_in;
	uint64_t packets_out;
	uint64_t bytes_out;
	uint64_t dropped_queue;
	uint64_t dropped_loss;
	uint64_t dropped_listed;
	uint64_t dropped_write; /* refused by the device: it is down */
	uint64_t in_flight;
	uint64_t reordered; /* delivered after a packet that came later */
	uint64_t max_queue_bytes;
	uint64_t lateness_max_ns; /* of a delivery, after its due time */
	uint64_t lateness_sum_ns;
};

struct flight;

struct flight_list {
	struct flight *first;
	struct flight **last;
};

struct path {
	const struct path_options *options;
	struct path_counters counters;
	struct loss_model loss;
	uint64_t payloads_in;
	uint64_t next_in_order;
	uint64_t busy_until_ns;
	uint64_t bit_remainder;
	uint64_t queued_bytes;
	uint64_t flight_bytes;
	struct flight_list departing;
	/* Each has one delay, so each is in the order of its due times. */
	struct flight_list due;
	struct flight_list due_late;
};

/* `options` stay the caller's and must outlive the path. */
void path_init(struct path *path, const struct path_options *options,
	       uint64_t seed);
void path_deinit(struct path *path);

/* Take a packet that came in at `now_ns`: drop it, or hold a copy of it. */
void path_receive(struct path *path, const void *packet, size_t bytes,
		  uint64_t now_ns);

/* When the next packet is due, or CLOCK_NEVER. */
uint64_t path_due_ns(struct path *path);

/* Write all packets that are due to `fd`, each as one packet. */
void path_deliver(struct path *path, int fd);

#endif
