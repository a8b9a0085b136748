/* bulk_frames.c - frames on a control connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "big_endian.h"
#include "bulk_frames.h"
#include "pages.h"

enum {
	ROOM_BYTES = BULK_FRAME_BODY_MAX + FRAME_HEADER_BYTES,
	/* What one call copies still fits into a CPU's cache. */
	RECEIVE_BYTES_MAX = 1 << 18,
};

int bulk_frames_open(struct bulk_frames *f, int fd)
{
	*f = (struct bulk_frames){ .fd = fd, .bytes = pages_alloc(ROOM_BYTES) };
	return f->bytes ? 0 : -ENOMEM;
}

void bulk_frames_close(struct bulk_frames *f)
{
	free(f->bytes);
	f->bytes = NULL;
}

/* One receive call. 1: something came. 0: not in time. */
static int receive(struct bulk_frames *f)
{
	size_t room;
	ssize_t n;

	if (f->start) {
		memmove(f->bytes, f->bytes + f->start, f->end - f->start);
		f->end -= f->start;
		f->start = 0;
	}
	room = ROOM_BYTES - f->end;
	n = recv(f->fd, f->bytes + f->end,
		 room < RECEIVE_BYTES_MAX ? room : RECEIVE_BYTES_MAX, 0);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (!n)
		return -ECONNRESET;
	f->calls++;
	f->end += (size_t)n;
	return 1;
}

static void pass_data(struct bulk_frames *f)
{
	size_t have = f->end - f->start;
	size_t passed = have < f->data_left ? have : f->data_left;

	f->start += passed;
	f->data_bytes += passed;
	f->data_left -= passed;
	if (passed && !f->data_left)
		f->data_frames++;
}

/* A frame's header is there. 1: all of it is, in *ret. 0: not yet, or it is
 * DATA, which has now begun. */
static int take(struct bulk_frames *f, struct bulk_frame *ret)
{
	const uint8_t *at = f->bytes + f->start;
	size_t size = get_u32(at + 1);

	if (at[0] < BULK_FRAME_PLAN || at[0] > BULK_FRAME_RESULT ||
	    size > BULK_FRAME_BODY_MAX)
		return -EPROTO;
	if (at[0] == BULK_FRAME_DATA) {
		f->data_left = FRAME_HEADER_BYTES + size;
		return 0;
	}
	if (f->end - f->start < FRAME_HEADER_BYTES + size)
		return 0;
	*ret = (struct bulk_frame){ at[0], at + FRAME_HEADER_BYTES, size };
	f->start += FRAME_HEADER_BYTES + size;
	return 1;
}

int bulk_frames_next(struct bulk_frames *f, struct bulk_frame *ret)
{
	int came = 0;

	for (;;) {
		pass_data(f);
		if (!f->data_left && f->end - f->start >= FRAME_HEADER_BYTES) {
			int found = take(f, ret);

			if (found)
				return found;
			if (f->data_left)
				continue;
		}
		/* What came is counted before more is waited for. */
		if (came)
			return 0;
		came = receive(f);
		if (came <= 0)
			return came;
	}
}

void bulk_frames_write_header(uint8_t *to, enum bulk_frame_type type,
			      size_t size)
{
	to[0] = (uint8_t)type;
	put_u32(to + 1, (uint32_t)size);
}

int bulk_frames_write_bytes(int fd, const uint8_t *bytes, size_t size,
			    const atomic_bool *ended, uint64_t *waits)
{
	while (size) {
		ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n < 0 && atomic_load(ended))
			return -ECANCELED;
		if (n < 0) {
			++*waits;
			continue;
		}
		bytes += n;
		size -= (size_t)n;
	}
	return 0;
}

int bulk_frames_write(int fd, enum bulk_frame_type type, const void *body,
		      size_t size, const atomic_bool *ended)
{
	uint8_t header[FRAME_HEADER_BYTES];
	uint64_t waits = 0;

	bulk_frames_write_header(header, type, size);
	return bulk_frames_write_bytes(fd, header, sizeof(header), ended, &waits) ?:
		       bulk_frames_write_bytes(fd, body, size, ended, &waits);
}
