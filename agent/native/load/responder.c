/* responder.c - answers requests on one socket. */
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "clock.h"
#include "payload.h"
#include "responder.h"
#include "stream.h"

enum { BYTES_AT_FIRST = 1 << 17 };

struct responder {
	const struct options *options;
	struct responder_counters *counters;
	struct payload payload; /* unused in a full echo */
	size_t payload_room;
	struct stream stream; /* UDP: its memory holds one datagram */
};

static void add(_Atomic uint64_t *counter, uint64_t amount)
{
	atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static int payload_fit(struct responder *r, size_t message_bytes)
{
	if (message_bytes <= r->payload_room)
		return 0;
	payload_close(&r->payload);
	r->payload_room = 0;
	if (payload_open(&r->payload, message_bytes))
		return -ENOMEM;
	r->payload_room = message_bytes;
	return 0;
}

static int responder_open(struct responder *r, const struct options *options,
			  struct responder_counters *counters)
{
	*r = (struct responder){ .options = options, .counters = counters };
	if (options->reply_bytes && payload_fit(r, options->reply_bytes))
		return -ENOMEM;
	return stream_open(&r->stream, options->wire, BYTES_AT_FIRST);
}

static void responder_close(struct responder *r)
{
	payload_close(&r->payload);
	stream_close(&r->stream);
}

/* The reply, ready to leave: its bytes and in *size how many. */
static const uint8_t *make_reply(struct responder *r,
				 const struct header *header, uint8_t *request,
				 size_t *size)
{
	uint32_t sequence = (uint32_t)header->key;
	uint8_t *reply = request;

	*size = r->options->reply_bytes ? r->options->reply_bytes :
					  header->size;
	if (r->options->wire == WIRE_CLEAR)
		return request;
	if (r->options->reply_bytes)
		reply = payload_begin(&r->payload, sequence);
	wire_write(reply, KIND_REPLY, (uint32_t)*size, sequence, clock_ns());
	return reply;
}

/* Before the reply leaves: a client that has it finds it counted. */
static void count_request(struct responder *r, const struct header *header)
{
	add(&r->counters->messages, 1);
	add(&r->counters->bytes, header->size);
}

/* After the reply has left, so that it does not wait for the check. */
static int check_request(struct responder *r, const struct header *header,
			 const uint8_t *request)
{
	if (!r->options->reply_bytes)
		return 0;
	if (payload_fit(r, header->size))
		return -ENOMEM;
	if (!payload_matches(&r->payload, (uint32_t)header->key, request,
			     header->size))
		add(&r->counters->corrupt, 1);
	return 0;
}

/* A reply must never be answered, or two responders would talk for ever. */
static bool is_request(const struct responder *r, const struct header *header)
{
	return r->options->wire == WIRE_CLEAR || header->kind == KIND_REQUEST;
}

static int send_all(int fd, const uint8_t *bytes, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = send(fd, bytes + done, size - done, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			done += (size_t)n;
	}
	return 0;
}

static int answer_stream(struct responder *r, int fd,
			 const struct header *header, uint8_t *request)
{
	const uint8_t *reply;
	size_t size;
	int error;

	if (!is_request(r, header))
		return -EPROTO;
	count_request(r, header);
	reply = make_reply(r, header, request, &size);
	error = send_all(fd, reply, size);
	return error ? error : check_request(r, header, request);
}

static int serve_stream(struct responder *r, int fd)
{
	struct header header;
	uint8_t *request;

	for (;;) {
		ssize_t n = stream_receive(&r->stream, fd, SIZE_MAX, 0);
		int found;

		if (n == -EINTR)
			continue;
		if (n <= 0)
			return (int)n;
		while ((found = stream_next(&r->stream, &header, &request)) >
		       0) {
			int error = answer_stream(r, fd, &header, request);

			if (error)
				return error;
		}
		if (found)
			return found;
	}
}

int responder_serve_stream(const struct options *options, int fd,
			   struct responder_counters *counters)
{
	struct responder r;
	int error = responder_open(&r, options, counters);

	if (!error)
		error = serve_stream(&r, fd);
	if (error == -EPROTO)
		add(&counters->rejected, 1);
	responder_close(&r);
	return error;
}

static int answer_datagram(struct responder *r, int fd, size_t length,
			   const struct sockaddr_in6 *peer,
			   socklen_t peer_length)
{
	uint8_t *request = r->stream.bytes;
	const uint8_t *reply;
	struct header header;
	size_t size;

	if (length < HEADER_BYTES ||
	    wire_parse(r->options->wire, request, &header) ||
	    header.size != length || !is_request(r, &header)) {
		add(&r->counters->rejected, 1);
		return 0;
	}
	count_request(r, &header);
	reply = make_reply(r, &header, request, &size);
	if (sendto(fd, reply, size, MSG_NOSIGNAL, (const struct sockaddr *)peer,
		   peer_length) < 0)
		add(&r->counters->unsent, 1);
	return check_request(r, &header, request);
}

static int serve_datagrams(struct responder *r, int fd)
{
	for (;;) {
		struct sockaddr_in6 peer; /* or a shorter sockaddr_in */
		socklen_t peer_length = sizeof(peer);
		ssize_t n = recvfrom(fd, r->stream.bytes, r->stream.capacity, 0,
				     (struct sockaddr *)&peer, &peer_length);
		int error;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		error = answer_datagram(r, fd, (size_t)n, &peer, peer_length);
		if (error)
			return error;
	}
}

int responder_serve_datagrams(const struct options *options, int fd,
			      struct responder_counters *counters)
{
	struct responder r;
	int error = responder_open(&r, options, counters);

	if (!error)
		error = serve_datagrams(&r, fd);
	responder_close(&r);
	return error;
}
