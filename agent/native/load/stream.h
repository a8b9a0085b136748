/* stream.h - a TCP stream cut into messages again. */
#ifndef LATPROF_LOAD_STREAM_H
#define LATPROF_LOAD_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

struct stream {
	enum wire wire;
	uint32_t largest; /* message that is taken */
	uint8_t *bytes;
	size_t capacity;
	size_t start; /* of what was received and not yet taken */
	size_t end;
};

/* Room for `capacity` bytes at first; grows with the messages, of which none
 * may have more than `largest` bytes. -ENOMEM. */
int stream_open(struct stream *s, enum wire wire, size_t capacity,
		uint32_t largest);
void stream_close(struct stream *s);
/* Bytes that the next message lacks, or its header where that is not there:
 * after stream_next() has asked for more. */
size_t stream_lacks(const struct stream *s);
/* One recv of at most `limit` bytes: their number, 0 at the end, -errno. */
ssize_t stream_receive(struct stream *s, int fd, size_t limit, int flags);
/* 1: a whole message in *ret, valid until the next stream_receive().
 * 0: more bytes are needed. -EPROTO: not a message. -ENOMEM. */
int stream_next(struct stream *s, struct header *header, uint8_t **ret);

#endif
