/*
 * echo.c - the responder as a program.
 *
 * The main thread does all that comes before a session, watches the sessions,
 * and waits for the end. Each session has a thread that blocks in its receive
 * call, as a bare loop would, and a file table of its own: a table that is
 * shared makes the kernel count references in every call. The main thread
 * keeps its own descriptors of the same sockets, to shut them down.
 */
#include <errno.h>
#include <limits.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arrival.h"
#include "clock.h"
#include "echo.h"
#include "endpoint.h"

enum {
	STACK_BYTES = 256 << 10,
	PAUSE_MS = 10,
	WATCH_MS = 1000,
	ARRIVALS_MAX = 64,
	DATAGRAMS_AT_ONCE = 64,
	PORTS_TRIED = 16,
	/* signals, stdin, ended */
	OWN_EVENTS = 3,
};

static const uint64_t arrival_limit_ns = 5 * NS_PER_SECOND;

/* A client, from its connection to the end of its session. */
struct guest {
	struct guest *next;
	struct session session;
	struct arrival arrival;
	const struct listener *listener;
	struct sockaddr_in6 peer; /* of the control connection */
	uint16_t data_port; /* the peer's, of its UDP socket; network order */
	bool data_came; /* UDP: before ARRIVAL_BEGIN was over */
	bool running; /* a thread serves it */
	uint64_t memory_bytes; /* what it was admitted with */
	uint64_t since_ns; /* arrived; from `running` on: began */
	uint64_t moved, moved_ns; /* how far it was, and since when */
	_Atomic bool ended; /* the thread's last word */
};

/* What a new thread is told; valid until it posts `taken`. */
struct hand_over {
	struct guest *guest;
	int ended; /* the eventfd */
	sem_t taken;
};

static void close_between(unsigned int first, unsigned int last)
{
	if (first <= last)
		syscall(SYS_close_range, first, last, 0);
}

/* A file table with the standard streams and these three alone: the copies of
 * others' sockets would keep their connections open. */
static void own_table(int a, int b, int c)
{
	unsigned int kept[] = { (unsigned int)a, (unsigned int)b,
				(unsigned int)c };
	unsigned int from = STDERR_FILENO + 1;

	if (unshare(CLONE_FILES))
		return;
	for (;;) {
		unsigned int least = UINT_MAX;

		for (int i = 0; i < 3; i++)
			if (kept[i] >= from && kept[i] < least)
				least = kept[i];
		if (least == UINT_MAX)
			break;
		close_between(from, least - 1);
		from = least + 1;
	}
	close_between(from, UINT_MAX);
}

