/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_OPTIONS_H
#define LINK_OPTIONS_H

#include <stdbool.h>

#include "emulator.h"

/* One direction as asked for; path.loss follows from the other fields. */
struct path_request {
	struct path_options path;
	double loss;
	double loss_burst; /* packets; 0: not asked for */
	struct gilbert_elliott ge; /* good_to_bad < 0: not asked for */
};

struct options {
	const char *netns[DIRECTIONS];
	const char *name[DIRECTIONS];
	struct path_request path[DIRECTIONS];
	uint64_t seed;
	uint64_t mtu_bytes;
	bool die_with_parent;
};

/* Read the command line; texts in *ret are those of argv. 0, 1 where --help
 * was asked for, or -EINVAL with a line for the user. */
int options_read(int argc, char **argv, struct options *ret,
		 struct failure *failure);
void options_help(FILE *to);

#endif
