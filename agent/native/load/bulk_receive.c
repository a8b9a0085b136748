/*
 * bulk_receive.c - the receiving half of a bulk channel.
 *
 * With UDP_GRO one message may be many datagrams that travelled as one packet:
 * the kernel says how long each is (the last may be shorter). What a full
 * receive buffer cost stands with the next datagram (SO_RXQ_OVFL), so that a
 * gap in the numbers is known to be the socket's, or the path's.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <linux/sock_diag.h>

#include "big_endian.h"
#include "bulk_receive.h"
#include "clock.h"
#include "pages.h"

enum {
	BATCH_TRAINS = 16, /* of up to 64 KiB each */
	TRAIN_BYTES = 1 << 16,
	CONTROL_BYTES = CMSG_SPACE(sizeof(uint32_t)) + CMSG_SPACE(sizeof(int)),
	WAIT_US = 20000, /* how often a waiting receiver looks around */
};

/* After the peer's last word, so long without a datagram is the end, or longer
 * where they came with gaps... */
static const uint64_t quiet_ns = 300 * NS_PER_MS;
enum { QUIET_GAPS = 4 };
/* ... and so long in any case. */
static const uint64_t patience_ns = 60 * NS_PER_SECOND;

struct receiver {
	const struct bulk_receive *given;
	struct bulk_received *counted;
	struct sequence sequence;
	enum receive_way way;
	unsigned int batch;
	size_t room; /* for each message of a batch */
	uint8_t *memory;
	uint32_t drops; /* as the kernel last reported them, mod 2^32 */
	uint64_t peer_done_ns; /* when its count was seen; 0: not yet */
	uint64_t gap_ns; /* the longest between two calls that brought some */
	struct mmsghdr messages[BULK_BATCH_UNITS];
	struct iovec vectors[BULK_BATCH_UNITS];
	uint8_t controls[BULK_BATCH_UNITS][CONTROL_BYTES]
		__attribute__((aligned(sizeof(long))));
};

static int get(int fd, int level, int name)
{
	int value = 0;
	socklen_t length = sizeof(value);

	return getsockopt(fd, level, name, &value, &length) ? -errno : value;
}

/* What a socket has that nobody has changed. */
static int usual_buffer(int like)
{
	int fd = socket(get(like, SOL_SOCKET, SO_DOMAIN),
			SOCK_DGRAM | SOCK_CLOEXEC, 0);
	/* The kernel doubles what it is asked for, and returns the double. */
	int bytes = fd < 0 ? 0 : get(fd, SOL_SOCKET, SO_RCVBUF) / 2;

	if (fd >= 0)
		close(fd);
	return bytes;
}

/* 0: the system's own. The ping-pong's sockets come with more. */
static void set_buffer(int fd, int bytes)
{
	if (!bytes)
		bytes = usual_buffer(fd);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

static bool wants_gro(const struct bulk_plan *plan)
{
	return plan->receive_way == RECEIVE_WAY_AUTO ||
	       plan->receive_way == RECEIVE_WAY_GRO;
}

int bulk_receive_prepare(int fd, const struct bulk_plan *plan)
{
	int on = 1;

	/* Before anything comes: what is queued without is cut up already. */
	if (wants_gro(plan) &&
	    setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) &&
	    plan->receive_way == RECEIVE_WAY_GRO)
		return -errno;
	set_buffer(fd, (int)plan->receive_buffer_bytes);
	setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof(on));
	return get(fd, SOL_SOCKET, SO_RCVBUF);
}

/* All that the kernel ever dropped at this socket. */
static uint32_t socket_drops(int fd)
{
	uint32_t info[SK_MEMINFO_VARS] = { 0 };
	socklen_t length = sizeof(info);

	getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &length);
	return info[SK_MEMINFO_DROPS];
}

static void use_way(struct receiver *r, enum receive_way way)
{
	bool gro = get(r->given->fd, IPPROTO_UDP, UDP_GRO) > 0;

	if (way == RECEIVE_WAY_AUTO)
		way = gro ? RECEIVE_WAY_GRO : RECEIVE_WAY_MMSG;
	r->way = way;
	r->batch = way == RECEIVE_WAY_RECV ? 1 :
		   way == RECEIVE_WAY_GRO  ? BATCH_TRAINS :
					     BULK_BATCH_UNITS;
	/* A byte more, so that a datagram which is too long shows. */
	r->room = way == RECEIVE_WAY_GRO ? TRAIN_BYTES :
					   r->given->plan->unit_bytes + 1;
}

