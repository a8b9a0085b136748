/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_OPTIONS_H
#define LINK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "emulator.h"

/* One direction as asked for; path.loss follows from the other fields. */
struct path_request {
	struct path_options path;
	double loss;
	double loss_burst; /* packets; 0: not asked for */
	bool ge_given;
	struct gilbert_elliott ge;
};

struct options {
	const char *netns[DIRECTIONS];
	const char *name[DIRECTIONS];
	struct path_request path[DIRECTIONS];
	uint64_t seed;
	uint64_t mtu_bytes;
	bool die_with_parent;
	bool help;
};

/* What is wrong with the command line, for a person. */
struct usage_error {
	char text[384];
};

/*
 * Read the command line; texts in *ret are those of argv. 0, or -EINVAL with
 * the reason in *ret_error. Call options_deinit() in either case.
 */
int options_parse(int argc, char **argv, struct options *ret,
		  struct usage_error *ret_error);
void options_deinit(struct options *options);

#endif
