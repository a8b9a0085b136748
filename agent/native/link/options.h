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

/* An end of a link: its namespace, and the name of its device. */
struct end_request {
	const char *netns;
	const char *name;
};

/* Letters of a list. */
#define LIST_MAX 4095

struct options {
	const char *netns[DIRECTIONS]; /* as written, for one link or many */
	const char *name[DIRECTIONS];
	struct end_request ends[LINKS_MAX][DIRECTIONS];
	size_t links;
	char items[2 * DIRECTIONS][LIST_MAX + 1]; /* what `ends` point into */
	struct path_request path[DIRECTIONS];
	uint64_t seed;
	uint64_t mtu_bytes;
	bool die_with_parent;
};

/* Read the command line; texts in *ret are its own or argv's. 0, 1 where
 * --help was asked for, or -EINVAL with a line for the user. */
int options_read(int argc, char **argv, struct options *ret,
		 struct failure *failure);
void options_help(FILE *to);

#endif
