/*
 * closed.c - a ping-pong in which each message waits for the reply before it.
 *
 * Between the two clock readings of a message there is nothing but its send
 * and its receive calls; making, checking and recording it come outside.
 * Does not see what would have been sent while a reply kept us waiting: that
 * is what the open loop is for.
 */
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "clock.h"
#include "exchange.h"

/* How long a call blocks at most before we look at the world again. */
static const uint64_t stream_tick_ns = 100 * NS_PER_MS;
static const uint64_t datagram_tick_ns = 20 * NS_PER_MS;
static const uint64_t tick_min_ns = NS_PER_MS;

enum { LONG_MESSAGE_BYTES = 1 << 15 };

static bool is_pause(int error)
{
	return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* Nothing came, nothing left: may we go on? -ECANCELED when stopped, 1 when
 * `limit_ns` after `since_ns` is over, where not 0. */
static int look_around(struct exchange *x, uint64_t since_ns, uint64_t limit_ns)
{
	uint64_t now = clock_ns();

	if (*x->stop)
		return -ECANCELED;
	if (limit_ns && now - since_ns >= limit_ns)
		return 1;
	return client_upkeep(x->client, now);
}

static int look_around_stream(struct exchange *x, uint64_t since_ns)
{
	int result = look_around(x, since_ns, x->options->timeout_ns);

	return result > 0 ? exchange_lost_peer(x, ETIMEDOUT) : result;
}

/* The last act before a message leaves. */
static void stamp(struct exchange *x, struct record *r)
{
	uint64_t now = clock_ns();

	r->intended_ns = r->created_ns = r->sent_ns = now;
	if (x->options->wire == WIRE_LATPROF)
		wire_stamp(x->outgoing, now);
}

/* A tick would cut a long message into two send calls, and so in two. Short
 * ones find room at once; for them two more calls would cost too much. */
static void hold_ticks(const struct message *m, int how)
{
	sigset_t ticks;

	if (m->record.size_bytes < LONG_MESSAGE_BYTES)
		return;
	sigemptyset(&ticks);
	sigaddset(&ticks, SIGALRM);
	sigprocmask(how, &ticks, NULL);
}

static int send_all(struct exchange *x, struct message *m)
{
	uint64_t moved_ns = 0;
	int error;

	for (size_t done = 0; done < m->record.size_bytes;) {
		ssize_t n = send(x->fd, x->outgoing + done,
				 m->record.size_bytes - done, MSG_NOSIGNAL);

		if (n > 0) {
			done += (size_t)n;
			moved_ns = 0;
			continue;
		}
		if (!is_pause(errno))
			return exchange_fail_send(x, m, errno);
		moved_ns = moved_ns ? moved_ns : clock_ns();
		error = look_around_stream(x, moved_ns);
		if (error)
			return error;
	}
	return 0;
}

static int send_stream(struct exchange *x, struct message *m)
{
	int error;

	hold_ticks(m, SIG_BLOCK);
	stamp(x, &m->record);
	error = send_all(x, m);
	hold_ticks(m, SIG_UNBLOCK);
	return error;
}

static int take_stream_reply(struct exchange *x, struct message *m,
			     const struct header *header, const uint8_t *reply,
			     uint64_t received_ns)
{
	if (header->kind != KIND_REPLY || x->stream.start != x->stream.end ||
	    (header->key & UINT32_MAX) != (m->key & UINT32_MAX))
		return exchange_bad_stream(x);
	return exchange_answer(x, m, header, reply, header->size, received_ns);
}

static int receive_stream(struct exchange *x, struct message *m)
{
	int flags = x->options->spin ? MSG_DONTWAIT : 0;
	uint64_t moved_ns = m->record.sent_ns;
	struct header header;
	uint8_t *reply;

	for (;;) {
		ssize_t n = stream_receive(&x->stream, x->fd, SIZE_MAX, flags);
		int result;

		if (n > 0) {
			moved_ns = clock_ns();
			result = stream_next(&x->stream, &header, &reply);
			if (result > 0)
				return take_stream_reply(x, m, &header, reply,
							 moved_ns);
			if (result == -EPROTO)
				return exchange_bad_stream(x);
		} else if (is_pause((int)-n)) {
			result = look_around_stream(x, moved_ns);
		} else {
			return exchange_lost_peer(x, (int)-n);
		}
		if (result)
			return result;
	}
}

/* 1: it left. 0: the kernel has no room for it, so it is lost. */
static int send_datagram(struct exchange *x, struct message *m)
{
	int error;

	for (;;) {
		stamp(x, &m->record);
		if (send(x->fd, x->outgoing, m->record.size_bytes,
			 MSG_NOSIGNAL) >= 0) {
			exchange_count_datagram(x, m);
			return 1;
		}
		if (errno == ENOBUFS || errno == ENOMEM)
			return 0;
		if (!is_pause(errno))
			return exchange_fail_send(x, m, errno);
		error = look_around(x, 0, 0);
		if (error)
			return error;
	}
}

/* 0: m is answered. 1: it is lost. */
static int receive_datagram(struct exchange *x, struct message *m)
{
	uint64_t limit_ns = loss_limit_ns(&x->loss, m->size_index);
	int flags = x->options->spin ? MSG_DONTWAIT : 0;
	uint8_t *reply = x->stream.bytes;
	struct header header;

	for (;;) {
		ssize_t n = recv(x->fd, reply, x->stream.capacity, flags);
		uint64_t received_ns = clock_ns();
		int result;

		if (n < 0 && !is_pause(errno))
			return exchange_lost_peer(x, errno);
		if (n >= 0 && exchange_parse(x, reply, (size_t)n, &header)) {
			if (header.key == m->key)
				return exchange_answer(x, m, &header, reply,
						       (size_t)n, received_ns);
			exchange_ignore(x, header.key);
		}
		result = look_around(x, m->record.sent_ns, limit_ns);
		if (result)
			return result;
	}
}

static int exchange_stream(struct exchange *x, struct message *m)
{
	int error = send_stream(x, m);

	return error ? error : receive_stream(x, m);
}

static int exchange_datagram(struct exchange *x, struct message *m)
{
	int result = send_datagram(x, m);

	if (!result)
		x->totals.unsent++;
	else if (result > 0)
		result = receive_datagram(x, m);
	if (result < 0)
		return result;
	if (m->settled) {
		loss_sample(&x->loss, m->size_index,
			    m->record.received_ns - m->record.sent_ns);
		return 0;
	}
	exchange_lose(x, m);
	return 0;
}

static void on_tick(int signal)
{
	(void)signal;
}

/* Interrupt blocking calls every so often, by a signal: a time limit of the
 * socket would arm a timer in each call, which costs 1% of a round trip. A
 * signal that comes before the call is made up for by the next one. */
static void set_ticks(uint64_t gap_ns)
{
	struct itimerval gap = {
		.it_interval.tv_usec = (suseconds_t)(gap_ns / 1000),
		.it_value.tv_usec = (suseconds_t)(gap_ns / 1000),
	};

	setitimer(ITIMER_REAL, &gap, NULL);
}

static bool has_long_messages(const struct exchange *x)
{
	const struct arg_list *sizes = &x->options->sizes;

	for (size_t i = 0; i < sizes->count; i++)
		if (sizes->values[i] >= LONG_MESSAGE_BYTES)
			return true;
	return false;
}

/* Ticks do not reach a long message that finds no room; this arms a timer only
 * where a call waits for some. */
static void limit_sends(int fd, uint64_t limit_ns)
{
	struct timeval limit = {
		.tv_usec = (suseconds_t)(limit_ns / 1000),
	};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static void start_ticks(const struct exchange *x)
{
	struct sigaction action = { .sa_handler = on_tick };
	uint64_t gap_ns =
		exchange_is_udp(x) ? datagram_tick_ns : stream_tick_ns;
	uint64_t timeout_ns = x->options->timeout_ns;

	if (timeout_ns && timeout_ns < gap_ns)
		gap_ns = timeout_ns < tick_min_ns ? tick_min_ns : timeout_ns;
	if (!exchange_is_udp(x) && has_long_messages(x))
		limit_sends(x->fd, gap_ns);
	sigaction(SIGALRM, &action, NULL);
	set_ticks(gap_ns);
}

int closed_loop(struct exchange *x)
{
	bool udp = exchange_is_udp(x);
	uint64_t now = clock_ns();
	struct message m = { 0 };
	struct turn turn;
	int error = 0;

	start_ticks(x);
	while (!error && !*x->stop && schedule_next(&x->schedule, now, &turn)) {
		exchange_begin(x, &turn, &m);
		error = udp ? exchange_datagram(x, &m) : exchange_stream(x, &m);
		if (!error)
			error = exchange_settle(x, &m);
		else
			exchange_abandon(x, &m);
		now = m.record.received_ns ? m.record.received_ns : clock_ns();
		if (!error)
			error = client_upkeep(x->client, now);
	}
	set_ticks(0);
	return error == -ECANCELED ? 0 : error;
}
