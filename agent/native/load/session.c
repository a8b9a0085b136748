/* session.c - the client's way into a session, and what both sides use in it.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "big_endian.h"
#include "clock.h"
#include "endpoint.h"
#include "interrupts.h"
#include "session.h"

enum {
	OPEN_GAP_MS = 200,
	OPENS_MAX = 25,
};

static const uint64_t answer_ns = 10 * NS_PER_SECOND;
/* Whoever has just ended a session answers at once. */
static const uint64_t ask_ns = 2 * NS_PER_SECOND;
static const uint64_t nap_ns = 50 * NS_PER_MS;

static bool is_to_end(const struct session *s, const atomic_bool *stop)
{
	return session_is_stopped(s) ||
	       (stop && atomic_load_explicit(stop, memory_order_relaxed));
}

static void wait_until(const struct session *s, const atomic_bool *stop,
		       uint64_t due_ns)
{
	for (uint64_t now = clock_ns(); now < due_ns && !is_to_end(s, stop);
	     now = clock_ns()) {
		uint64_t left = due_ns - now < nap_ns ? due_ns - now : nap_ns;

		nanosleep(&(struct timespec){ .tv_nsec = (long)left }, NULL);
	}
}

bool session_spend(struct session *s, uint64_t bytes, const atomic_bool *stop)
{
	if (!s->rate->bytes_per_second)
		return true;
	while (bytes && !is_to_end(s, stop)) {
		uint64_t part = bytes < SESSION_SHARE_BYTES ?
					bytes :
					SESSION_SHARE_BYTES;
		uint64_t due_ns = rate_reserve(s->rate, part, clock_ns());

		wait_until(s, stop, due_ns);
		if (clock_ns() < due_ns)
			rate_give_back(s->rate, part);
		bytes -= part;
	}
	return !is_to_end(s, stop);
}

static int send_exactly(int fd, const void *bytes, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = send(fd, (const uint8_t *)bytes + done, size - done,
				 MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			done += (size_t)n;
	}
	return 0;
}

/* Milliseconds for poll(), rounded up. */
static int look_ms(uint64_t left_ns)
{
	return left_ns < INTERRUPTS_LOOK_MS * NS_PER_MS ?
		       (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS) :
		       INTERRUPTS_LOOK_MS;
}

/* Wait until one of these is ready. 0, -ETIMEDOUT, -ECANCELED, -errno. */
static int wait_ready(struct pollfd *fds, nfds_t count, uint64_t until_ns)
{
	while (!interrupts) {
		uint64_t now = clock_ns();
		int found;

		if (now >= until_ns)
			return -ETIMEDOUT;
		found = poll(fds, count, look_ms(until_ns - now));
		if (found > 0)
			return 0;
		if (found < 0 && errno != EINTR)
			return -errno;
	}
	return -ECANCELED;
}

/* 0, -ECONNRESET at the end, -ETIMEDOUT, -ECANCELED, -errno. Takes not a byte
 * more. */
static int receive_exactly(int fd, void *bytes, size_t size, uint64_t until_ns)
{
	for (size_t done = 0; done < size;) {
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		int error = wait_ready(&ready, 1, until_ns);
		ssize_t n;

		if (error)
			return error;
		n = recv(fd, (uint8_t *)bytes + done, size - done,
			 MSG_DONTWAIT);
		if (!n)
			return -ECONNRESET;
		if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
			return -errno;
		if (n > 0)
			done += (size_t)n;
	}
	return 0;
}

int frame_send(int control, enum frame_type type, const void *body,
	       uint32_t size)
{
	uint8_t header[FRAME_HEADER_BYTES] = { (uint8_t)type };
	int error;

	put_u32(header + 1, size);
	error = send_exactly(control, header, sizeof(header));
	return error ? error : send_exactly(control, body, size);
}

/* Whom the client talks to, for what it says of it. */
struct caller {
	const struct options *options;
	const char *address;
	uint64_t port;
	const struct terms *terms;
	struct handshake *handshake;
	struct failure *failure;
};

static int fail_refused(const struct caller *c, int error, const char *why,
			const char *advice)
{
	return fail(c->failure, error,
		    "the responder %s port %" PRIu64 " refused: %s; %s",
		    c->address, c->port, why, advice);
}

