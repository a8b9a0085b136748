/*
 * open.c - a ping-pong whose messages leave when they are due, whatever has
 * become of those before them: to one peer, or to many at once.
 *
 * A message that cannot leave (a full send buffer, a full window) leaves as
 * soon as it can and keeps its due time, so that the wait is part of what is
 * measured from it. One thread: sends come first, then replies, then the
 * records. Without an interval there are trains, the next of which is due when
 * the one before is answered.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
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

struct peer {
	struct exchange *x;
	struct outstanding waiting;
	size_t unanswered; /* of those that wait */
	struct message next; /* to be sent, where `pending` */
	bool pending;
	bool ended; /* its schedule has no more */
	bool blocked; /* the send buffer is full */
	bool readable; /* as far as we know */
	size_t left_bytes; /* of `next`, that have left already */
	uint64_t moved_ns; /* when the responder was last heard of */
};

struct open_loop {
	struct client *client;
	const struct options *options;
	struct peer *peers;
	struct pollfd *polled; /* one for each of them */
	size_t count;
	size_t read_next; /* the peer whose turn it is to be read from */
};

static int fail_memory(struct peer *p)
{
	return fail(p->x->failure, ENOMEM,
		    "cannot remember %zu messages "
		    "that wait for replies: out of memory; give a longer "
		    "--interval",
		    p->waiting.count);
}

/* A closed loop's next train waits for the replies to the one before. */
static bool must_wait(const struct peer *p)
{
	return !p->x->options->interval_ns && p->waiting.count &&
	       !schedule_in_train(&p->x->schedule);
}

static void prepare_next(struct peer *p, uint64_t now_ns)
{
	struct turn turn;

	if (p->pending || p->ended || must_wait(p))
		return;
	p->left_bytes = 0;
	p->pending = schedule_next(&p->x->schedule, now_ns, &turn);
	p->ended = !p->pending;
	if (p->pending)
		exchange_begin(p->x, &turn, &p->next);
}

/* Settle from the oldest on, so that records are in order of sending. */
static int settle_front(struct peer *p)
{
	struct message *m;
	int error = 0;

	while (!error && (m = outstanding_front(&p->waiting)) && m->settled) {
		error = exchange_settle(p->x, m);
		outstanding_drop_front(&p->waiting);
	}
	return error;
}

/* The kernel refused a datagram for want of memory. */
static int lose_unsent(struct peer *p, uint64_t now_ns)
{
	exchange_lose(p->x, &p->next);
	p->x->totals.unsent++;
	p->next.record.sent_ns = now_ns;
	p->pending = false;
	if (outstanding_add(&p->waiting, &p->next))
		return fail_memory(p);
	return settle_front(p);
}

/* `count` bytes of the next message have left in a call that began at now_ns.
 */
static int note_sent(struct peer *p, size_t count, uint64_t now_ns)
{
	struct record *r = &p->next.record;

	if (!p->left_bytes) {
		r->sent_ns = now_ns;
		if (count == r->size_bytes)
			r->send_returned_ns = clock_ns();
		if (exchange_is_udp(p->x))
			exchange_count_datagram(p->x, &p->next);
		if (!p->waiting.count)
			p->moved_ns = now_ns;
		if (outstanding_add(&p->waiting, &p->next))
			return fail_memory(p);
		p->unanswered++;
	}
	p->left_bytes += count;
	p->pending = p->left_bytes < r->size_bytes;
	return 0;
}

/* As many messages as the window takes are without a reply. */
static bool window_is_full(const struct peer *p)
{
	uint64_t window = p->x->options->max_acks;

	return window && p->unanswered >= window && !p->left_bytes;
}

static bool may_leave(const struct peer *p, uint64_t now_ns)
{
	return p->pending && now_ns >= p->next.record.intended_ns &&
	       !window_is_full(p);
}

/* 1: something left. 0: nothing is due, or there is no room for it. */
static int push(struct peer *p, uint64_t now_ns)
{
	struct exchange *x = p->x;
	ssize_t n;

	prepare_next(p, now_ns);
	if (!may_leave(p, now_ns))
		return 0;
	now_ns = clock_ns();
	n = send(x->fd, x->outgoing + p->left_bytes,
		 p->next.record.size_bytes - p->left_bytes,
		 MSG_DONTWAIT | MSG_NOSIGNAL);
	p->blocked = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
	if (p->blocked || (n < 0 && errno == EINTR))
		return 0;
	if (n < 0 && exchange_is_udp(x) &&
	    (errno == ENOBUFS || errno == ENOMEM))
		return lose_unsent(p, now_ns) ?: 1;
	if (n < 0)
		return exchange_fail_send(x, &p->next, errno);
	return note_sent(p, (size_t)n, now_ns) ?: 1;
}

