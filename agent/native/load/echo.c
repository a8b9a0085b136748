/*
 * echo.c - the responder as a program: its sockets, and all that comes before
 * a session. One thread, which also watches the sessions (guests.h) and waits
 * for the end.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "endpoint.h"
#include "guests.h"

enum {
	PAUSE_MS = 10,
	DATAGRAMS_AT_ONCE = 64,
	PORTS_TRIED = 16,
	/* signals, stdin, ended */
	OWN_EVENTS = 3,
};

static void accept_connection(struct echo *e, const struct listener *l)
{
	struct sockaddr_in6 peer = { 0 };
	socklen_t length = sizeof(peer);
	int fd = accept4(l->stream, (struct sockaddr *)&peer, &length,
			 SOCK_CLOEXEC);
	int nodelay = !e->options->nagle;
	struct guest *g;

	if (fd < 0) {
		/* Out of descriptors, or the client has gone: not a reason to
		 * end, but one not to spin. */
		poll(NULL, 0, PAUSE_MS);
		return;
	}
	e->counters.connections++;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof(nodelay));
	if (e->arriving_count >= ARRIVALS_MAX)
		guests_evict_oldest(e);
	g = guest_add(e, fd, &peer);
	if (!g) {
		close(fd);
		return;
	}
	g->listener = l;
	if (e->options->wire == WIRE_CLEAR)
		guest_admit_clear(e, g);
}

/* 0: go on. -errno: it is none of ours, or has gone. */
static int hear_guest(struct echo *e, struct guest *g)
{
	bool leaving = g->arrival.stage == ARRIVAL_LEAVING;
	struct admission admission = guest_admission(g);
	struct answer answer;
	uint8_t *at;
	size_t room = arrival_room(&g->arrival, &at);
	ssize_t n = recv(g->session.control, at, room, MSG_DONTWAIT);
	int error;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return -ECONNRESET;
	error = arrival_take(&g->arrival, (size_t)n, &admission, &answer);
	if (error)
		return error;
	guest_enter_share(e, g);
	if (answer.size &&
	    send(g->session.control, answer.bytes, answer.size,
		 MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)answer.size)
		return -ECONNRESET;
	if (!leaving && g->arrival.stage == ARRIVAL_LEAVING) {
		if (g->arrival.terms.workload != WORKLOAD_WHY)
			e->counters.refused[g->arrival.refused]++;
		/* It reads the answer, then closes: were we to close now, what
		 * it still sends would destroy the answer. */
		shutdown(g->session.control, SHUT_WR);
	}
	return 0;
}

static void serve_arrival(struct echo *e, struct guest *g)
{
	int error = hear_guest(e, g);

	if (error) {
		guest_note_unfinished(e, g, error);
		guest_remove(e, g);
		return;
	}
	if (g->arrival.stage == ARRIVAL_DONE)
		guest_begin(e, g);
}

static bool is_same_host(const struct sockaddr_in6 *a,
			 const struct sockaddr_in6 *b)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in *b4 = (const struct sockaddr_in *)b;

	if (a->sin6_family != b->sin6_family)
		return false;
	if (a->sin6_family == AF_INET)
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return a->sin6_scope_id == b->sin6_scope_id &&
	       !memcmp(&a->sin6_addr, &b->sin6_addr, sizeof(a->sin6_addr));
}

static struct guest *find_token(const struct echo *e, const uint8_t *token)
{
	for (struct guest *g = e->guests; g; g = g->next)
		if ((g->arrival.stage == ARRIVAL_OPEN ||
		     g->arrival.stage == ARRIVAL_BEGIN) &&
		    token_equals(token, handshake_token(&g->arrival.handshake)))
			return g;
	return NULL;
}

