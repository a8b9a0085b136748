/* payload.c - the bytes behind the header, which show where they belong. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "payload.h"
#include "splitmix.h"
#include "wire.h"

/* 61 windows of a cache line's distance: a prime, so that no usual number of
 * sizes per round gives a size the same window again and again. */
enum { WINDOWS = 61, WINDOW_STEP = 64 };

static size_t window(uint32_t sequence)
{
	return sequence % WINDOWS * WINDOW_STEP;
}

int payload_open(struct payload *p, size_t message_bytes)
{
	size_t words = (message_bytes + WINDOWS * WINDOW_STEP) / 8 + 1;

	*p = (struct payload){ .bytes = words * 8 };
	p->reference = pages_alloc(p->bytes);
	p->outgoing = pages_alloc(p->bytes);
	if (!p->reference || !p->outgoing) {
		payload_close(p);
		return -ENOMEM;
	}
	for (size_t j = 0; j < words; j++) {
		uint64_t word = htobe64(splitmix64(j));

		memcpy(p->reference + 8 * j, &word, sizeof(word));
	}
	memcpy(p->outgoing, p->reference, p->bytes);
	return 0;
}

void payload_close(struct payload *p)
{
	free(p->reference);
	free(p->outgoing);
	*p = (struct payload){ 0 };
}

uint8_t *payload_begin(struct payload *p, uint32_t sequence)
{
	memcpy(p->outgoing + p->begun, p->reference + p->begun, HEADER_BYTES);
	p->begun = window(sequence);
	return p->outgoing + p->begun;
}

bool payload_matches(const struct payload *p, uint32_t sequence,
		     const uint8_t *message, size_t size)
{
	return !memcmp(message + HEADER_BYTES,
		       p->reference + window(sequence) + HEADER_BYTES,
		       size - HEADER_BYTES);
}
