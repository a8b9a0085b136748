/*
 * open.c - a ping-pong whose messages leave when they are due, whatever has
 * become of those before them.
 *
 * A message that cannot leave (a full send buffer) leaves as soon as it can
 * and keeps its due time, so that the wait is part of what is measured from
 * it. One thread: sends come first, then replies, then the records.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "clock.h"
#include "exchange.h"

enum {
	/* Reads are short, so that a long reply does not delay a send. */
	RECEIVE_BYTES_MAX = 1 << 18,
	/* Records written in one idle moment: about 10 us. */
	RECORDS_AT_ONCE = 256,
};

static const uint64_t wait_max_ns = 100 * NS_PER_MS;

struct open_loop {
	struct exchange *x;
	struct outstanding waiting;
	struct message next; /* to be sent, where `pending` */
	bool pending;
	bool blocked; /* the send buffer is full */
	size_t left_bytes; /* of `next`, that have left already */
	uint64_t moved_ns; /* when the responder was last heard of */
};

static int fail_memory(struct open_loop *l)
{
	return fail(l->x->failure, ENOMEM,
		    "cannot remember %zu messages "
		    "that wait for replies: out of memory; give a longer "
		    "--interval",
		    l->waiting.count);
}

static void prepare_next(struct open_loop *l, uint64_t now_ns)
{
	struct turn turn;

	l->left_bytes = 0;
	l->pending = schedule_next(&l->x->schedule, now_ns, &turn);
	if (l->pending)
		exchange_begin(l->x, &turn, &l->next);
}

/* Settle from the oldest on, so that records are in order of sending. */
static int settle_front(struct open_loop *l)
{
	struct message *m;
	int error = 0;

	while (!error && (m = outstanding_front(&l->waiting)) && m->settled) {
		error = exchange_settle(l->x, m);
		outstanding_drop_front(&l->waiting);
	}
	return error;
}

/* The kernel refused a datagram for want of memory. */
static int lose_unsent(struct open_loop *l, uint64_t now_ns)
{
	exchange_lose(l->x, &l->next);
	l->x->totals.unsent++;
	l->next.record.sent_ns = now_ns;
	if (outstanding_add(&l->waiting, &l->next))
		return fail_memory(l);
	prepare_next(l, now_ns);
	return settle_front(l);
}

/* `count` bytes of the next message have left. */
static int note_sent(struct open_loop *l, size_t count, uint64_t now_ns)
{
	bool first = !l->left_bytes;

	if (first) {
		l->next.record.sent_ns = now_ns;
		if (exchange_is_udp(l->x))
			exchange_count_datagram(l->x, &l->next);
		if (!l->waiting.count)
			l->moved_ns = now_ns;
		if (outstanding_add(&l->waiting, &l->next))
			return fail_memory(l);
	}
	l->left_bytes += count;
	if (l->left_bytes == l->next.record.size_bytes)
		prepare_next(l, now_ns);
	return 0;
}

/* 1: something left. 0: nothing is due, or there is no room for it. */
static int push(struct open_loop *l, uint64_t now_ns)
{
	struct exchange *x = l->x;
	ssize_t n;

	if (!l->pending || now_ns < l->next.record.intended_ns)
		return 0;
	n = send(x->fd, x->outgoing + l->left_bytes,
		 l->next.record.size_bytes - l->left_bytes,
		 MSG_DONTWAIT | MSG_NOSIGNAL);
	l->blocked = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
	if (l->blocked || (n < 0 && errno == EINTR))
		return 0;
	if (n < 0 && exchange_is_udp(x) &&
	    (errno == ENOBUFS || errno == ENOMEM))
		return lose_unsent(l, now_ns) ?: 1;
	if (n < 0)
		return exchange_fail_send(x, &l->next, errno);
	return note_sent(l, (size_t)n, now_ns) ?: 1;
}

static int take_stream_reply(struct open_loop *l, const struct header *header,
			     const uint8_t *reply, uint64_t received_ns)
{
	struct message *m = outstanding_front(&l->waiting);

	if (!m || header->kind != KIND_REPLY ||
	    (header->key & UINT32_MAX) != (m->key & UINT32_MAX))
		return exchange_bad_stream(l->x);
	return exchange_answer(l->x, m, header, reply, header->size, received_ns) ?:
		       settle_front(l);
}

static int pull_stream(struct open_loop *l)
{
	struct exchange *x = l->x;
	ssize_t n = stream_receive(&x->stream, x->fd, RECEIVE_BYTES_MAX,
				   MSG_DONTWAIT);
	uint64_t received_ns = clock_ns();
	struct header header;
	uint8_t *reply;
	int found;

	if (n == -EAGAIN || n == -EWOULDBLOCK || n == -EINTR)
		return 0;
	if (n <= 0)
		return exchange_lost_peer(x, (int)-n);
	l->moved_ns = received_ns;
	while ((found = stream_next(&x->stream, &header, &reply)) > 0) {
		int error = take_stream_reply(l, &header, reply, received_ns);

		if (error)
			return error;
	}
	if (found == -ENOMEM)
		return fail_memory(l);
	return found ? exchange_bad_stream(x) : 1;
}