static int fail_bound(const struct caller *c, const char *what, uint64_t asked,
		      uint64_t bound, const char *unit, const char *advice)
{
	char why[160];

	snprintf(why, sizeof(why),
		 "it takes %s of at most %" PRIu64 " %s, not %" PRIu64, what,
		 bound, unit, asked);
	return fail_refused(c, EMSGSIZE, why, advice);
}

/* What needs no number. */
static const struct session_reason reasons[STATUS_COUNT] = {
	[STATUS_WORKLOAD] = { "it does not serve this workload",
			      "start it with --workloads that name it" },
	[STATUS_BUSY] = { "it has as many sessions as it may",
			  "try again later, or start it with a larger "
			  "--max-sessions" },
	[STATUS_MEMORY] = { "its sessions have as much memory as they may",
			    "give smaller messages, try again later, or start "
			    "it with a larger --max-memory" },
	[STATUS_HOST_SESSIONS] = { "it has as many sessions of this host as it "
				   "may",
				   "ask for fewer at once, or start it with a "
				   "larger --max-host-sessions or with "
				   "--secret-file" },
	[STATUS_HOST_MEMORY] = { "its sessions of this host have as much "
				 "memory as they may",
				 "give smaller messages, or start it with a "
				 "larger --max-host-memory or with "
				 "--secret-file" },
	[STATUS_CPU] = { "its sessions took more CPU time than its --max-cpu",
			 "try again later, or start it with a larger one or "
			 "with --secret-file" },
	[STATUS_HOST_CPU] = { "its sessions of this host took more CPU time "
			      "than its --max-host-cpu",
			      "ask for less, or start it with a larger one or "
			      "with --secret-file" },
	[STATUS_SECRET] = { "the secret is another one",
			    "give both ends the same --secret-file" },
	[STATUS_IDLE] = { "nothing moved in it for its --idle",
			  "start it with a longer one" },
	[STATUS_OVERLONG] = { "it was longer than its --max-duration",
			      "give a shorter --duration, or start it with a "
			      "longer --max-duration" },
};

static int fail_reason(const struct caller *c, int error,
		       const struct session_reason *r)
{
	return fail_refused(c, error, r->why, r->advice);
}

static int fail_status(const struct caller *c, enum handshake_status status,
		       const struct challenge *said)
{
	const struct terms *t = c->terms;
	uint64_t largest = t->largest_bytes > t->reply_bytes ?
				   t->largest_bytes :
				   t->reply_bytes;
	char why[80];

	switch (status) {
	case STATUS_WORKLOAD:
		if (t->workload == WORKLOAD_RECORDING)
			return fail_refused(c, ENOTSUP, "it lends no recording",
					    "start it with --record DIR "
					    "--lend");
		return fail_reason(c, EBUSY, &reasons[status]);
	case STATUS_VERSION:
		snprintf(why, sizeof(why),
			 "it speaks version %u of the protocol, not %u",
			 said->version, HANDSHAKE_VERSION);
		return fail_refused(c, EPROTO, why,
				    "install the same latprof at both ends");
	case STATUS_MESSAGE:
		return fail_bound(c, "messages", largest, said->bound, "bytes",
				  "give smaller --sizes and --reply, or start "
				  "it with a larger --max-message");
	case STATUS_DURATION:
		return fail_bound(c, "sessions", t->duration_ns / NS_PER_SECOND,
				  said->bound / NS_PER_SECOND, "seconds",
				  "give a shorter --duration, or start it with "
				  "a longer --max-duration");
	default:
		if (status < STATUS_COUNT && reasons[status].why)
			return fail_reason(c, EBUSY, &reasons[status]);
		return fail_refused(c, EPROTO, "it knows no such terms",
				    "install the same latprof at both ends");
	}
}

static int fail_link(const struct caller *c, int error)
{
	const char *why = strerror(-error);

	if (error == -ECONNRESET)
		why = "it closed the connection";
	if (error == -ETIMEDOUT)
		why = "no answer";
	return fail(c->failure, -error,
		    "cannot agree with %s port %" PRIu64 ": %s; is it the port "
		    "of a `latprof echo`, of the same --wire?",
		    c->address, c->port, why);
}

static int fail_stranger(const struct caller *c)
{
	return fail(c->failure, EPROTO,
		    "what listens on %s port %" PRIu64 " is no responder of "
		    "latprof; give the port that `latprof echo` printed",
		    c->address, c->port);
}

