/* outstanding.h - messages that were sent and wait for their replies, in the
 * order in which they were sent. */
#ifndef LATPROF_LOAD_OUTSTANDING_H
#define LATPROF_LOAD_OUTSTANDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "records.h"

struct message {
	struct record record;
	uint64_t key; /* as a reply's header has it, see wire.h; rises */
	uint32_t size_index;
	bool settled; /* answered or lost; waits for those before it */
};

struct outstanding {
	struct message *ring;
	size_t capacity; /* a power of two */
	size_t first;
	size_t count;
};

/* -ENOMEM. */
int outstanding_open(struct outstanding *o);
void outstanding_close(struct outstanding *o);
/* Copy a message behind the others. -ENOMEM. */
int outstanding_add(struct outstanding *o, const struct message *message);
/* The oldest, NULL when there is none. */
struct message *outstanding_front(struct outstanding *o);
void outstanding_drop_front(struct outstanding *o);
/* The one with this key, NULL when there is none. */
struct message *outstanding_find(struct outstanding *o, uint64_t key);

#endif
