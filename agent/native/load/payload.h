/*
 * payload.h - the bytes behind the header, which show where they belong.
 *
 * One endless sequence of bytes is given: word j (8 bytes, big endian) is
 * splitmix64 of j. Message s is the window of it that begins at byte
 * 64 * (s mod 61), with the header laid over its first 18 bytes. A message is
 * thus sent from where it lies: no copy, whatever its size. Bytes that were
 * moved, lost, doubled or taken from a neighbouring message do not match.
 */
#ifndef LATPROF_LOAD_PAYLOAD_H
#define LATPROF_LOAD_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct payload {
	uint8_t *reference; /* never written to after payload_open() */
	uint8_t *outgoing; /* the same bytes, with a header laid over them */
	size_t begun; /* where in `outgoing` that header is */
	size_t bytes;
};

/* Room for messages of up to `message_bytes`. -ENOMEM. */
int payload_open(struct payload *p, size_t message_bytes);
void payload_close(struct payload *p);
/* The next message to send; the caller writes its header. The message before
 * must have left: it is overwritten. */
uint8_t *payload_begin(struct payload *p, uint32_t sequence);
/* Are bytes 18..size of this message what its sequence says? */
bool payload_matches(const struct payload *p, uint32_t sequence,
		     const uint8_t *message, size_t size);

#endif
