/* bulk_totals.c - what the two ends of a bulk channel counted, and how that
 * crosses the control connection. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "big_endian.h"
#include "bulk_totals.h"

enum { WORD = sizeof(uint64_t) };

int bulk_sent_open(struct bulk_sent *s, uint64_t start_ns, uint64_t slot_ns)
{
	*s = (struct bulk_sent){ .totals = { .start_ns = start_ns } };
	return slots_open(&s->slots, start_ns, slot_ns);
}

void bulk_sent_close(struct bulk_sent *s)
{
	slots_close(&s->slots);
}

int bulk_received_open(struct bulk_received *r, uint64_t start_ns,
		       uint64_t slot_ns)
{
	*r = (struct bulk_received){ .totals = { .start_ns = start_ns } };
	r->runs = calloc(SEQUENCE_RUNS_MAX, sizeof(*r->runs));
	return r->runs ? slots_open(&r->slots, start_ns, slot_ns) : -ENOMEM;
}

void bulk_received_close(struct bulk_received *r)
{
	slots_close(&r->slots);
	free(r->runs);
	r->runs = NULL;
}

static uint8_t *put_words(uint8_t *to, const void *words, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += WORD) {
		uint64_t word;

		memcpy(&word, (const uint8_t *)words + at, WORD);
		put_u64(to + at, word);
	}
	return to + bytes;
}

static uint8_t *put_array(uint8_t *to, const void *items, size_t count,
			  size_t item_bytes)
{
	put_u64(to, count);
	return put_words(to + WORD, items, count * item_bytes);
}

static uint8_t *put_slots(uint8_t *to, const struct slots *s)
{
	put_u64(to, s->slot_ns);
	return put_array(to + WORD, s->bytes, s->count, WORD);
}

size_t bulk_sent_write(const struct bulk_sent *s, uint8_t *to)
{
	uint8_t *at = put_words(to, &s->totals, sizeof(s->totals));

	return (size_t)(put_slots(at, &s->slots) - to);
}

size_t bulk_received_write(const struct bulk_received *r, uint8_t *to)
{
	uint8_t *at = put_words(to, &r->totals, sizeof(r->totals));

	at = put_slots(at, &r->slots);
	at = put_words(at, r->lengths, sizeof(r->lengths));
	at = put_array(at, r->runs, r->runs_kept, sizeof(*r->runs));
	return (size_t)(at - to);
}

/* What is left of a body that is read. */
struct body {
	const uint8_t *at;
	size_t left;
};

static bool take_words(struct body *b, void *ret, size_t bytes)
{
	if (b->left < bytes)
		return false;
	for (size_t at = 0; at < bytes; at += WORD) {
		uint64_t word = get_u64(b->at + at);

		memcpy((uint8_t *)ret + at, &word, WORD);
	}
	b->at += bytes;
	b->left -= bytes;
	return true;
}

static bool take_array(struct body *b, void *ret, size_t most,
		       size_t item_bytes, size_t *count)
{
	uint64_t said;

	if (!take_words(b, &said, WORD) || said > most)
		return false;
	*count = said;
	return take_words(b, ret, said * item_bytes);
}

static bool take_slots(struct body *b, struct slots *ret)
{
	return take_words(b, &ret->slot_ns, WORD) && ret->slot_ns &&
	       take_array(b, ret->bytes, SLOTS_MAX, WORD, &ret->count);
}

int bulk_sent_read(struct bulk_sent *ret, const uint8_t *from, size_t size)
{
	struct body b = { from, size };

	if (!take_words(&b, &ret->totals, sizeof(ret->totals)) ||
	    !take_slots(&b, &ret->slots) || b.left)
		return -EPROTO;
	return 0;
}

int bulk_received_read(struct bulk_received *ret, const uint8_t *from,
		       size_t size)
{
	struct body b = { from, size };

	if (!take_words(&b, &ret->totals, sizeof(ret->totals)) ||
	    !take_slots(&b, &ret->slots) ||
	    !take_words(&b, ret->lengths, sizeof(ret->lengths)) ||
	    !take_array(&b, ret->runs, SEQUENCE_RUNS_MAX, sizeof(*ret->runs),
			&ret->runs_kept) ||
	    b.left)
		return -EPROTO;
	return 0;
}
