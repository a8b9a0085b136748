/*
 * responder.c - what anyone may send to the port of `latprof-load echo`.
 *
 * The replies must be those of a second reading of the same bytes, written
 * plainly: it looks at the whole stream at once.
 */
#include <errno.h>
#include <string.h>

#include "responder.h"

bool session_spend(struct session *session, uint64_t bytes,
		   const atomic_bool *stop)
{
	(void)session;
	(void)bytes;
	(void)stop;
	return true;
}

enum { STREAM_MAX = 1 << 19, LARGEST_BYTES = 300000 };

/* What the peer sends and is sent. */
static struct {
	uint8_t sent[STREAM_MAX], got[STREAM_MAX];
	size_t sent_bytes, got_bytes, replies, reply_bytes;
	bool datagrams, fixed;
} peer;

ssize_t world_receive(void *ret, size_t size)
{
	size_t most = world_byte();
	size_t count;

	MUST(size);
	if (peer.datagrams && !world.left) {
		errno = EBADF;
		return -1;
	}
	if (most == 255) {
		errno = EINTR;
		return -1;
	}
	if (most == 254 && !peer.datagrams) {
		errno = ECONNRESET;
		return -1;
	}
	most = most < 100 ? most + 1 : (most - 99) * 1024;
	most = most < size ? most : size;
	if (most > STREAM_MAX - peer.sent_bytes)
		most = STREAM_MAX - peer.sent_bytes;
	count = world_bytes(ret, most);
	if (count) { /* the rest of a long message takes no input */
		memset((uint8_t *)ret + count, 'x', most - count);
		count = most;
	}
	memcpy(peer.sent + peer.sent_bytes, ret, count);
	peer.sent_bytes += count;
	return (ssize_t)count;
}

ssize_t world_send(const void *bytes, size_t size)
{
	size_t count = size;

	if (!peer.datagrams && world.now_ns % 3 == 1)
		count = size / 2 + 1; /* the kernel took half of it */
	peer.reply_bytes += count;
	if (!peer.fixed && !peer.datagrams &&
	    peer.got_bytes + count <= STREAM_MAX) {
		memcpy(peer.got + peer.got_bytes, bytes, count);
		peer.got_bytes += count;
	}
	return (ssize_t)count;
}

static uint32_t number_at(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 |
	       (uint32_t)at[2] << 8 | at[3];
}

/* The size of the request there; 0: there is none, or not all of it. */
static size_t request_at(enum wire wire, const uint8_t *at, size_t left)
{
	size_t size;

	if (left < 18)
		return 0;
	if (wire == WIRE_CLEAR) {
		size = (size_t)at[0] << 8 | at[1];
	} else {
		size = number_at(at + 2);
		if (at[0] != 1 || at[1] != 1 || size > LARGEST_BYTES)
			return 0;
	}
	return size >= 18 && size <= left ? size : 0;
}

/* An echo gives back what it was sent, but for kind and creation time. */
static void check_stream(const struct session *s)
{
	const struct session_counters *counters = &s->counters;
	size_t at = 0, count = 0, size;

	for (;
	     (size = request_at(s->wire, peer.sent + at, peer.sent_bytes - at));
	     at += size, count++) {
		const uint8_t *sent = peer.sent + at, *got = peer.got + at;

		if (peer.fixed)
			continue;
		MUST(peer.got_bytes >= at + size);
		if (s->wire == WIRE_CLEAR) {
			MUST(!memcmp(sent, got, size));
			continue;
		}
		MUST(got[0] == 2);
		MUST(!memcmp(sent + 1, got + 1, 9));
		MUST(!memcmp(sent + 18, got + 18, size - 18));
	}
	MUST(counters->messages == count);
	MUST(counters->bytes == at);
	MUST(peer.reply_bytes ==
	     (peer.fixed ? count * s->terms.reply_bytes : at));
	MUST(counters->rejected <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct session session = {
		.connected = true,
		.terms.workload = WORKLOAD_PINGPONG,
		.terms.largest_bytes = LARGEST_BYTES,
	};
	uint8_t mode;

	world_begin(input, size);
	mode = world_byte();
	peer.sent_bytes = peer.got_bytes = peer.reply_bytes = 0;
	peer.datagrams = mode & 1;
	session.terms.transport = mode & 1 ? PROTOCOL_UDP : PROTOCOL_TCP;
	session.wire = mode & 2 ? WIRE_CLEAR : WIRE_LATPROF;
	peer.fixed = mode & 4 && session.wire == WIRE_LATPROF;
	if (peer.fixed)
		session.terms.reply_bytes = HEADER_BYTES + (mode >> 3) * 100u;
	session.terms.own[PINGPONG_TERM_BUSY] = mode >> 7;
	if (peer.datagrams) {
		MUST(responder_serve(&session) == -EBADF);
	} else {
		responder_serve(&session);
		check_stream(&session);
	}
	return 0;
}
