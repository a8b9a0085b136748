/* args.h - a command line as one table: from it come the parser, the checks of
 * ranges, what is said of a wrong value, and the help. */
#ifndef LATPROF_ARGS_H
#define LATPROF_ARGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "failure.h"

/* What an option's value is, and where it goes. A number may have a unit: k,
 * m, kib, mib; bit, kbit, mbit, gbit; ns, us, ms, s. */
enum arg_type {
	ARG_SWITCH, /* no value; bool */
	ARG_TEXT, /* const char *, of argv; low and high bound its length */
	ARG_CHOICE, /* enum; the metavar holds its words: tcp|udp */
	ARG_COUNT, /* uint64_t, as are the next four */
	ARG_BYTES,
	ARG_RATE, /* bit/s */
	ARG_TIME, /* ns */
	ARG_SECONDS, /* seconds where no unit is given; kept in ns */
	ARG_REAL, /* double */
	ARG_ENDPOINTS, /* one more each time it is given */
};

#define ARGS_UNITS                                                  \
	"RATE is bit/s (20mbit), TIME has a unit (10ms) or is ns, " \
	"BYTES may have one\n(64k, 1mib).\n"

struct arg {
	const char *name; /* without dashes; NULL: see `commands` */
	enum arg_type type;
	size_t offset; /* of where it goes */
	uint64_t low, high;
	const char *metavar;
	const char *help; /* NULL: not shown there */
	/* 0: one value. Of ARG_REAL so many doubles in a row; of others a
	 * struct arg_list of at most so many. */
	size_t items;
	/* Without a name: commands, as bits, that know the rows from here on;
	 * 0: all do. */
	uint64_t commands;
	size_t twin; /* not 0: the value also goes so many bytes further */
};

/* As many as the user likes; owned by the process, never freed. */
struct arg_list {
	uint64_t *values;
	size_t count;
};

/* Where a program listens. */
struct arg_endpoint {
	const char *address; /* without the brackets of IPv6 */
	uint64_t port;
};

/* As many as the user likes; owned by the process, never freed. */
struct arg_endpoints {
	struct arg_endpoint *values;
	size_t count;
};

struct args {
	const char *program; /* as the user calls it */
	const struct arg *rows;
	size_t count;
	uint64_t command; /* its bit */
};

/* Read argv[1] and on into *ret; of an option given twice the later counts,
 * unless it is a list of endpoints.
 * 0, 1 where --help was asked for, or -errno with a line for the user. */
int args_read(const struct args *args, int argc, char **argv, void *ret,
	      struct failure *failure);
void args_help(const struct args *args, FILE *to);

#endif
