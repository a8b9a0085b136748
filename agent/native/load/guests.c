/*
 * guests.c - clients from their connection to the end of their sessions, the
 * thread that serves each, and what all of them together may take.
 *
 * A session's thread blocks in its receive call, as a bare loop would, and has
 * a file table of its own: a table that is shared makes the kernel count
 * references in every call. The main thread keeps its own descriptors of the
 * same sockets, to shut them down.
 */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "big_endian.h"
#include "clock.h"
#include "guests.h"
#include "tcp_facts.h"

enum { STACK_BYTES = 256 << 10, TABLE_KEPT = 4 };

static const uint64_t arrival_limit_ns = 5 * NS_PER_SECOND;
/* For what a session of a duration does before and after that: open, warm up,
 * and wait for what is still on its way. */
static const uint64_t grace_ns = 75 * NS_PER_SECOND;

/* Arguments of a new thread; valid until it posts `taken`. */
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

/* A file table with the standard streams and these alone, those below 0 left
 * out: the copies of others' sockets would keep their connections open. */
static void own_table(const int kept[TABLE_KEPT])
{
	unsigned int from = STDERR_FILENO + 1;

	if (unshare(CLONE_FILES))
		return;
	for (;;) {
		unsigned int least = UINT_MAX;

		for (int i = 0; i < TABLE_KEPT; i++) {
			unsigned int one = (unsigned int)kept[i];

			if (one >= from && one < least)
				least = one;
		}
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

	own_table((const int[]){ s->data, s->control, s->lender, ended });
	sem_post(&given->taken);
	cpu_time_begin(&s->cpu);
	service_find(s->terms.workload)->serve(s);
	cpu_time_end(&s->cpu);
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

struct guest *guest_add(struct echo *e, int control,
			const struct sockaddr_in6 *peer)
{
	struct guest *g = calloc(1, sizeof(*g));

	if (g && peer)
		g->host = host_enter(&e->hosts, peer);
	if (!g || (peer && !g->host)) {
		free(g);
		return NULL;
	}
	g->echo = e;
	if (peer)
		g->peer = *peer;
	g->session = (struct session){
		.control = control,
		.data = control,
		.connected = true,
		.wire = e->options->wire,
		.rate = &e->rate,
		.lender = (int)e->options->hand_over,
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

static void count_cpu(struct echo *e, struct guest *g)
{
	uint64_t now_ns = cpu_time_ns(&g->session.cpu);

	g->looked_ns = 0;
	/* A thread that ends just now may be missing. */
	if (!g->host || now_ns < g->cpu_ns)
		return;
	g->looked_ns = now_ns - g->cpu_ns;
	g->cpu_ns = now_ns;
	g->host->share.cpu_ns += g->looked_ns;
	e->share.cpu_ns += g->looked_ns;
}

/* What it had of its host's. */
static void leave_host(struct echo *e, struct guest *g)
{
	count_cpu(e, g);
	if (!g->host)
		return;
	if (!g->running)
		g->host->arriving--;
	if (g->memory_bytes)
		share_return(&g->host->share, g->memory_bytes);
	host_leave(g->host);
}

void guest_remove(struct echo *e, struct guest *g)
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
		share_return(&e->share, g->memory_bytes);
	leave_host(e, g);
	if (g->session.data != g->session.control && g->session.connected)
		close(g->session.data);
	if (g->session.control >= 0)
		close(g->session.control);
	free(g);
}

static void say_why(struct echo *e, const struct guest *g,
		    enum handshake_status why)
{
	struct farewell *f = &e->farewells[e->farewell_count++ % FAREWELLS_MAX];

	e->counters.ended[why]++;
	f->why = why;
	memcpy(f->token, handshake_token(&g->arrival.handshake), TOKEN_BYTES);
}

void guest_end(struct guest *g, enum handshake_status why)
{
	/* First: it may ask as soon as it sees the end. */
	if (why)
		say_why(g->echo, g, why);
	atomic_store(&g->session.stop, true);
	if (g->session.data != g->session.control)
		shutdown(g->session.data, SHUT_RDWR);
	shutdown(g->session.control, SHUT_RDWR);
}

void guest_begin(struct echo *e, struct guest *g)
{
	g->since_ns = g->moved_ns = clock_ns();
	g->session.terms = g->arrival.terms;
	if (start_thread(e, g)) {
		e->counters.refused[STATUS_BUSY]++;
		guest_remove(e, g);
		return;
	}
	g->running = true;
	e->arriving_count--;
	if (g->host)
		g->host->arriving--;
	e->counters.sessions++;
}

/* What the thread of such a session may allocate: messages that come, are
 * made, and are held against what they should be. */
static uint64_t memory_for(const struct terms *t)
{
	const struct service *service = service_find(t->workload);

	return STACK_BYTES + 3ull * t->largest_bytes + 2ull * t->reply_bytes +
	       (service->memory_bytes ? service->memory_bytes(t) : 0);
}

static struct share_bounds bounds_of_all(const struct options *o)
{
	return (struct share_bounds){ o->max_sessions, o->max_memory_bytes,
				      o->max_cpu_percent };
}

static struct share_bounds bounds_of_host(const struct options *o)
{
	return (struct share_bounds){ o->max_host_sessions,
				      o->max_host_memory_bytes,
				      o->max_host_cpu_percent };
}

/* Of what its host may have, then of what all may. */
static enum handshake_status room_for(const struct guest *g,
				      uint64_t memory_bytes)
{
	static const enum handshake_status of_host[SHARE_LACKS_COUNT] = {
		[SHARE_LACKS_SESSIONS] = STATUS_HOST_SESSIONS,
		[SHARE_LACKS_MEMORY] = STATUS_HOST_MEMORY,
		[SHARE_LACKS_CPU] = STATUS_HOST_CPU,
	};
	static const enum handshake_status of_all[SHARE_LACKS_COUNT] = {
		[SHARE_LACKS_SESSIONS] = STATUS_BUSY,
		[SHARE_LACKS_MEMORY] = STATUS_MEMORY,
		[SHARE_LACKS_CPU] = STATUS_CPU,
	};
	const struct echo *e = g->echo;
	struct share_bounds host = bounds_of_host(e->options);
	struct share_bounds all = bounds_of_all(e->options);
	enum share_lack lack = share_lack(&g->host->share, &host, memory_bytes);

	return lack ? of_host[lack] :
		      of_all[share_lack(&e->share, &all, memory_bytes)];
}

static void take_share(struct echo *e, struct guest *g, uint64_t memory_bytes)
{
	g->memory_bytes = memory_bytes;
	share_take(&e->share, memory_bytes);
	share_take(&g->host->share, memory_bytes);
}

static struct terms clear_terms(enum protocol transport)
{
	return (struct terms){
		.workload = WORKLOAD_PINGPONG,
		.transport = transport,
		.largest_bytes = CLEAR_BYTES_MAX,
	};
}

void guest_begin_clear(struct echo *e, struct guest *g, enum protocol transport)
{
	g->arrival.terms = clear_terms(transport);
	guest_begin(e, g);
}

void guest_admit_clear(struct echo *e, struct guest *g)
{
	struct terms terms = clear_terms(PROTOCOL_TCP);
	enum handshake_status status = room_for(g, memory_for(&terms));

	if (status) {
		e->counters.refused[status]++;
		guest_remove(e, g);
		return;
	}
	take_share(e, g, memory_for(&terms));
	guest_begin_clear(e, g, PROTOCOL_TCP);
}

static enum handshake_status why_ended(const struct echo *e,
				       const struct terms *question)
{
	uint8_t token[TOKEN_BYTES];

	put_u64(token, question->own[0]);
	put_u64(token + sizeof(uint64_t), question->own[1]);
	for (size_t i = 0; i < FAREWELLS_MAX; i++) {
		const struct farewell *f = &e->farewells[i];

		if (f->why && token_equals(f->token, token))
			return f->why;
	}
	return STATUS_WORKLOAD;
}

static enum handshake_status admit(void *context, const struct terms *t,
				   uint64_t *bound)
{
	const struct guest *g = context;
	const struct options *o = g->echo->options;
	const struct service *service = service_find(t->workload);
	uint64_t largest = o->max_message_bytes;

	if (t->workload == WORKLOAD_WHY)
		return why_ended(g->echo, t);
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
	return room_for(g, memory_for(t));
}

static uint32_t served_workloads(const struct options *o)
{
	uint32_t served = 0;

	for (size_t i = 0; i < service_count; i++)
		served |= workload_bit(services[i].workload);
	return served & o->workloads;
}

struct admission guest_admission(struct guest *g)
{
	const struct options *o = g->echo->options;

	return (struct admission){
		.admit = admit,
		.context = g,
		.workloads = served_workloads(o),
		.limits = { .message_bytes = (uint32_t)o->max_message_bytes,
			    .duration_ns = o->max_duration_ns,
			    .bytes_per_second = o->max_rate },
	};
}

void guest_note_unfinished(struct echo *e, const struct guest *g, int error)
{
	if (g->arrival.stage == ARRIVAL_LEAVING)
		return;
	if (error == -EPROTO && g->arrival.stage == ARRIVAL_HELLO)
		e->counters.strangers++;
	else
		e->counters.unfinished++;
}

/* Strangers before those that have proven the secret, the many of one host
 * before the few of another, the old (which `a` is) before the new. */
static bool goes_before(const struct guest *a, const struct guest *b)
{
	if (!a->memory_bytes != !b->memory_bytes)
		return !a->memory_bytes;
	return a->host->arriving >= b->host->arriving;
}

void guests_evict_oldest(struct echo *e)
{
	struct guest *leaver = NULL;

	for (struct guest *g = e->guests; g; g = g->next)
		if (!g->running && (!leaver || goes_before(g, leaver)))
			leaver = g;
	if (!leaver)
		return;
	guest_note_unfinished(e, leaver, 0);
	e->counters.crowded_out++;
	guest_remove(e, leaver);
}

void guest_enter_share(struct echo *e, struct guest *g)
{
	if (g->memory_bytes || (g->arrival.stage != ARRIVAL_OPEN &&
				g->arrival.stage != ARRIVAL_DONE))
		return;
	take_share(e, g, memory_for(&g->arrival.terms));
}

/* How far a session is: bytes of its connection, or its datagrams. */
static uint64_t progress(const struct guest *g)
{
	if (g->session.terms.transport == PROTOCOL_UDP)
		return g->session.counters.messages;
	return tcp_moved_bytes(g->session.control);
}

static bool is_overlong(const struct echo *e, const struct guest *g,
			uint64_t now_ns)
{
	uint64_t most_ns = e->options->max_duration_ns;

	if (!most_ns)
		return false;
	/* It was let in with a duration that is within the limit. */
	if (g->session.terms.duration_ns)
		most_ns += grace_ns;
	return now_ns - g->since_ns > most_ns;
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
	if (is_overlong(e, g, now_ns))
		guest_end(g, STATUS_OVERLONG);
	else if (now_ns - g->moved_ns > o->idle_ns)
		guest_end(g, STATUS_IDLE);
}

static struct guest *busiest_guest(const struct echo *e, const struct host *of)
{
	struct guest *found = NULL;
	uint64_t most_ns = 0;

	for (struct guest *g = e->guests; g; g = g->next) {
		if (g->host != of || g->looked_ns <= most_ns ||
		    session_is_stopped(&g->session))
			continue;
		found = g;
		most_ns = g->looked_ns;
	}
	return found;
}

static struct host *busiest_host(const struct echo *e)
{
	struct host *found = e->hosts;

	for (struct host *h = e->hosts; h; h = h->next)
		if (h->share.looked_ns > found->share.looked_ns)
			found = h;
	return found;
}

/* End sessions until what the others took is no more than may be. */
static void shed(struct echo *e, const struct host *of, uint64_t too_much_ns,
		 enum handshake_status why)
{
	struct guest *g;

	while (too_much_ns && (g = busiest_guest(e, of))) {
		guest_end(g, why);
		too_much_ns -=
			g->looked_ns < too_much_ns ? g->looked_ns : too_much_ns;
	}
}

static void watch_cpu(struct echo *e, uint64_t elapsed_ns)
{
	struct share_bounds of_host = bounds_of_host(e->options);
	struct share_bounds of_all = bounds_of_all(e->options);

	for (struct guest *g = e->guests; g; g = g->next)
		count_cpu(e, g);
	for (struct host *h = e->hosts; h; h = h->next)
		shed(e, h, share_look(&h->share, &of_host, elapsed_ns),
		     STATUS_HOST_CPU);
	shed(e, busiest_host(e), share_look(&e->share, &of_all, elapsed_ns),
	     STATUS_CPU);
	hosts_forget(&e->hosts);
}

void guests_watch(struct echo *e)
{
	uint64_t now = clock_ns();
	struct guest *next;

	if (now - e->watched_ns < WATCH_MS * NS_PER_MS)
		return;
	watch_cpu(e, now - e->watched_ns);
	e->watched_ns = now;
	for (struct guest *g = e->guests; g; g = next) {
		next = g->next;
		if (g->running) {
			watch_session(e, g, now);
		} else if (now - g->since_ns > arrival_limit_ns) {
			guest_note_unfinished(e, g, 0);
			guest_remove(e, g);
		}
	}
}

void guests_reap(struct echo *e)
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
		guest_remove(e, g);
	}
}

struct echo_counters echo_counters(const struct echo *e)
{
	struct echo_counters ret = e->counters;

	for (const struct guest *g = e->guests; g; g = g->next)
		add_counters(&ret, &g->session);
	return ret;
}
