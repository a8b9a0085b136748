/*
 * client.c - what a responder may answer to `latprof-load pingpong`.
 *
 * The input is a list of what the network does next: a reply, right or wrong
 * in one field, any bytes, nothing for a while, an error, an end.
 */
#include <errno.h>
#include <string.h>

#include "exchange.h"

static const uint64_t sizes[][3] = {
	{ 18, 64, 1000 }, { 64, 64, 64 }, { 40000, 18, 300 }, { 65507, 18, 20 }
};

static const int errors[] = { EAGAIN,	  EINTR,     ENOBUFS, ECONNREFUSED,
			      ECONNRESET, ETIMEDOUT, ENOMEM,  EMSGSIZE };

/* The request that left last, as the peer knows it. */
static struct {
	uint8_t request[1 << 16];
	size_t bytes;
	bool datagrams;
} peer;

static ssize_t fail_with(uint8_t which)
{
	errno = errors[which % (sizeof(errors) / sizeof(*errors))];
	world.now_ns += (uint64_t)which * 1000000;
	return -1;
}

/* The request sent back, with some byte of it another one, and of any length.
 */
static size_t reply(uint8_t *ret, size_t room)
{
	size_t count = peer.bytes < room ? peer.bytes : room;
	uint8_t change = world_byte(), at = world_byte(), to = world_byte();

	memcpy(ret, peer.request, count);
	if (count)
		ret[0] = KIND_REPLY;
	if (change & 1 && at < count)
		ret[at] = to;
	if (change & 2)
		count = (size_t)world_number(0xffff) % (count + 1);
	if (change & 4) {
		memset(ret + count, 'x', room - count);
		count = room;
	}
	return count;
}

ssize_t world_receive(void *ret, size_t size)
{
	uint8_t act = world_byte();

	MUST(size);
	world.now_ns += 1000;
	if (!world.left) {
		errno = ECONNREFUSED;
		return peer.datagrams ? -1 : 0;
	}
	if (act < 64)
		return fail_with(act);
	if (act < 192)
		return (ssize_t)reply(ret, size);
	act -= 191;
	return (ssize_t)world_bytes(ret, act < size ? act : size);
}

ssize_t world_send(const void *bytes, size_t size)
{
	uint8_t act = world_byte();

	world.now_ns += 1000;
	if (!world.left) {
		errno = ECONNRESET;
		return -1;
	}
	if (act < 16)
		return fail_with(act);
	if (act < 32 && !peer.datagrams)
		size = size / 2 + 1;
	peer.bytes = size < sizeof(peer.request) ? size : sizeof(peer.request);
	memcpy(peer.request, bytes, peer.bytes);
	return (ssize_t)size;
}

static void check(const struct exchange *x, int error)
{
	const struct totals *t = &x->totals;
	const struct counts *m = &t->messages, *h = &t->heartbeats;

	MUST(m->sent == m->received + m->lost + m->unanswered);
	MUST(h->sent == h->received + h->lost + h->unanswered);
	MUST(error || m->sent == schedule_total(&x->schedule));
	MUST(m->corrupt <= m->received && h->corrupt <= h->received);
	MUST(m->received + h->received <= t->replies);
	MUST(t->replies <= m->sent + m->warmup + h->sent + h->warmup);
}

/* More than one message at a time, and more than one peer. */
static void choose_more(struct options *o)
{
	static struct arg_endpoint peers[] = { { "peer", 1 }, { "other", 2 } };

	o->peers = (struct arg_endpoints){ peers, 1 };
	if (world_byte() & 1) {
		o->train_messages = 2 + world_number(3);
		o->train_gap_ns = world_number(0xffff);
	}
	if (!o->interval_ns)
		return;
	o->peers.count = 1 + world_number(1);
	if (o->train_messages)
		return;
	o->max_acks = world_number(3);
	o->heartbeat_interval_ns =
		world_number(1) * (1000 + world_number(0xffff));
	o->heartbeat_bytes = o->heartbeat_interval_ns ? 20 : 0;
}

static void run(const struct options *options)
{
	static const volatile sig_atomic_t never;
	struct failure failure = { 0 };
	struct client c = { .options = options,
			    .stop = &never,
			    .failure = &failure };
	int error;

	MUST(!client_reserve(&c));
	MUST(!client_open(&c));
	error = options->interval_ns || options->train_messages ?
			open_loop(&c) :
			closed_loop(c.exchanges);
	MUST(!error == !failure.text[0]);
	for (size_t i = 0; i < options->peers.count; i++)
		check(&c.exchanges[i], error);
	MUST(!client_close(&c));
	client_release(&c);
}

/* The responder gives no reason: what it may answer is handshake.c's. */
const struct session_reason *session_why_ended(const struct options *options,
					       const char *address,
					       uint64_t port,
					       const struct session_link *link)
{
	MUST(options && address && port <= UINT16_MAX && link);
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct options options = {
		.seed = 1, .rounds = 3, .warmup_rounds = 1, .progress_fd = -1
	};
	uint8_t mode;

	world_begin(input, size);
	mode = world_byte();
	peer.bytes = 0;
	peer.datagrams = mode & 1;
	options.protocol = mode & 1 ? PROTOCOL_UDP : PROTOCOL_TCP;
	options.wire = mode & 2 ? WIRE_CLEAR : WIRE_LATPROF;
	options.interval_ns = mode & 4 ? 1 + world_number(0xffff) : 0;
	options.no_verify = mode & 8;
	options.spin = mode & 16;
	options.timeout_ns = mode & 32 ? 1000000 : 0;
	options.sizes.values = (uint64_t *)sizes[mode >> 6];
	options.sizes.count = 3;
	options.poisson = options.interval_ns % 2;
	if (world_byte() & 1 && options.wire == WIRE_LATPROF)
		options.reply_bytes = 64;
	choose_more(&options);
	run(&options);
	return 0;
}
