/* responder.c - the service `pingpong`: answers requests of one session. */
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "clock.h"
#include "endpoint.h"
#include "payload.h"
#include "responder.h"
#include "stream.h"

enum { BYTES_AT_FIRST = 1 << 17 };

struct responder {
	struct session *session;
	struct payload payload; /* unused in a full echo */
	size_t payload_room;
	struct stream stream; /* UDP: its memory holds one datagram */
	in_port_t own_port; /* of UDP without sessions; else 0 */
};

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

static int responder_open(struct responder *r, struct session *session)
{
	*r = (struct responder){ .session = session };
	if (session->terms.reply_bytes &&
	    payload_fit(r, session->terms.reply_bytes))
		return -ENOMEM;
	return stream_open(&r->stream, session->wire, BYTES_AT_FIRST,
			   session->terms.largest_bytes);
}

static void responder_close(struct responder *r)
{
	payload_close(&r->payload);
	stream_close(&r->stream);
}

/* The reply of so many bytes, ready to leave. */
static const uint8_t *make_reply(struct responder *r,
				 const struct header *header, uint8_t *request,
				 size_t size)
{
	uint32_t sequence = (uint32_t)header->key;
	uint8_t *reply = request;

	if (r->session->wire == WIRE_CLEAR)
		return request;
	if (r->session->terms.reply_bytes)
		reply = payload_begin(&r->payload, sequence);
	wire_write(reply, KIND_REPLY, (uint32_t)size, sequence, clock_ns());
	return reply;
}

/* Before the reply leaves: a client that has it finds it counted. */
static void count_request(struct responder *r, const struct header *header)
{
	session_count(&r->session->counters.messages, 1);
	session_count(&r->session->counters.bytes, header->size);
}

/* After the reply has left, so that it does not wait for the check. */
static int check_request(struct responder *r, const struct header *header,
			 const uint8_t *request)
{
	if (!r->session->terms.reply_bytes)
		return 0;
	if (payload_fit(r, header->size))
		return -ENOMEM;
	if (!payload_matches(&r->payload, (uint32_t)header->key, request,
			     header->size))
		session_count(&r->session->counters.corrupt, 1);
	return 0;
}

static void compute(uint64_t time_ns)
{
	if (time_ns)
		for (uint64_t until = clock_ns() + time_ns; clock_ns() < until;)
			;
}

/* What a client asked for between request and reply: work, and a rate. */
static void work(struct responder *r, size_t answer_bytes)
{
	compute(r->session->terms.think_ns);
	session_spend(r->session, answer_bytes, NULL);
}

/* Of a busy reader: how long it reads nothing after an answer. */
static uint64_t busy_ns(const struct responder *r)
{
	return r->session->terms.own[PINGPONG_TERM_BUSY];
}

/* A reply must never be answered, or two responders would talk for ever. */
static bool is_request(const struct responder *r, const struct header *header)
{
	return r->session->wire == WIRE_CLEAR || header->kind == KIND_REQUEST;
}

/* Clear replies look like requests; those of another responder are known by
 * the port that both have. */
static bool is_responder(const struct responder *r,
			 const struct sockaddr_in6 *peer)
{
	return r->own_port && peer->sin6_port == r->own_port;
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

static size_t answer_bytes(const struct responder *r,
			   const struct header *header)
{
	return r->session->terms.reply_bytes ? r->session->terms.reply_bytes :
					       header->size;
}

static int answer_stream(struct responder *r, const struct header *header,
			 uint8_t *request)
{
	size_t size = answer_bytes(r, header);
	const uint8_t *reply;
	int error;

	if (!is_request(r, header))
		return -EPROTO;
	count_request(r, header);
	work(r, size);
	reply = make_reply(r, header, request, size);
	error = send_all(r->session->data, reply, size);
	if (!error)
		error = check_request(r, header, request);
	if (!error)
		compute(busy_ns(r));
	return error;
}

/* A busy reader takes one message out of the socket at a time: what it took
 * with that would wait in its own memory, where nobody sees it. */
static size_t read_limit(const struct responder *r)
{
	return busy_ns(r) ? stream_lacks(&r->stream) : SIZE_MAX;
}

static int serve_stream(struct responder *r)
{
	struct header header;
	uint8_t *request;

	for (;;) {
		ssize_t n = stream_receive(&r->stream, r->session->data,
					   read_limit(r), 0);
		int found;

		if (n == -EINTR)
			continue;
		if (n <= 0)
			return (int)n;
		while ((found = stream_next(&r->stream, &header, &request)) >
		       0) {
			int error = answer_stream(r, &header, request);

			if (error)
				return error;
		}
		if (found)
			return found;
	}
}

static int answer_datagram(struct responder *r, size_t length,
			   const struct sockaddr_in6 *peer,
			   socklen_t peer_length)
{
	struct session *s = r->session;
	uint8_t *request = r->stream.bytes;
	const uint8_t *reply;
	struct header header;
	size_t size;
	int error;

	if (length < HEADER_BYTES || wire_parse(s->wire, request, &header) ||
	    header.size != length || length > s->terms.largest_bytes ||
	    !is_request(r, &header) || is_responder(r, peer)) {
		session_count(&s->counters.rejected, 1);
		return 0;
	}
	size = answer_bytes(r, &header);
	count_request(r, &header);
	work(r, size);
	reply = make_reply(r, &header, request, size);
	if (sendto(s->data, reply, size, MSG_NOSIGNAL,
		   s->connected ? NULL : (const struct sockaddr *)peer,
		   s->connected ? 0 : peer_length) < 0)
		session_count(&s->counters.unsent, 1);
	error = check_request(r, &header, request);
	if (!error)
		compute(busy_ns(r));
	return error;
}

/* The client may close its socket before the control connection. */
static bool is_passing(int error)
{
	return error == EINTR || error == ECONNREFUSED;
}

/* The port is at the same place for both families. */
static in_port_t port_of(int fd)
{
	struct sockaddr_in6 own = { 0 };
	socklen_t length = sizeof(own);

	getsockname(fd, (struct sockaddr *)&own, &length);
	return own.sin6_port;
}

static int serve_datagrams(struct responder *r)
{
	const struct session *s = r->session;
	struct sockaddr_in6 peer = { 0 }; /* or a shorter sockaddr_in */

	if (!s->connected)
		r->own_port = port_of(s->data);
	while (!session_is_stopped(s)) {
		socklen_t peer_length = sizeof(peer);
		ssize_t n =
			recvfrom(s->data, r->stream.bytes, r->stream.capacity,
				 0, (struct sockaddr *)&peer, &peer_length);
		int error;

		if (n < 0 && is_passing(errno))
			continue;
		if (n < 0)
			return -errno;
		if (!n && session_is_stopped(s))
			break;
		error = answer_datagram(r, (size_t)n, &peer, peer_length);
		if (error)
			return error;
	}
	return 0;
}

bool responder_allows(const struct terms *terms)
{
	return terms->own[PINGPONG_TERM_BUSY] <= THINK_NS_MAX;
}

uint64_t responder_memory_bytes(const struct terms *t)
{
	return t->transport == PROTOCOL_UDP ?
		       2 * ENDPOINT_DATAGRAM_BUFFER_BYTES :
		       0;
}

int responder_serve(struct session *session)
{
	struct responder r;
	int error = responder_open(&r, session);

	if (!error)
		error = session->terms.transport == PROTOCOL_UDP ?
				serve_datagrams(&r) :
				serve_stream(&r);
	if (error == -EPROTO)
		session_count(&session->counters.rejected, 1);
	responder_close(&r);
	return error;
}