static int read_challenge(const struct caller *c, int fd, uint64_t until_ns)
{
	struct handshake *h = c->handshake;
	struct challenge said;
	int error = receive_exactly(fd, h->challenge, HANDSHAKE_PREFIX_BYTES,
				    until_ns);

	if (error)
		return fail_link(c, error);
	if (handshake_read_challenge(h, &said))
		return fail_stranger(c);
	/* Of another version only the beginning is known. */
	if (said.version != HANDSHAKE_VERSION)
		return fail_status(c, STATUS_VERSION, &said);
	error = receive_exactly(fd, h->challenge + HANDSHAKE_PREFIX_BYTES,
				CHALLENGE_BYTES - HANDSHAKE_PREFIX_BYTES,
				until_ns);
	if (error)
		return fail_link(c, error);
	handshake_read_challenge(h, &said);
	if (said.status != STATUS_OK)
		return fail_status(c, said.status, &said);
	if (said.secret_needed && !h->secret->size)
		return fail_refused(c, EACCES, "it wants a secret",
				    "give --secret-file the one that it has");
	if (!said.secret_needed && h->secret->size)
		return fail(c->failure, EACCES,
			    "the responder %s port %" PRIu64 " has no secret, "
			    "so it may be anyone; start it with --secret-file, "
			    "or leave that out here",
			    c->address, c->port);
	return 0;
}

/* What may have changed since the CHALLENGE. */
static bool is_lack_of_room(enum handshake_status status)
{
	return status == STATUS_BUSY ||
	       (status >= STATUS_MEMORY && status <= STATUS_HOST_CPU);
}

static int read_accept(const struct caller *c, int fd, uint64_t until_ns,
		       struct limits *limits)
{
	struct handshake *h = c->handshake;
	enum handshake_status status;
	int error = receive_exactly(fd, h->accept, ACCEPT_BYTES, until_ns);

	if (error)
		return fail_link(c, error);
	error = handshake_read_accept(h, &status, limits);
	if (error == -EACCES)
		return fail(c->failure, EACCES,
			    "the responder %s port %" PRIu64 " does not know "
			    "the secret; give both ends the same "
			    "--secret-file",
			    c->address, c->port);
	if (error)
		return fail_stranger(c);
	/* All else was refused before. */
	if (status != STATUS_OK && status != STATUS_SECRET &&
	    !is_lack_of_room(status))
		return fail_stranger(c);
	return status == STATUS_OK ? 0 : fail_status(c, status, NULL);
}

static int agree(const struct caller *c, int fd, struct limits *limits)
{
	uint64_t until_ns = clock_ns() + answer_ns;
	struct handshake *h = c->handshake;
	int error;

	if (handshake_hello(h, c->terms))
		return fail(c->failure, EIO,
			    "cannot make a handshake: the kernel gives no "
			    "random bytes; let it call getrandom()");
	error = send_exactly(fd, h->hello, HELLO_BYTES);
	if (error)
		return fail_link(c, error);
	error = read_challenge(c, fd, until_ns);
	if (error)
		return error;
	handshake_prove(h);
	error = send_exactly(fd, h->proof, PROOF_BYTES);
	return error ? fail_link(c, error) :
		       read_accept(c, fd, until_ns, limits);
}

/* 1: OPENED came. 0: nothing did, for a while. -errno with a line. */
static int wait_for_opened(const struct caller *c,
			   const struct session_link *link)
{
	uint64_t until_ns = clock_ns() + OPEN_GAP_MS * NS_PER_MS;
	const uint8_t *token = handshake_token(c->handshake), *said;
	struct pollfd ready[] = { { .fd = link->data, .events = POLLIN },
				  { .fd = link->control, .events = POLLIN } };
	uint8_t datagram[OPEN_BYTES + 1];
	int error;

	while (!(error = wait_ready(ready, 2, until_ns))) {
		ssize_t n = recv(link->data, datagram, sizeof(datagram),
				 MSG_DONTWAIT);

		if (n < 0 && errno == ECONNREFUSED)
			return fail_link(c, -ECONNREFUSED);
		if (ready[1].revents)
			return fail_link(c, -ECONNRESET);
		said = n < 0 ? NULL : open_token(datagram, (size_t)n, true);
		if (said && token_equals(said, token))
			return 1;
	}
	return error == -ETIMEDOUT ? 0 : fail_link(c, error);
}