/* A message, or a train as far as it is due. */
static int push_train(struct peer *p, uint64_t now_ns)
{
	int pushed = push(p, now_ns), moved = pushed;

	while (pushed > 0 && schedule_in_train(&p->x->schedule))
		pushed = push(p, clock_ns());
	return pushed < 0 ? pushed : moved;
}

static int push_all(struct open_loop *l, uint64_t now_ns)
{
	int moved = 0;

	for (size_t i = 0; i < l->count; i++) {
		int pushed = push_train(&l->peers[i], now_ns);

		if (pushed < 0)
			return pushed;
		moved |= pushed;
	}
	return moved;
}

/* When a receive call began and ended that found something. */
struct receipt {
	uint64_t called_ns;
	uint64_t received_ns;
};

static int answer(struct peer *p, struct message *m,
		  const struct header *header, const uint8_t *reply,
		  size_t length, const struct receipt *receipt)
{
	p->unanswered--;
	m->record.receive_called_ns = receipt->called_ns;
	return exchange_answer(p->x, m, header, reply, length, receipt->received_ns) ?:
		       settle_front(p);
}

static int take_stream_reply(struct peer *p, const struct header *header,
			     const uint8_t *reply,
			     const struct receipt *receipt)
{
	struct message *m = outstanding_front(&p->waiting);

	if (!m || header->kind != KIND_REPLY ||
	    (header->key & UINT32_MAX) != (m->key & UINT32_MAX))
		return exchange_bad_stream(p->x);
	return answer(p, m, header, reply, header->size, receipt);
}

static int pull_stream(struct peer *p)
{
	struct exchange *x = p->x;
	struct receipt receipt = { .called_ns = clock_ns() };
	ssize_t n = stream_receive(&x->stream, x->fd, RECEIVE_BYTES_MAX,
				   MSG_DONTWAIT);
	struct header header;
	uint8_t *reply;
	int found;

	receipt.received_ns = clock_ns();
	if (n == -EAGAIN || n == -EWOULDBLOCK || n == -EINTR)
		return 0;
	if (n <= 0)
		return exchange_lost_peer(x, (int)-n);
	p->moved_ns = receipt.received_ns;
	while ((found = stream_next(&x->stream, &header, &reply)) > 0) {
		int error = take_stream_reply(p, &header, reply, &receipt);

		if (error)
			return error;
	}
	if (found == -ENOMEM)
		return fail_memory(p);
	return found ? exchange_bad_stream(x) : 1;
}

