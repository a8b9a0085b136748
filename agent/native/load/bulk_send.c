/*
 * bulk_send.c - the sending half of a bulk channel.
 *
 * Units lie side by side in memory, so that one call sends many: sendmmsg()
 * takes a list of them, and with UDP_SEGMENT the kernel carries them as one
 * long packet through its stack and cuts that where it must.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "big_endian.h"
#include "bulk_frames.h"
#include "bulk_send.h"
#include "clock.h"
#include "pace.h"
#include "pages.h"
#include "tcp_facts.h"

enum { WAIT_MS = 50 }; /* how often a waiting sender looks whether to stop */

struct sender {
	const struct bulk_send *given;
	struct bulk_sent *counted;
	struct pace pace;
	enum send_way way;
	uint64_t batch; /* units that a call takes at most */
	uint64_t paid; /* of the rate, in bytes that have not left yet */
	uint8_t *units;
	struct mmsghdr messages[BULK_BATCH_UNITS];
	struct iovec vectors[BULK_BATCH_UNITS];
};

static uint8_t *unit_at(const struct sender *s, uint64_t i)
{
	return s->units + i * s->given->plan->unit_bytes;
}

static bool is_rated(const struct sender *s)
{
	return s->given->session && s->given->session->rate->bytes_per_second;
}

/* What is paid for together leaves together. */
static uint64_t affordable(const struct sender *s, uint64_t units)
{
	uint64_t most = SESSION_SHARE_BYTES / s->given->plan->unit_bytes;

	if (!is_rated(s))
		return units;
	most = most ? most : 1;
	return units < most ? units : most;
}

/* Of datagrams that UDP_SEGMENT cuts; 0: none is cut. 0 or -errno. */
static int set_segment(const struct sender *s, int bytes)
{
	return setsockopt(s->given->fd, IPPROTO_UDP, UDP_SEGMENT, &bytes,
			  sizeof(bytes)) ?
		       -errno :
		       0;
}

static void use_way(struct sender *s, enum send_way way)
{
	uint64_t fit = DATAGRAM_BYTES_MAX / s->given->plan->unit_bytes;

	s->way = way;
	s->batch = way == SEND_WAY_SEND ? 1 : BULK_BATCH_UNITS;
	if (way == SEND_WAY_GSO && fit < BULK_BATCH_UNITS)
		s->batch = fit;
	s->batch = affordable(s, s->batch);
}

/* A packet that holds one datagram saves nothing. */
static enum send_way best_way(const struct bulk_plan *plan)
{
	return plan->unit_bytes <= DATAGRAM_BYTES_MAX / 2 ? SEND_WAY_GSO :
							    SEND_WAY_MMSG;
}

/* A kernel without UDP_SEGMENT sends another way, where that is left to it. */
static int choose_way(struct sender *s)
{
	const struct bulk_plan *plan = s->given->plan;
	enum send_way way = plan->send_way == SEND_WAY_AUTO ? best_way(plan) :
							      plan->send_way;
	int error = 0;

	if (way == SEND_WAY_GSO)
		error = set_segment(s, (int)plan->unit_bytes);
	if (error && plan->send_way != SEND_WAY_AUTO)
		return error;
	use_way(s, error ? SEND_WAY_MMSG : way);
	return 0;
}

static int prepare_datagrams(struct sender *s)
{
	const struct bulk_plan *plan = s->given->plan;

	s->units = pages_alloc(BULK_BATCH_UNITS * plan->unit_bytes);
	if (!s->units)
		return -ENOMEM;
	memset(s->units, 0, BULK_BATCH_UNITS * plan->unit_bytes);
	for (size_t i = 0; i < BULK_BATCH_UNITS; i++) {
		put_u32(unit_at(s, i), BULK_MAGIC);
		put_u32(unit_at(s, i) + BULK_CHANNEL_AT,
			(uint32_t)plan->channel);
		s->vectors[i] =
			(struct iovec){ unit_at(s, i), plan->unit_bytes };
		s->messages[i].msg_hdr.msg_iov = &s->vectors[i];
		s->messages[i].msg_hdr.msg_iovlen = 1;
	}
	return choose_way(s);
}

/* How many units left, or -errno. */
static int send_units(struct sender *s, uint64_t count)
{
	int fd = s->given->fd, flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	ssize_t n;

	if (s->way == SEND_WAY_MMSG)
		n = sendmmsg(fd, s->messages, (unsigned int)count, flags);
	else
		n = send(fd, s->units, count * s->given->plan->unit_bytes,
			 flags);
	if (n < 0)
		return -errno;
	return s->way == SEND_WAY_MMSG ? (int)n : (int)count;
}

static int send_datagrams(struct sender *s, uint64_t count)
{
	uint64_t now = clock_ns();

	for (uint64_t i = 0; i < count; i++) {
		put_u64(unit_at(s, i) + BULK_NUMBER_AT,
			s->counted->totals.sent + i);
		put_u64(unit_at(s, i) + BULK_SENT_AT, now);
	}
	return send_units(s, count);
}

static int prepare_stream(struct sender *s)
{
	uint64_t size = s->given->plan->unit_bytes;

	s->batch = 1;
	s->units = pages_alloc(size);
	if (!s->units)
		return -ENOMEM;
	memset(s->units, 0, size);
	bulk_frames_write_header(s->units, BULK_FRAME_DATA,
				 size - FRAME_HEADER_BYTES);
	return 0;
}