static int open_datagrams(const struct caller *c, struct session_link *link)
{
	uint8_t datagram[OPEN_BYTES];
	int opened = 0, error;

	open_write(datagram, handshake_token(c->handshake), false);
	while (!opened && link->sent_before < OPENS_MAX) {
		if (send(link->data, datagram, sizeof(datagram), MSG_NOSIGNAL) <
		    0)
			return fail_link(c, -errno);
		link->sent_before++;
		opened = wait_for_opened(c, link);
	}
	if (!opened)
		return fail(c->failure, ETIMEDOUT,
			    "no datagram comes through to %s port %" PRIu64
			    " and back, though its TCP port answers; let UDP "
			    "pass between the two hosts",
			    c->address, c->port);
	if (opened < 0)
		return opened;
	link->received_before = 1;
	error = frame_send(link->control, FRAME_BEGIN, NULL, 0);
	return error ? fail_link(c, error) : 0;
}

static int open_data(const struct caller *c, struct session_link *link)
{
	int error;

	if (c->terms->transport == PROTOCOL_TCP) {
		link->data = link->control;
		link->sent_before = HELLO_BYTES + PROOF_BYTES;
		link->received_before = CHALLENGE_BYTES + ACCEPT_BYTES;
		return 0;
	}
	error = endpoint_connect(c->options, PROTOCOL_UDP, c->address, c->port,
				 &link->data, c->failure);
	return error ? error : open_datagrams(c, link);
}

static int open_agreed(const struct caller *c, struct session_link *link)
{
	int error = endpoint_connect(c->options, PROTOCOL_TCP, c->address,
				     c->port, &link->control, c->failure);

	if (!error)
		error = agree(c, link->control, &link->limits);
	if (error)
		return error;
	memcpy(link->token, handshake_token(c->handshake), TOKEN_BYTES);
	return open_data(c, link);
}

int session_open(const struct options *options, const char *address,
		 uint64_t port, const struct terms *terms,
		 struct session_link *ret, struct failure *failure)
{
	struct handshake handshake = { .secret = &options->secret };
	struct caller c = {
		.options = options,
		.address = address,
		.port = port,
		.terms = terms,
		.handshake = &handshake,
		.failure = failure,
	};
	int error;

	*ret = (struct session_link){ .control = -1, .data = -1 };
	if (options->wire == WIRE_CLEAR)
		return endpoint_connect(options, terms->transport, address,
					port, &ret->data, failure);
	error = open_agreed(&c, ret);
	if (error)
		session_close(ret);
	return error;
}

uint64_t session_lower_rate(uint64_t a, uint64_t b)
{
	return a && (!b || a < b) ? a : b;
}

/* Its answer to a HELLO that asks for no session. */
static enum handshake_status ask(int fd, const struct terms *question)
{
	static const struct secret none = { 0 };
	struct handshake h = { .secret = &none };
	struct challenge said;
	uint64_t until_ns = clock_ns() + ask_ns;

	if (handshake_hello(&h, question) ||
	    send_exactly(fd, h.hello, HELLO_BYTES) ||
	    receive_exactly(fd, h.challenge, CHALLENGE_BYTES, until_ns) ||
	    handshake_read_challenge(&h, &said) ||
	    said.version != HANDSHAKE_VERSION)
		return STATUS_WORKLOAD;
	return said.status;
}

const struct session_reason *session_why_ended(const struct options *options,
					       const char *address,
					       uint64_t port,
					       const struct session_link *link)
{
	static const uint8_t no_token[TOKEN_BYTES];
	struct terms question = { .workload = WORKLOAD_WHY };
	enum handshake_status why;
	struct failure ignored;
	int fd = -1;

	if (token_equals(link->token, no_token) ||
	    endpoint_connect(options, PROTOCOL_TCP, address, port, &fd,
			     &ignored))
		return NULL;
	question.own[0] = get_u64(link->token);
	question.own[1] = get_u64(link->token + sizeof(uint64_t));
	why = ask(fd, &question);
	close(fd);
	return why != STATUS_WORKLOAD && why < STATUS_COUNT &&
			       reasons[why].why ?
		       &reasons[why] :
		       NULL;
}

void session_close(struct session_link *link)
{
	if (link->data >= 0)
		close(link->data);
	if (link->control >= 0 && link->control != link->data)
		close(link->control);
	link->control = link->data = -1;
}
