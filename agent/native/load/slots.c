/* slots.c - bytes over time: how many fell into each slot of equal length. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "slots.h"

int slots_open(struct slots *s, uint64_t start_ns, uint64_t slot_ns)
{
	*s = (struct slots){ .start_ns = start_ns, .slot_ns = slot_ns };
	s->bytes = calloc(SLOTS_MAX, sizeof(*s->bytes));
	return s->bytes ? 0 : -ENOMEM;
}

void slots_close(struct slots *s)
{
	free(s->bytes);
	s->bytes = NULL;
}

static void merge_pairs(struct slots *s)
{
	for (size_t i = 0; i < SLOTS_MAX / 2; i++)
		s->bytes[i] = s->bytes[2 * i] + s->bytes[2 * i + 1];
	memset(s->bytes + SLOTS_MAX / 2, 0, SLOTS_MAX / 2 * sizeof(*s->bytes));
	s->count = (s->count + 1) / 2;
	s->slot_ns *= 2;
}

void slots_add(struct slots *s, uint64_t now_ns, uint64_t bytes)
{
	uint64_t slot = (now_ns - s->start_ns) / s->slot_ns;

	while (slot >= SLOTS_MAX) {
		merge_pairs(s);
		slot /= 2;
	}
	s->bytes[slot] += bytes;
	if (slot >= s->count)
		s->count = slot + 1;
}
