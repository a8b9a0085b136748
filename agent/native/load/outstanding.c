/* outstanding.c - messages that were sent and wait for their replies. */
#include <errno.h>
#include <stdlib.h>

#include "outstanding.h"

/* Small, so that it stays in the cache; it grows only in a stall. */
enum { CAPACITY_AT_FIRST = 256 };

static struct message *at(const struct outstanding *o, size_t index)
{
	return &o->ring[(o->first + index) & (o->capacity - 1)];
}

int outstanding_open(struct outstanding *o)
{
	*o = (struct outstanding){ .capacity = CAPACITY_AT_FIRST };
	o->ring = calloc(o->capacity, sizeof(*o->ring));
	return o->ring ? 0 : -ENOMEM;
}

void outstanding_close(struct outstanding *o)
{
	free(o->ring);
	*o = (struct outstanding){ 0 };
}

static int grow(struct outstanding *o)
{
	struct message *ring = calloc(2 * o->capacity, sizeof(*ring));

	if (!ring)
		return -ENOMEM;
	for (size_t i = 0; i < o->count; i++)
		ring[i] = *at(o, i);
	free(o->ring);
	o->ring = ring;
	o->capacity *= 2;
	o->first = 0;
	return 0;
}

int outstanding_add(struct outstanding *o, const struct message *message)
{
	if (o->count == o->capacity && grow(o))
		return -ENOMEM;
	*at(o, o->count++) = *message;
	return 0;
}

struct message *outstanding_front(struct outstanding *o)
{
	return o->count ? at(o, 0) : NULL;
}

void outstanding_drop_front(struct outstanding *o)
{
	o->first = (o->first + 1) & (o->capacity - 1);
	o->count--;
}

struct message *outstanding_find(struct outstanding *o, uint64_t key)
{
	size_t low = 0, high = o->count;

	/* Replies come in order nearly always: the first probe is the front. */
	for (size_t probe = 0; low < high; probe = low + (high - low) / 2) {
		struct message *m = at(o, probe);

		if (m->key == key)
			return m;
		if (m->key < key)
			low = probe + 1;
		else
			high = probe;
	}
	return NULL;
}
