/*
 * client.h - what the exchanges with several peers share: the records, the
 * progress, and when it all began.
 */
#ifndef LATPROF_LOAD_CLIENT_H
#define LATPROF_LOAD_CLIENT_H

#include <signal.h>

#include "flags.h"
#include "records.h"

struct exchange;

struct client {
	const struct options *options;
	const volatile sig_atomic_t *stop;
	struct failure *failure;
	struct records records;
	struct exchange *exchanges; /* one for each of options->peers */
	uint64_t upkept_ns;
};

/* Room for the exchanges, whose sockets the caller then puts there. -ENOMEM
 * with a line. */
int client_reserve(struct client *c);
/* Say in a line that there is no memory for so many peers. */
int client_fail_memory(const struct client *c);
void client_release(struct client *c);
/* Everything else. 0 or -errno with a line. */
int client_open(struct client *c);
/* Write the last records and the last progress. */
int client_close(struct client *c);
/* Four times a second: write records and progress. Between messages only. */
int client_upkeep(struct client *c, uint64_t now_ns);
/* When the first measured message was due; 0: none was. */
uint64_t client_measured_ns(const struct client *c);

#endif
