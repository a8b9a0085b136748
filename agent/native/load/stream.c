/* stream.c - a TCP stream cut into messages again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "pages.h"
#include "stream.h"

int stream_open(struct stream *s, enum wire wire, size_t capacity,
		uint32_t largest)
{
	*s = (struct stream){ .wire = wire,
			      .largest = largest,
			      .capacity = capacity };
	s->bytes = pages_alloc(capacity);
	return s->bytes ? 0 : -ENOMEM;
}

void stream_close(struct stream *s)
{
	free(s->bytes);
	s->bytes = NULL;
}

size_t stream_lacks(const struct stream *s)
{
	size_t there = s->end - s->start;
	struct header header;

	if (there < HEADER_BYTES)
		return HEADER_BYTES - there;
	wire_parse(s->wire, s->bytes + s->start, &header);
	return header.size - there;
}

ssize_t stream_receive(struct stream *s, int fd, size_t limit, int flags)
{
	size_t room;
	ssize_t n;

	if (s->start == s->end)
		s->start = s->end = 0;
	room = s->capacity - s->end;
	n = recv(fd, s->bytes + s->end, room < limit ? room : limit, flags);
	if (n < 0)
		return -errno;
	s->end += (size_t)n;
	return n;
}

/* Let the message that begins at `start` and has `size` bytes fit. */
static int make_room(struct stream *s, size_t size)
{
	uint8_t *bytes;

	if (s->start + size <= s->capacity)
		return 0;
	if (size <= s->capacity) {
		memmove(s->bytes, s->bytes + s->start, s->end - s->start);
	} else {
		bytes = pages_alloc(size);
		if (!bytes)
			return -ENOMEM;
		memcpy(bytes, s->bytes + s->start, s->end - s->start);
		free(s->bytes);
		s->bytes = bytes;
		s->capacity = size;
	}
	s->end -= s->start;
	s->start = 0;
	return 0;
}

int stream_next(struct stream *s, struct header *header, uint8_t **ret)
{
	int error;

	if (s->end - s->start < HEADER_BYTES)
		return make_room(s, HEADER_BYTES);
	error = wire_parse(s->wire, s->bytes + s->start, header);
	if (error)
		return error;
	if (header->size > s->largest)
		return -EPROTO;
	if (s->end - s->start < header->size)
		return make_room(s, header->size);
	*ret = s->bytes + s->start;
	s->start += header->size;
	return 1;
}