static int pull_datagram(struct open_loop *l)
{
	struct exchange *x = l->x;
	uint8_t *reply = x->stream.bytes;
	ssize_t n = recv(x->fd, reply, x->stream.capacity, MSG_DONTWAIT);
	uint64_t received_ns = clock_ns();
	struct header header;
	struct message *m;
	int error;

	if (n < 0 &&
	    (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return 0;
	if (n < 0)
		return exchange_lost_peer(x, errno);
	if (!exchange_parse(x, reply, (size_t)n, &header))
		return 1;
	m = outstanding_find(&l->waiting, header.key);
	if (!m || m->settled) {
		exchange_ignore(x, header.key);
		return 1;
	}
	error = exchange_answer(x, m, &header, reply, (size_t)n, received_ns);
	return error ?: settle_front(l) ?: 1;
}

/* When the oldest message that waits is given up; UINT64_MAX: never. */
static uint64_t give_up_ns(struct open_loop *l)
{
	struct message *m = outstanding_front(&l->waiting);
	uint64_t limit_ns = l->x->options->timeout_ns;

	if (!m)
		return UINT64_MAX;
	if (exchange_is_udp(l->x))
		return m->record.sent_ns +
		       loss_limit_ns(&l->x->loss, m->size_index);
	return limit_ns ? l->moved_ns + limit_ns : UINT64_MAX;
}

static int give_up(struct open_loop *l, uint64_t now_ns)
{
	while (now_ns >= give_up_ns(l)) {
		int error;

		if (!exchange_is_udp(l->x))
			return exchange_lost_peer(l->x, ETIMEDOUT);
		exchange_lose(l->x, outstanding_front(&l->waiting));
		error = settle_front(l);
		if (error)
			return error;
	}
	return 0;
}

static void wait_for_change(struct open_loop *l)
{
	struct pollfd ready = { .fd = l->x->fd, .events = POLLIN };
	uint64_t now = clock_ns(), until = now + wait_max_ns;
	struct timespec left = { 0 };

	if (l->pending && !l->blocked && l->next.record.intended_ns < until)
		until = l->next.record.intended_ns;
	if (give_up_ns(l) < until)
		until = give_up_ns(l);
	if (l->blocked)
		ready.events |= POLLOUT;
	if (until > now)
		left.tv_nsec = (long)(until - now);
	ppoll(&ready, 1, &left, NULL);
}

/* One look at all that can happen. 1: something did. */
static int step(struct open_loop *l)
{
	uint64_t now = clock_ns();
	int pushed = push(l, now), pulled = 0, error;

	if (pushed < 0)
		return pushed;
	/* With no reply to come, a spinning loop only reads the clock. */
	if (l->waiting.count || !l->x->options->spin)
		pulled = exchange_is_udp(l->x) ? pull_datagram(l) :
						 pull_stream(l);
	if (pulled < 0)
		return pulled;
	error = give_up(l, now) ?: exchange_upkeep(l->x, now);
	return error ?: pushed | pulled;
}

static int run(struct open_loop *l)
{
	struct exchange *x = l->x;
	int moved = 1;

	prepare_next(l, clock_ns());
	while (moved >= 0 && !*x->stop && (l->pending || l->waiting.count)) {
		moved = step(l);
		if (moved)
			continue;
		if (records_kept(&x->records) >= RECORDS_AT_ONCE)
			moved = records_write(&x->records, RECORDS_AT_ONCE,
					      x->failure);
		if (!x->options->spin)
			wait_for_change(l);
	}
	return moved < 0 ? moved : 0;
}

/* Those that were answered behind one that was not still have a record. */
static int settle_rest(struct open_loop *l)
{
	struct totals *t = &l->x->totals;
	struct message *m;
	int error = 0;

	while (!error && (m = outstanding_front(&l->waiting))) {
		if (m->settled)
			error = exchange_settle(l->x, m);
		else if (!(m->record.flags & RECORD_WARMUP))
			t->unanswered++;
		outstanding_drop_front(&l->waiting);
	}
	t->sent += t->unanswered;
	return error;
}

int open_loop(struct exchange *x)
{
	struct open_loop l = { .x = x };
	int error, settled;

	if (outstanding_open(&l.waiting))
		return fail_memory(&l);
	error = run(&l);
	settled = settle_rest(&l);
	outstanding_close(&l.waiting);
	return error ? error : settled;
}