static int pull_datagram(struct peer *p)
{
	struct exchange *x = p->x;
	uint8_t *reply = x->stream.bytes;
	struct receipt receipt = { .called_ns = clock_ns() };
	ssize_t n = recv(x->fd, reply, x->stream.capacity, MSG_DONTWAIT);
	struct header header;
	struct message *m;

	receipt.received_ns = clock_ns();
	if (n < 0 &&
	    (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return 0;
	if (n < 0)
		return exchange_lost_peer(x, errno);
	if (!exchange_parse(x, reply, (size_t)n, &header))
		return 1;
	m = outstanding_find(&p->waiting, header.key);
	if (!m || m->settled) {
		exchange_ignore(x, header.key);
		return 1;
	}
	return answer(p, m, &header, reply, (size_t)n, &receipt) ?: 1;
}

/* When the oldest message that waits is given up; CLOCK_NEVER: never. */
static uint64_t give_up_ns(struct peer *p)
{
	struct message *m = outstanding_front(&p->waiting);
	uint64_t limit_ns = p->x->options->timeout_ns;

	if (!m)
		return CLOCK_NEVER;
	if (exchange_is_udp(p->x))
		return m->record.sent_ns +
		       loss_limit_ns(&p->x->loss, m->size_index);
	return limit_ns ? p->moved_ns + limit_ns : CLOCK_NEVER;
}

/* 1: some were given up. */
static int give_up(struct peer *p, uint64_t now_ns)
{
	int gave_up = 0;

	while (now_ns >= give_up_ns(p)) {
		int error;

		if (!exchange_is_udp(p->x))
			return exchange_lost_peer(p->x, ETIMEDOUT);
		exchange_lose(p->x, outstanding_front(&p->waiting));
		p->unanswered--;
		gave_up = 1;
		error = settle_front(p);
		if (error)
			return error;
	}
	return gave_up;
}

/* A spinning loop asks where a reply is to come; else the last wait knows. */
static bool may_be_read(struct peer *p, uint64_t now_ns)
{
	bool asked = p->x->options->spin ? p->waiting.count > 0 : p->readable;

	return asked || now_ns >= give_up_ns(p);
}

/* One read, of the next peer that has something, so that the sends to others
 * wait for no more. 1: something came. */
static int pull_one(struct open_loop *l, uint64_t now_ns)
{
	for (size_t tried = 0; tried < l->count; tried++) {
		struct peer *p = &l->peers[l->read_next];
		int pulled, gave_up;

		l->read_next = (l->read_next + 1) % l->count;
		if (!may_be_read(p, now_ns))
			continue;
		pulled = exchange_is_udp(p->x) ? pull_datagram(p) :
						 pull_stream(p);
		if (pulled < 0)
			return pulled;
		p->readable = pulled;
		/* What has just come is not late. */
		gave_up = give_up(p, now_ns);
		if (gave_up < 0)
			return gave_up;
		if (pulled || gave_up)
			return 1;
	}
	return 0;
}

/* Until when there is nothing to do for this peer if it stays silent. */
static uint64_t next_ns(struct peer *p)
{
	uint64_t until = give_up_ns(p);

	if (p->pending && !p->blocked && !window_is_full(p) &&
	    p->next.record.intended_ns < until)
		until = p->next.record.intended_ns;
	return until;
}

static void wait_for_change(struct open_loop *l)
{
	uint64_t now = clock_ns(), until = now + wait_max_ns;
	struct timespec left = { 0 };

	for (size_t i = 0; i < l->count; i++) {
		struct peer *p = &l->peers[i];
		uint64_t its = next_ns(p);

		until = its < until ? its : until;
		l->polled[i] = (struct pollfd){
			.fd = p->x->fd,
			.events = p->blocked ? POLLIN | POLLOUT : POLLIN,
		};
	}
	if (until > now)
		left.tv_nsec = (long)(until - now);
	ppoll(l->polled, l->count, &left, NULL);
	for (size_t i = 0; i < l->count; i++)
		l->peers[i].readable = l->polled[i].revents & ~POLLOUT;
}

/* One look at all that can happen. 1: something did. */
static int step(struct open_loop *l)
{
	uint64_t now = clock_ns();
	int pushed = push_all(l, now), pulled, error;

	if (pushed < 0)
		return pushed;
	pulled = pull_one(l, now);
	if (pulled < 0)
		return pulled;
	error = client_upkeep(l->client, now);
	return error ?: pushed | pulled;
}

static bool is_over(const struct open_loop *l)
{
	for (size_t i = 0; i < l->count; i++)
		if (!l->peers[i].ended || l->peers[i].waiting.count)
			return false;
	return true;
}

static int run(struct open_loop *l)
{
	struct client *c = l->client;
	int moved = 1;

	while (moved >= 0 && !*c->stop && !is_over(l)) {
		moved = step(l);
		if (moved)
			continue;
		if (records_kept(&c->records) >= RECORDS_AT_ONCE)
			moved = records_write(&c->records, RECORDS_AT_ONCE,
					      c->failure);
		if (!l->options->spin)
			wait_for_change(l);
	}
	return moved < 0 ? moved : 0;
}

/* Those that were answered behind one that was not still have a record. */
static int settle_rest(struct peer *p)
{
	struct message *m;
	int error = 0;

	while (!error && (m = outstanding_front(&p->waiting))) {
		if (m->settled)
			error = exchange_settle(p->x, m);
		else
			exchange_abandon(p->x, m);
		outstanding_drop_front(&p->waiting);
	}
	return error;
}

static int open_peers(struct open_loop *l)
{
	int error = 0;

	l->count = l->options->peers.count;
	l->peers = calloc(l->count, sizeof(*l->peers));
	l->polled = calloc(l->count, sizeof(*l->polled));
	if (!l->peers || !l->polled)
		error = -ENOMEM;
	for (size_t i = 0; !error && i < l->count; i++) {
		l->peers[i].x = &l->client->exchanges[i];
		error = outstanding_open(&l->peers[i].waiting);
	}
	return error ? client_fail_memory(l->client) : 0;
}

/* Of what could be opened. */
static int close_peers(struct open_loop *l)
{
	int error = 0;

	for (size_t i = 0; l->peers && i < l->count; i++) {
		int settled = settle_rest(&l->peers[i]);

		error = error ? error : settled;
		outstanding_close(&l->peers[i].waiting);
	}
	free(l->peers);
	free(l->polled);
	return error;
}

int open_loop(struct client *c)
{
	struct open_loop l = { .client = c, .options = c->options };
	int error = open_peers(&l), settled;

	if (!error)
		error = run(&l);
	settled = close_peers(&l);
	return error ? error : settled;
}