static int prepare(struct receiver *r)
{
	struct timeval wait = { .tv_usec = WAIT_US };

	use_way(r, (enum receive_way)r->given->plan->receive_way);
	setsockopt(r->given->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	r->memory = pages_alloc(r->batch * r->room);
	if (!r->memory)
		return -ENOMEM;
	for (size_t i = 0; i < r->batch; i++) {
		r->vectors[i] =
			(struct iovec){ r->memory + i * r->room, r->room };
		r->messages[i].msg_hdr = (struct msghdr){
			.msg_iov = &r->vectors[i],
			.msg_iovlen = 1,
			.msg_control = r->controls[i],
			.msg_controllen = CONTROL_BYTES,
		};
	}
	return sequence_open(&r->sequence);
}

/* What the kernel says of a message: the length of each datagram in it, and
 * how many packets the socket had dropped before. */
static size_t read_controls(struct receiver *r, struct msghdr *message)
{
	size_t segment = SIZE_MAX;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c;
	     c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL)
			memcpy(&r->drops, CMSG_DATA(c), sizeof(r->drops));
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
			int bytes;

			memcpy(&bytes, CMSG_DATA(c), sizeof(bytes));
			segment = (size_t)bytes;
		}
	}
	return segment;
}

static bool is_ours(const struct receiver *r, const uint8_t *datagram,
		    size_t size)
{
	const struct bulk_plan *plan = r->given->plan;

	/* No sender gets so far that the first bit of a number is set. */
	return size == plan->unit_bytes && get_u32(datagram) == BULK_MAGIC &&
	       get_u32(datagram + BULK_CHANNEL_AT) == plan->channel &&
	       !(datagram[BULK_NUMBER_AT] & 0x80);
}

static uint64_t take_datagram(struct receiver *r, const uint8_t *datagram,
			      size_t size, uint64_t now_ns)
{
	uint64_t before = r->sequence.received;

	if (!is_ours(r, datagram, size)) {
		r->counted->totals.strays++;
		return 0;
	}
	sequence_add(&r->sequence, get_u64(datagram + BULK_NUMBER_AT), now_ns,
		     r->drops);
	return r->sequence.received - before;
}

static void take_message(struct receiver *r, struct mmsghdr *message,
			 uint64_t now_ns)
{
	const uint8_t *at = message->msg_hdr.msg_iov->iov_base;
	size_t left = message->msg_len, arrived = 0;
	size_t segment = read_controls(r, &message->msg_hdr);

	message->msg_hdr.msg_controllen = CONTROL_BYTES;
	if (left / segment > r->sequence.datagrams_per_drop)
		r->sequence.datagrams_per_drop = left / segment;
	do {
		size_t size = left < segment ? left : segment;

		arrived += take_datagram(r, at, size, now_ns);
		at += size;
		left -= size;
	} while (left);
	if (!arrived)
		return;
	if (!r->counted->totals.first_ns)
		r->counted->totals.first_ns = r->counted->totals.last_ns =
			now_ns;
	if (now_ns - r->counted->totals.last_ns > r->gap_ns)
		r->gap_ns = now_ns - r->counted->totals.last_ns;
	r->counted->totals.last_ns = now_ns;
	slots_add(&r->counted->slots, now_ns,
		  arrived * r->given->plan->unit_bytes);
}

/* One call: how many messages, or -errno. */
static int receive(struct receiver *r)
{
	int fd = r->given->fd, n;

	if (r->way == RECEIVE_WAY_RECV) {
		ssize_t bytes = recvmsg(fd, &r->messages[0].msg_hdr, 0);

		r->messages[0].msg_len = (unsigned int)bytes;
		n = bytes < 0 ? -1 : 1;
	} else {
		n = recvmmsg(fd, r->messages, r->batch, MSG_WAITFORONE, NULL);
	}
	return n < 0 ? -errno : n;
}

static uint64_t quiet_limit_ns(const struct receiver *r)
{
	uint64_t gaps_ns = QUIET_GAPS * r->gap_ns;

	return gaps_ns > quiet_ns ? gaps_ns : quiet_ns;
}

