/*
 * bulk_frames.h - frames on a control connection: u8 type, u32 length of the
 * body (big endian), body.
 *
 * A TCP bulk channel's data go in frames too, on the same connection, so that
 * what is said behind them is behind them in the stream. The bytes of a DATA
 * frame are counted as they come, and never kept.
 */
#ifndef LATPROF_LOAD_BULK_FRAMES_H
#define LATPROF_LOAD_BULK_FRAMES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session.h"

enum { BULK_FRAME_BODY_MAX = 1 << 20 };

/* On the wire: never give a value another meaning. */
enum bulk_frame_type {
	BULK_FRAME_PLAN = 16, /* client: struct bulk_plan */
	BULK_FRAME_READY, /* server: its sockets are prepared */
	BULK_FRAME_GO, /* client: begin */
	BULK_FRAME_DATA, /* whoever sends over TCP */
	BULK_FRAME_SENT, /* whoever sends: nothing more comes; struct bulk_sent
			  */
	BULK_FRAME_RESULT, /* server: struct bulk_received */
};

struct bulk_frames {
	int fd; /* blocking; its SO_RCVTIMEO is how often `ended` is looked at
		 */
	uint8_t *bytes;
	size_t start, end; /* of what was received and not yet taken */
	size_t data_left; /* of the DATA frame that is coming */
	uint64_t data_frames, data_bytes; /* came whole; their stream's bytes */
	uint64_t calls; /* receive calls that returned something */
};

struct bulk_frame {
	enum bulk_frame_type type;
	const uint8_t *body; /* valid until the next bulk_frames_next() */
	size_t size;
};

/* -ENOMEM. */
int bulk_frames_open(struct bulk_frames *f, int fd);
void bulk_frames_close(struct bulk_frames *f);
/* The next frame that is no DATA: 1. Returns 0 when data came, or when nothing
 * did for SO_RCVTIMEO. -ECONNRESET at the end of the stream, -EPROTO for what
 * is no frame, -errno. */
int bulk_frames_next(struct bulk_frames *f, struct bulk_frame *ret);
/* Write one frame, however long that takes, until *ended. 0 or -errno. */
int bulk_frames_write(int fd, enum bulk_frame_type type, const void *body,
		      size_t size, const atomic_bool *ended);
void bulk_frames_write_header(uint8_t *to, enum bulk_frame_type type,
			      size_t size);
/* Write all of these bytes, however long that takes, until *ended; the socket
 * has a SO_SNDTIMEO. Adds waits for the send buffer to *waits. 0 or -errno. */
int bulk_frames_write_bytes(int fd, const uint8_t *bytes, size_t size,
			    const atomic_bool *ended, uint64_t *waits);

#endif
