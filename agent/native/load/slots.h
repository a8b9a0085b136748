/* slots.h - bytes over time: how many fell into each slot of equal length. */
#ifndef LATPROF_LOAD_SLOTS_H
#define LATPROF_LOAD_SLOTS_H

#include <stddef.h>
#include <stdint.h>

/* When there are more, two become one: memory is bounded, and so is what a
 * result carries. At 100 ms these are 27 minutes. */
enum { SLOTS_MAX = 1 << 14 };

struct slots {
	uint64_t start_ns; /* of the first */
	uint64_t slot_ns; /* length of each */
	size_t count;
	uint64_t *bytes;
};

/* -ENOMEM. */
int slots_open(struct slots *s, uint64_t start_ns, uint64_t slot_ns);
void slots_close(struct slots *s);
/* now_ns is not before start_ns. */
void slots_add(struct slots *s, uint64_t now_ns, uint64_t bytes);

#endif