static void send_opened(const struct guest *g)
{
	uint8_t datagram[OPEN_BYTES];

	open_write(datagram, handshake_token(&g->arrival.handshake), true);
	/* Where it gets lost the client asks again. */
	send(g->session.data, datagram, sizeof(datagram),
	     MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A datagram of no session. Is it one that opens one? */
static bool open_session(struct echo *e, const uint8_t *datagram, size_t size,
			 const struct sockaddr_in6 *from)
{
	const uint8_t *token = open_token(datagram, size, false);
	struct guest *g = token ? find_token(e, token) : NULL;
	int data;

	if (!g || !is_same_host(from, &g->peer))
		return false;
	if (g->arrival.stage == ARRIVAL_OPEN) {
		if (endpoint_adopt(g->listener->datagrams, g->session.control,
				   from, &data))
			return false;
		g->session.data = data;
		g->data_port = from->sin6_port;
		arrival_opened(&g->arrival);
	}
	if (g->data_port != from->sin6_port)
		return false;
	send_opened(g);
	return true;
}

static void hear_datagrams(struct echo *e, const struct listener *l)
{
	for (int i = 0; i < DATAGRAMS_AT_ONCE; i++) {
		struct sockaddr_in6 from = { 0 };
		socklen_t length = sizeof(from);
		uint8_t datagram[OPEN_BYTES + 1];
		ssize_t n = recvfrom(l->datagrams, datagram, sizeof(datagram),
				     MSG_DONTWAIT, (struct sockaddr *)&from,
				     &length);

		if (n < 0)
			return;
		if (!open_session(e, datagram, (size_t)n, &from))
			e->counters.stray_datagrams++;
	}
}

/* The client asked again before it knew, or has begun already. */
static void hear_early(struct guest *g)
{
	const uint8_t *own = handshake_token(&g->arrival.handshake), *token;
	uint8_t datagram[OPEN_BYTES + 1];
	ssize_t n = recv(g->session.data, datagram, sizeof(datagram),
			 MSG_DONTWAIT | MSG_PEEK);

	token = n < 0 ? NULL : open_token(datagram, (size_t)n, false);
	g->data_came = n >= 0 && !token;
	if (!token)
		return;
	recv(g->session.data, datagram, sizeof(datagram), MSG_DONTWAIT);
	if (token_equals(token, own))
		send_opened(g);
}

static int hold_signals(struct echo *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	e->signals = signalfd(-1, &set, SFD_CLOEXEC);
	e->ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return e->signals < 0 || e->ended < 0 ? -errno : 0;
}

/* Two descriptors for a session, so as many as we may have. */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void read_addresses(struct echo *e)
{
	const char *at = e->options->address;
	size_t length;

	do {
		struct listener *l = &e->listeners[e->listener_count++];

		length = strcspn(at, ",");
		memcpy(l->address, at, length);
		l->stream = l->datagrams = -1;
		at += length + 1;
	} while (at[-1]);
}

static void close_listeners(struct echo *e)
{
	for (size_t i = 0; i < e->listener_count; i++) {
		struct listener *l = &e->listeners[i];

		if (l->stream >= 0)
			close(l->stream);
		if (l->datagrams >= 0)
			close(l->datagrams);
		l->stream = l->datagrams = -1;
	}
}

static bool listens_on_v4(const struct echo *e)
{
	for (size_t i = 0; i < e->listener_count; i++)
		if (endpoint_is_v4(e->listeners[i].address))
			return true;
	return false;
}

/* TCP and UDP on each address, on one port. */
static int listen_on_all(struct echo *e, struct failure *failure)
{
	const struct options *o = e->options;
	bool only_v6 = listens_on_v4(e);
	int error = 0;

	e->port = (uint16_t)o->port;
	for (size_t i = 0; !error && i < e->listener_count; i++) {
		struct listener *l = &e->listeners[i];

		error = endpoint_listen(o, PROTOCOL_TCP, l->address, only_v6,
					&e->port, &l->stream, failure);
		if (!error)
			error = endpoint_listen(o, PROTOCOL_UDP, l->address,
						only_v6, &e->port,
						&l->datagrams, failure);
	}
	if (error)
		close_listeners(e);
	return error;
}

static int listen_somewhere(struct echo *e, struct failure *failure)
{
	int error, tries = e->options->port ? 1 : PORTS_TRIED;

	/* A port that is free for one socket need not be for the next. */
	do
		error = listen_on_all(e, failure);
	while (error == -EADDRINUSE && --tries);
	return error;
}

/* The clear wire has no sessions over UDP: one socket for all. */
static int serve_clear_datagrams(struct echo *e, struct failure *failure)
{
	for (size_t i = 0; i < e->listener_count; i++) {
		struct guest *g = guest_add(e, -1, NULL);

		if (!g)
			return fail(failure, ENOMEM,
				    "cannot serve datagrams: out of memory; "
				    "free some");
		g->session.data = e->listeners[i].datagrams;
		g->session.connected = false;
		guest_begin_clear(e, g, PROTOCOL_UDP);
	}
	return 0;
}

static int make_events(struct echo *e, struct failure *failure)
{
	size_t count =
		OWN_EVENTS + 2 * ADDRESSES_MAX +
		2 * (e->options->max_sessions + ARRIVALS_MAX + ADDRESSES_MAX);

	e->events = calloc(count, sizeof(*e->events));
	e->event_guests = calloc(count, sizeof(struct guest *));
	return e->events && e->event_guests ?
		       0 :
		       fail(failure, ENOMEM,
			    "cannot prepare %llu sessions: out of memory; "
			    "give a smaller --max-sessions",
			    (unsigned long long)e->options->max_sessions);
}

int echo_open(struct echo *e, const struct options *options,
	      struct failure *failure)
{
	int error;

	*e = (struct echo){ .options = options,
			    .rate.bytes_per_second = options->max_rate };
	raise_descriptors();
	if (hold_signals(e))
		return fail(failure, errno,
			    "cannot wait for signals: %s; "
			    "close files or raise `ulimit -n`",
			    strerror(errno));
	read_addresses(e);
	error = make_events(e, failure);
	if (!error)
		error = listen_somewhere(e, failure);
	if (!error && options->wire == WIRE_CLEAR)
		error = serve_clear_datagrams(e, failure);
	return error;
}

static bool stdin_ended(void)
{
	char ignored[512];

	return read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0;
}

static void expect(struct echo *e, size_t *count, int fd, short events,
		   struct guest *g)
{
	e->events[*count] = (struct pollfd){ .fd = fd, .events = events };
	e->event_guests[*count] = g;
	++*count;
}

static void expect_guest(struct echo *e, size_t *count, struct guest *g)
{
	const struct session *s = &g->session;
	bool split = s->control >= 0 && s->data != s->control;

	if (!g->running) {
		/* In this order: the second may remove the guest. */
		if (split && !g->data_came)
			expect(e, count, s->data, POLLIN, g);
		expect(e, count, s->control, POLLIN, g);
	} else if (split && !session_is_stopped(s)) {
		/* Its service may read the rest of what comes there. */
		expect(e, count, s->control, POLLRDHUP, g);
	}
}

static size_t expect_all(struct echo *e)
{
	bool clear = e->options->wire == WIRE_CLEAR;
	size_t count = 0;

	expect(e, &count, e->signals, POLLIN, NULL);
	expect(e, &count, e->options->until_eof ? STDIN_FILENO : -1, POLLIN,
	       NULL);
	expect(e, &count, e->ended, POLLIN, NULL);
	for (size_t i = 0; i < e->listener_count; i++) {
		expect(e, &count, e->listeners[i].stream, POLLIN, NULL);
		expect(e, &count, clear ? -1 : e->listeners[i].datagrams,
		       POLLIN, NULL);
	}
	for (struct guest *g = e->guests; g; g = g->next)
		expect_guest(e, &count, g);
	return count;
}

/* Guests first: what follows may remove them. */
static void hear_all(struct echo *e, size_t count)
{
	size_t first = OWN_EVENTS + 2 * e->listener_count;

	for (size_t i = first; i < count; i++) {
		struct guest *g = e->event_guests[i];

		if (!e->events[i].revents)
			continue;
		if (g->running)
			guest_end(g, STATUS_OK);
		else if (e->events[i].fd == g->session.control)
			serve_arrival(e, g);
		else
			hear_early(g);
	}
	for (size_t i = 0; i < e->listener_count; i++) {
		const struct pollfd *events = &e->events[OWN_EVENTS + 2 * i];

		if (events[0].revents)
			accept_connection(e, &e->listeners[i]);
		if (events[1].revents)
			hear_datagrams(e, &e->listeners[i]);
	}
	if (e->events[2].revents)
		guests_reap(e);
}

int echo_run(struct echo *e, struct failure *failure)
{
	while (!e->over) {
		size_t count = expect_all(e);
		int ready =
			poll(e->events, count, e->guest_count ? WATCH_MS : -1);

		if (ready < 0 && errno != EINTR)
			return fail(failure, errno,
				    "cannot wait for clients: "
				    "%s; free some memory",
				    strerror(errno));
		if (ready < 0)
			continue;
		/* What came before the end is still counted. */
		hear_all(e, count);
		if (e->events[0].revents)
			return 0;
		if (e->events[1].revents && stdin_ended())
			return 0;
		guests_watch(e);
	}
	return 0;
}