static void *serve(void *argument)
{
	struct hand_over *given = argument;
	struct guest *g = given->guest;
	struct session *s = &g->session;
	int ended = given->ended;
	uint64_t one = 1;

	own_table(s->data, s->control < 0 ? s->data : s->control, ended);
	sem_post(&given->taken);
	service_find(s->terms.workload)->serve(s);
	if (s->control >= 0)
		shutdown(s->control, SHUT_RDWR);
	atomic_store(&g->ended, true);
	/* From here on the guest may be gone. */
	while (write(ended, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	return NULL;
}

static int start_thread(struct echo *e, struct guest *g)
{
	struct hand_over given = { .guest = g, .ended = e->ended };
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	sem_init(&given.taken, 0, 0);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	error = pthread_create(&thread, &attributes, serve, &given);
	pthread_attr_destroy(&attributes);
	while (!error && sem_wait(&given.taken))
		;
	sem_destroy(&given.taken);
	return -error;
}

static struct guest *add_guest(struct echo *e, int control)
{
	struct guest *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->session = (struct session){
		.control = control,
		.data = control,
		.connected = true,
		.wire = e->options->wire,
		.rate = &e->rate,
	};
	g->since_ns = g->moved_ns = clock_ns();
	arrival_begin(&g->arrival, &e->options->secret);
	g->next = e->guests;
	e->guests = g;
	e->guest_count++;
	e->arriving_count++;
	return g;
}

static void add_counters(struct echo_counters *to, const struct session *from)
{
	const struct session_counters *c = &from->counters;

	to->messages += c->messages;
	to->bytes += c->bytes;
	to->corrupt += c->corrupt;
	to->rejected += c->rejected;
	to->unsent += c->unsent;
}

/* No thread serves it, or that has ended. */
static void remove_guest(struct echo *e, struct guest *g)
{
	struct guest **at = &e->guests;

	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	add_counters(&e->counters, &g->session);
	e->guest_count--;
	if (!g->running)
		e->arriving_count--;
	if (g->memory_bytes)
		e->session_count--;
	e->memory_bytes -= g->memory_bytes;
	if (g->session.data != g->session.control && g->session.connected)
		close(g->session.data);
	if (g->session.control >= 0)
		close(g->session.control);
	free(g);
}

/* Its thread sees the end of its sockets. */
static void end_session(struct guest *g)
{
	atomic_store(&g->session.stop, true);
	if (g->session.data != g->session.control)
		shutdown(g->session.data, SHUT_RDWR);
	shutdown(g->session.control, SHUT_RDWR);
}

static void begin_session(struct echo *e, struct guest *g)
{
	g->since_ns = g->moved_ns = clock_ns();
	g->session.terms = g->arrival.terms;
	if (start_thread(e, g)) {
		e->counters.refused[STATUS_BUSY]++;
		remove_guest(e, g);
		return;
	}
	g->running = true;
	e->arriving_count--;
	e->counters.sessions++;
}

/* Terms of the clear wire, which asks for nothing. */
static void begin_clear(struct echo *e, struct guest *g,
			enum protocol transport)
{
	g->arrival.terms = (struct terms){
		.workload = WORKLOAD_PINGPONG,
		.transport = transport,
		.largest_bytes = CLEAR_BYTES_MAX,
	};
	begin_session(e, g);
}

/* What the thread of such a session may allocate: messages that come, are
 * made, and are held against what they should be. */
static uint64_t memory_for(const struct terms *t)
{
	const struct service *service = service_find(t->workload);

	return STACK_BYTES + 3ull * t->largest_bytes + 2ull * t->reply_bytes +
	       (service->memory_bytes ? service->memory_bytes(t) : 0);
}

static enum handshake_status admit(void *context, const struct terms *t,
				   uint64_t *bound)
{
	const struct echo *e = context;
	const struct options *o = e->options;
	const struct service *service = service_find(t->workload);
	uint64_t largest = o->max_message_bytes;

	if (!service || !(o->workloads & workload_bit(t->workload)))
		return STATUS_WORKLOAD;
	if (t->transport > PROTOCOL_UDP || t->think_ns > THINK_NS_MAX ||
	    t->largest_bytes < HEADER_BYTES ||
	    (t->reply_bytes && t->reply_bytes < HEADER_BYTES) ||
	    (service->allows && !service->allows(t)))
		return STATUS_TERMS;
	if (t->transport == PROTOCOL_UDP && largest > DATAGRAM_BYTES_MAX)
		largest = DATAGRAM_BYTES_MAX;
	*bound = largest;
	if (t->largest_bytes > largest || t->reply_bytes > largest)
		return STATUS_MESSAGE;
	*bound = o->max_duration_ns;
	if (o->max_duration_ns && t->duration_ns > o->max_duration_ns)
		return STATUS_DURATION;
	*bound = 0;
	if (e->session_count >= o->max_sessions ||
	    e->memory_bytes + memory_for(t) > o->max_memory_bytes)
		return STATUS_BUSY;
	return STATUS_OK;
}

static uint32_t served_workloads(const struct options *o)
{
	uint32_t served = 0;

	for (size_t i = 0; i < service_count; i++)
		served |= workload_bit(services[i].workload);
	return served & o->workloads;
}

static struct doorman doorman_of(struct echo *e)
{
	const struct options *o = e->options;

	return (struct doorman){
		.admit = admit,
		.context = e,
		.workloads = served_workloads(o),
		.limits = { .message_bytes = (uint32_t)o->max_message_bytes,
			    .duration_ns = o->max_duration_ns,
			    .bytes_per_second = o->max_rate },
	};
}

static void note_unfinished(struct echo *e, const struct guest *g, int error)
{
	if (g->arrival.stage == ARRIVAL_LEAVING)
		return;
	if (error == -EPROTO && g->arrival.stage == ARRIVAL_HELLO)
		e->counters.strangers++;
	else
		e->counters.unfinished++;
}

/* The oldest of those that are not served yet makes room. */
static void crowd_out(struct echo *e)
{
	struct guest *oldest = NULL;

	for (struct guest *g = e->guests; g; g = g->next)
		if (!g->running)
			oldest = g;
	if (!oldest)
		return;
	note_unfinished(e, oldest, 0);
	e->counters.crowded_out++;
	remove_guest(e, oldest);
}

static void accept_connection(struct echo *e, const struct listener *l)
{
	int fd = accept4(l->stream, NULL, NULL, SOCK_CLOEXEC);
	int nodelay = !e->options->nagle;
	socklen_t length = sizeof(struct sockaddr_in6);
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
		crowd_out(e);
	g = add_guest(e, fd);
	if (!g) {
		close(fd);
		return;
	}
	g->listener = l;
	getpeername(fd, (struct sockaddr *)&g->peer, &length);
	if (e->options->wire != WIRE_CLEAR)
		return;
	if (e->session_count >= e->options->max_sessions) {
		e->counters.refused[STATUS_BUSY]++;
		remove_guest(e, g);
		return;
	}
	g->memory_bytes = STACK_BYTES;
	e->memory_bytes += g->memory_bytes;
	e->session_count++;
	begin_clear(e, g, PROTOCOL_TCP);
}

/* From ACCEPT on it takes its share of sessions and of memory. */
static void enter_share(struct echo *e, struct guest *g)
{
	if (g->memory_bytes || (g->arrival.stage != ARRIVAL_OPEN &&
				g->arrival.stage != ARRIVAL_DONE))
		return;
	g->memory_bytes = memory_for(&g->arrival.terms);
	e->memory_bytes += g->memory_bytes;
	e->session_count++;
}

/* 0: go on. -errno: it is none of ours, or has gone. */
static int hear_guest(struct echo *e, struct guest *g)
{
	bool leaving = g->arrival.stage == ARRIVAL_LEAVING;
	struct doorman doorman = doorman_of(e);
	struct answer answer;
	uint8_t *at;
	size_t room = arrival_room(&g->arrival, &at);
	ssize_t n = recv(g->session.control, at, room, MSG_DONTWAIT);
	int error;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return -ECONNRESET;
	error = arrival_take(&g->arrival, (size_t)n, &doorman, &answer);
	if (error)
		return error;
	enter_share(e, g);
	if (answer.size &&
	    send(g->session.control, answer.bytes, answer.size,
		 MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)answer.size)
		return -ECONNRESET;
	if (!leaving && g->arrival.stage == ARRIVAL_LEAVING) {
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
		note_unfinished(e, g, error);
		remove_guest(e, g);
		return;
	}
	if (g->arrival.stage == ARRIVAL_DONE)
		begin_session(e, g);
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

/* How far a session is: bytes of its connection, or its datagrams. */
static uint64_t progress(const struct guest *g)
{
	struct tcp_info info = { 0 };
	socklen_t length = sizeof(info);

	if (g->session.terms.transport == PROTOCOL_UDP)
		return g->session.counters.messages;
	getsockopt(g->session.control, IPPROTO_TCP, TCP_INFO, &info, &length);
	return info.tcpi_bytes_received + info.tcpi_bytes_acked;
}

static void watch_session(struct echo *e, struct guest *g, uint64_t now_ns)
{
	const struct options *o = e->options;
	uint64_t moved;

	if (g->session.control < 0 || session_is_stopped(&g->session))
		return;
	moved = progress(g);
	if (moved != g->moved) {
		g->moved = moved;
		g->moved_ns = now_ns;
	}
	if (o->max_duration_ns && now_ns - g->since_ns > o->max_duration_ns) {
		e->counters.overlong++;
		end_session(g);
	} else if (now_ns - g->moved_ns > o->idle_ns) {
		e->counters.idle++;
		end_session(g);
	}
}

/* Whose time is over goes. */
static void watch(struct echo *e)
{
	uint64_t now = clock_ns();
	struct guest *next;

	if (now - e->watched_ns < WATCH_MS * NS_PER_MS)
		return;
	e->watched_ns = now;
	for (struct guest *g = e->guests; g; g = next) {
		next = g->next;
		if (g->running) {
			watch_session(e, g, now);
		} else if (now - g->since_ns > arrival_limit_ns) {
			note_unfinished(e, g, 0);
			remove_guest(e, g);
		}
	}
}

static void bury(struct echo *e)
{
	struct guest *next;
	uint64_t count;

	if (read(e->ended, &count, sizeof(count)) < 0)
		return;
	for (struct guest *g = e->guests; g; g = next) {
		next = g->next;
		if (!g->running || !atomic_load(&g->ended))
			continue;
		/* The one socket of clear datagrams does not come again. */
		e->over = e->over || !g->session.connected;
		remove_guest(e, g);
	}
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

/* TCP and UDP on each address, on one port. */
static int listen_on_all(struct echo *e, struct failure *failure)
{
	const struct options *o = e->options;
	int error = 0;

	e->port = (uint16_t)o->port;
	for (size_t i = 0; !error && i < e->listener_count; i++) {
		struct listener *l = &e->listeners[i];

		error = endpoint_listen(o, PROTOCOL_TCP, l->address, &e->port,
					&l->stream, failure);
		if (!error)
			error = endpoint_listen(o, PROTOCOL_UDP, l->address,
						&e->port, &l->datagrams,
						failure);
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
		struct guest *g = add_guest(e, -1);

		if (!g)
			return fail(failure, ENOMEM,
				    "cannot serve datagrams: out of memory; "
				    "free some");
		g->session.data = e->listeners[i].datagrams;
		g->session.connected = false;
		begin_clear(e, g, PROTOCOL_UDP);
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
			end_session(g);
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
		bury(e);
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
		watch(e);
	}
	return 0;
}

struct echo_counters echo_counters(const struct echo *e)
{
	struct echo_counters ret = e->counters;

	for (const struct guest *g = e->guests; g; g = g->next)
		add_counters(&ret, &g->session);
	return ret;
}