static int send_frame(struct sender *s)
{
	int error = bulk_frames_write_bytes(
		s->given->fd, s->units, s->given->plan->unit_bytes,
		s->given->ended, &s->counted->totals.would_block);

	return error ? error : 1;
}

static void wait_for_room(const struct sender *s)
{
	struct pollfd room = { .fd = s->given->fd, .events = POLLOUT };

	poll(&room, 1, WAIT_MS);
}

/* 0: try again. */
static int bear_failure(struct sender *s, int error)
{
	switch (error) {
	case -EAGAIN:
		s->counted->totals.would_block++;
		wait_for_room(s);
		return 0;
	case -ENOBUFS:
	case -ENOMEM:
		s->counted->totals.no_buffers++;
		wait_for_room(s);
		return 0;
	case -EINTR:
	/* Its peer's socket has gone: the control connection will end. */
	case -ECONNREFUSED:
		return 0;
	/* The path does without checksum offload, or units are longer than
	 * its MTU: what the kernel does not carry as one packet. */
	case -EIO:
	case -EINVAL:
	case -EMSGSIZE:
		if (s->way == SEND_WAY_GSO &&
		    s->given->plan->send_way == SEND_WAY_AUTO) {
			set_segment(s, 0);
			use_way(s, SEND_WAY_MMSG);
			return 0;
		}
		return error;
	default:
		return error;
	}
}

static void note_sent(struct sender *s, uint64_t count, uint64_t before_ns)
{
	uint64_t bytes = count * s->given->plan->unit_bytes;

	if (!s->counted->totals.sent)
		s->counted->totals.first_ns = before_ns;
	s->counted->totals.last_ns = clock_ns();
	s->counted->totals.sent += count;
	s->counted->totals.bytes += bytes;
	s->counted->totals.calls++;
	slots_add(&s->counted->slots, s->counted->totals.last_ns, bytes);
	atomic_store_explicit(s->given->moved, s->counted->totals.sent,
			      memory_order_relaxed);
	s->paid -= bytes < s->paid ? bytes : s->paid;
	/* When more is due at once: a receiver that waits for this CPU would
	 * not run before our slice is over, and its buffer is full long before.
	 */
	if (pace_due(&s->pace, s->counted->totals.sent,
		     s->counted->totals.last_ns))
		sched_yield();
}

static void wait_until_due(const struct sender *s, uint64_t now_ns)
{
	uint64_t due_ns = pace_due_ns(&s->pace, s->counted->totals.sent);
	uint64_t most_ns = now_ns + WAIT_MS * NS_PER_MS;
	uint64_t until_ns = due_ns < most_ns ? due_ns : most_ns;
	struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_SECOND),
		.tv_nsec = (long)(until_ns % NS_PER_SECOND),
	};

	if (!s->given->plan->spin)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* Nothing leaves before it is due and paid for; what the kernel had no room
 * for is paid. true: look again, for it took time. */
static bool wait_for_turn(struct sender *s, uint64_t due, uint64_t now_ns)
{
	uint64_t cost = due * s->given->plan->unit_bytes;

	if (!due) {
		wait_until_due(s, now_ns);
		return true;
	}
	if (!is_rated(s) || cost <= s->paid)
		return false;
	if (session_spend(s->given->session, cost - s->paid, s->given->stop))
		s->paid = cost;
	return true;
}

static bool is_to_stop(const struct sender *s)
{
	return atomic_load_explicit(s->given->stop, memory_order_relaxed) ||
	       (s->given->session && session_is_stopped(s->given->session));
}

static int send_all(struct sender *s)
{
	bool udp = s->given->transport == PROTOCOL_UDP;
	uint64_t now = s->pace.start_ns;
	int error = 0;

	while (!error &&
	       !pace_is_over(&s->pace, s->counted->totals.sent, now)) {
		uint64_t due = pace_due(&s->pace, s->counted->totals.sent, now);
		int n;

		due = due < s->batch ? due : s->batch;
		if (is_to_stop(s)) {
			s->counted->totals.stopped = 1;
			break;
		}
		if (wait_for_turn(s, due, now)) {
			now = clock_ns();
			continue;
		}
		n = udp ? send_datagrams(s, due) : send_frame(s);
		if (n > 0)
			note_sent(s, (uint64_t)n, now);
		else
			error = bear_failure(s, n);
		now = n > 0 ? s->counted->totals.last_ns : clock_ns();
	}
	return error;
}

int bulk_send(const struct bulk_send *given, struct bulk_sent *ret)
{
	struct sender s = { .given = given, .counted = ret };
	bool udp = given->transport == PROTOCOL_UDP;
	uint64_t start_ns = clock_ns();
	int error = bulk_sent_open(ret, start_ns, given->plan->slot_ns);

	if (!error)
		error = udp ? prepare_datagrams(&s) : prepare_stream(&s);
	if (!error) {
		s.pace = pace_of(given->plan, start_ns);
		error = send_all(&s);
	}
	if (udp)
		ret->totals.way = s.way;
	else
		tcp_facts_read(given->fd, ret);
	ret->totals.error = (uint64_t)-error;
	free(s.units);
	return error;
}
