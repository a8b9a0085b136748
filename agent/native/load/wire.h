/*
 * wire.h - the first 18 bytes of a message, in network byte order.
 *
 *   latprof   u8 kind, u8 version, u32 size, u32 sequence, u64 created_ns
 *   clear     u16 size, i64 tv_sec, i64 tv_usec: the ping-pong program of the
 *             CLEAR experiment, whose server echoes bytes unchanged
 *
 * Size counts the whole message. What follows the header: payload.h.
 */
#ifndef LATPROF_LOAD_WIRE_H
#define LATPROF_LOAD_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define HEADER_BYTES 18
#define WIRE_VERSION 1
#define MESSAGE_BYTES_MAX (64u << 20)
#define CLEAR_BYTES_MAX 65535u
#define DATAGRAM_BYTES_MAX 65507u

enum wire { WIRE_LATPROF, WIRE_CLEAR };
enum kind { KIND_REQUEST = 1, KIND_REPLY = 2 };

struct header {
	uint32_t size;
	enum kind kind; /* clear does not say: KIND_REPLY */
	uint64_t key; /* latprof: sequence; clear: the wall clock in ns */
	uint64_t created_ns; /* latprof only, else 0 */
};

/* Write the header of a latprof message. */
void wire_write(uint8_t *message, enum kind kind, uint32_t size,
		uint32_t sequence, uint64_t created_ns);
/* Write the creation time alone, the last thing before a send. */
void wire_stamp(uint8_t *message, uint64_t created_ns);
/* Write the header of a clear message; the time is cut to microseconds. */
void wire_write_clear(uint8_t *message, uint32_t size, uint64_t real_ns);
/* Read HEADER_BYTES. -EPROTO when they are no header of this wire. */
int wire_parse(enum wire wire, const uint8_t *message, struct header *ret);

#endif