/* `idle`: the last call waited in vain. It began after `since_ns`, so what was
 * there then has come. A duplicate may follow the last one. */
static bool is_over(struct receiver *r, bool idle, uint64_t since_ns)
{
	uint64_t sent =
		atomic_load_explicit(r->given->sent, memory_order_acquire);
	uint64_t heard_ns = r->counted->totals.last_ns;

	if (atomic_load_explicit(r->given->ended, memory_order_relaxed))
		return true;
	if (sent == BULK_SENT_UNKNOWN)
		return false;
	if (!r->peer_done_ns)
		r->peer_done_ns = since_ns;
	if (heard_ns < r->peer_done_ns)
		heard_ns = r->peer_done_ns;
	return (idle && r->sequence.received >= sent) ||
	       since_ns >= heard_ns + quiet_limit_ns(r) ||
	       since_ns >= r->peer_done_ns + patience_ns;
}

static void note_progress(struct receiver *r)
{
	uint64_t before =
		atomic_load_explicit(r->given->moved, memory_order_relaxed);
	uint64_t came = r->sequence.received - before;

	atomic_store_explicit(r->given->moved, before + came,
			      memory_order_relaxed);
	if (came && r->given->session)
		session_spend(r->given->session,
			      came * r->given->plan->unit_bytes,
			      r->given->ended);
}

static int receive_all(struct receiver *r)
{
	uint64_t since, now = clock_ns();

	for (;;) {
		int n = receive(r);

		since = now;
		now = clock_ns();

		/* The peer's socket has gone: its connection will end. */
		if (n < 0 && n != -EAGAIN && n != -EINTR && n != -ECONNREFUSED)
			return n;
		if (n > 0)
			r->counted->totals.calls++;
		for (int i = 0; i < n; i++)
			take_message(r, &r->messages[i], now);
		note_progress(r);
		if (is_over(r, n <= 0, since))
			return 0;
	}
}

static void finish(struct receiver *r)
{
	const struct sequence *a = &r->sequence;
	struct bulk_received *c = r->counted;
	uint64_t sent = atomic_load(r->given->sent);

	c->totals.socket_drops = socket_drops(r->given->fd);
	sequence_end(&r->sequence, sent == BULK_SENT_UNKNOWN ? 0 : sent,
		     clock_ns(), c->totals.socket_drops);
	c->totals.way = r->way;
	c->totals.received = a->received;
	c->totals.bytes = a->received * r->given->plan->unit_bytes;
	c->totals.lost = a->lost;
	c->totals.lost_in_socket = a->in_socket;
	c->totals.loss_runs = a->run_count;
	c->totals.duplicates = a->duplicates;
	c->totals.reordered = a->reordered;
	c->totals.extent_max = a->extent_max;
	c->totals.extent_sum = a->extent_sum;
	c->totals.stale = a->stale;
	memcpy(c->lengths, a->lengths, sizeof(c->lengths));
	memcpy(c->runs, a->runs, a->runs_kept * sizeof(*a->runs));
	c->runs_kept = a->runs_kept;
}

int bulk_receive_datagrams(const struct bulk_receive *given,
			   struct bulk_received *ret)
{
	struct receiver *r = calloc(1, sizeof(*r));
	int error = bulk_received_open(ret, clock_ns(), given->plan->slot_ns);

	if (!r || error) {
		free(r);
		return -ENOMEM;
	}
	r->given = given;
	r->counted = ret;
	error = prepare(r);
	if (!error) {
		error = receive_all(r);
		finish(r);
	}
	ret->totals.receive_buffer_bytes =
		(uint64_t)get(given->fd, SOL_SOCKET, SO_RCVBUF);
	sequence_close(&r->sequence);
	free(r->memory);
	free(r);
	return error;
}

void bulk_receive_stream(struct bulk_received *ret, const struct bulk_frames *f)
{
	uint64_t now = clock_ns();

	if (f->data_bytes == ret->totals.bytes)
		return;
	if (!ret->totals.first_ns)
		ret->totals.first_ns = now;
	ret->totals.last_ns = now;
	slots_add(&ret->slots, now, f->data_bytes - ret->totals.bytes);
	ret->totals.bytes = f->data_bytes;
	ret->totals.received = f->data_frames;
	ret->totals.calls = f->calls;
}
