/* wire.c - the first 18 bytes of a message, in network byte order. */
#include <errno.h>

#include "big_endian.h"
#include "clock.h"
#include "wire.h"

enum { SIZE_AT = 2, SEQUENCE_AT = 6, CREATED_AT = 10 };
enum { CLEAR_SECONDS_AT = 2, CLEAR_MICROSECONDS_AT = 10 };

void wire_stamp(uint8_t *message, uint64_t created_ns)
{
	put_u64(message + CREATED_AT, created_ns);
}

void wire_write(uint8_t *message, enum kind kind, uint32_t size,
		uint32_t sequence, uint64_t created_ns)
{
	message[0] = (uint8_t)kind;
	message[1] = WIRE_VERSION;
	put_u32(message + SIZE_AT, size);
	put_u32(message + SEQUENCE_AT, sequence);
	wire_stamp(message, created_ns);
}

void wire_write_clear(uint8_t *message, uint32_t size, uint64_t real_ns)
{
	message[0] = (uint8_t)(size >> 8);
	message[1] = (uint8_t)size;
	put_u64(message + CLEAR_SECONDS_AT, real_ns / NS_PER_SECOND);
	put_u64(message + CLEAR_MICROSECONDS_AT,
		real_ns % NS_PER_SECOND / 1000);
}

static int parse_clear(const uint8_t *message, struct header *ret)
{
	ret->size = (uint32_t)message[0] << 8 | message[1];
	ret->kind = KIND_REPLY;
	ret->key = get_u64(message + CLEAR_SECONDS_AT) * NS_PER_SECOND +
		   get_u64(message + CLEAR_MICROSECONDS_AT) * 1000;
	ret->created_ns = 0;
	return ret->size < HEADER_BYTES ? -EPROTO : 0;
}

int wire_parse(enum wire wire, const uint8_t *message, struct header *ret)
{
	if (wire == WIRE_CLEAR)
		return parse_clear(message, ret);
	ret->kind = message[0];
	ret->size = get_u32(message + SIZE_AT);
	ret->key = get_u32(message + SEQUENCE_AT);
	ret->created_ns = get_u64(message + CREATED_AT);
	if (ret->kind != KIND_REQUEST && ret->kind != KIND_REPLY)
		return -EPROTO;
	if (message[1] != WIRE_VERSION || ret->size < HEADER_BYTES ||
	    ret->size > MESSAGE_BYTES_MAX)
		return -EPROTO;
	return 0;
}
