/* bulk_channel.c - one channel of a bulk run, at either end. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "big_endian.h"
#include "bulk_channel.h"
#include "bulk_receive.h"
#include "bulk_send.h"
#include "clock.h"
#include "interrupts.h"
#include "pace.h"
#include "tcp_facts.h"

enum { STACK_BYTES = 256 << 10, WAIT_US = 50000 };

/* The peer's answer to each step of the beginning... */
static const uint64_t answer_ns = 10 * NS_PER_SECOND;
/* ... and later, longer than it waits for what may still be on its way. */
static const uint64_t silence_ns = 75 * NS_PER_SECOND;
/* How often it is looked whether a stream moves. */
static const uint64_t look_ns = NS_PER_SECOND;

int bulk_channel_open(struct bulk_channel *c)
{
	struct timeval wait = { .tv_usec = WAIT_US };

	atomic_store(&c->units_to_come, BULK_SENT_UNKNOWN);
	setsockopt(c->control_fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(c->control_fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	return bulk_frames_open(&c->frames, c->control_fd);
}

void bulk_channel_close(struct bulk_channel *c)
{
	bulk_frames_close(&c->frames);
	bulk_sent_close(&c->sent);
	bulk_sent_close(&c->peer_sent);
	bulk_received_close(&c->received);
	bulk_received_close(&c->peer_received);
}

static int send_frame(struct bulk_channel *c, enum bulk_frame_type type,
		      const void *body, size_t size)
{
	return bulk_frames_write(c->control_fd, type, body, size, &c->ended);
}

/* The next frame, which must be of this type. */
static int await(struct bulk_channel *c, enum bulk_frame_type type,
		 uint64_t limit_ns, struct bulk_frame *ret)
{
	uint64_t give_up_ns = clock_ns() + limit_ns;
	int found;

	while (!(found = bulk_frames_next(&c->frames, ret))) {
		if (interrupts || atomic_load(&c->ended))
			return -ECANCELED;
		if (clock_ns() >= give_up_ns)
			return -ETIMEDOUT;
	}
	if (found < 0)
		return found;
	return ret->type == type ? 0 : -EPROTO;
}

int bulk_channel_prepare(struct bulk_channel *c)
{
	uint8_t body[sizeof(c->plan)];
	uint64_t words[BULK_PLAN_WORDS];
	struct bulk_frame ready;
	int error;

	memcpy(words, &c->plan, sizeof(words));
	for (size_t i = 0; i < BULK_PLAN_WORDS; i++)
		put_u64(body + i * sizeof(*words), words[i]);
	error = send_frame(c, BULK_FRAME_PLAN, body, sizeof(body));
	if (!error)
		error = await(c, BULK_FRAME_READY, answer_ns, &ready);
	if (!error && c->transport == PROTOCOL_UDP)
		error = bulk_receive_prepare(c->data_fd, &c->plan);
	return error < 0 ? error : 0;
}

int bulk_channel_go(struct bulk_channel *c)
{
	return send_frame(c, BULK_FRAME_GO, NULL, 0);
}

static int read_plan(struct bulk_channel *c, const struct bulk_frame *frame)
{
	uint64_t words[BULK_PLAN_WORDS];

	if (frame->size != sizeof(words))
		return -EPROTO;
	for (size_t i = 0; i < BULK_PLAN_WORDS; i++)
		words[i] = get_u64(frame->body + i * sizeof(*words));
	memcpy(&c->plan, words, sizeof(words));
	return bulk_plan_is_sound(&c->plan, c->transport) ? 0 : -EINVAL;
}

int bulk_channel_accept(struct bulk_channel *c,
			bool (*is_within)(const struct bulk_plan *plan,
					  const struct terms *terms))
{
	struct bulk_frame frame;
	int error = await(c, BULK_FRAME_PLAN, answer_ns, &frame);

	if (!error)
		error = read_plan(c, &frame);
	if (!error && !is_within(&c->plan, &c->session->terms))
		error = -EINVAL;
	if (!error && c->transport == PROTOCOL_UDP)
		error = bulk_receive_prepare(c->data_fd, &c->plan);
	if (error < 0)
		return error;
	error = send_frame(c, BULK_FRAME_READY, NULL, 0);
	/* The client opens its other channels meanwhile. */
	return error ? error : await(c, BULK_FRAME_GO, silence_ns, &frame);
}

static int report_sent(struct bulk_channel *c)
{
	uint8_t *body = malloc(BULK_TOTALS_BYTES_MAX);
	int error = -ENOMEM;

	if (body)
		error = send_frame(c, BULK_FRAME_SENT, body,
				   bulk_sent_write(&c->sent, body));
	free(body);
	return error;
}

static int report_received(struct bulk_channel *c)
{
	uint8_t *body = malloc(BULK_TOTALS_BYTES_MAX);
	int error = -ENOMEM;

	if (body)
		error = send_frame(c, BULK_FRAME_RESULT, body,
				   bulk_received_write(&c->received, body));
	free(body);
	return error;
}

static void *run_sender(void *argument)
{
	struct bulk_channel *c = argument;
	const struct bulk_send send = {
		.plan = &c->plan,
		.transport = c->transport,
		.fd = c->data_fd,
		.stop = &c->stop,
		.ended = &c->ended,
		.session = c->session,
		.moved = &c->sent_units,
	};

	if (c->session)
		cpu_time_begin(&c->session->cpu);
	c->send_error = bulk_send(&send, &c->sent);
	/* Without an end in the middle of a unit, the peer still hears. */
	if (c->send_error != -ECANCELED && report_sent(c) && !c->send_error)
		c->send_error = -ECONNRESET;
	if (c->session)
		cpu_time_end(&c->session->cpu);
	atomic_store(&c->sender_done, true);
	return NULL;
}

static void *run_receiver(void *argument)
{
	struct bulk_channel *c = argument;
	const struct bulk_receive receive = {
		.plan = &c->plan,
		.fd = c->data_fd,
		.sent = &c->units_to_come,
		.ended = &c->ended,
		.session = c->session,
		.moved = &c->received_units,
	};

	if (c->session)
		cpu_time_begin(&c->session->cpu);
	c->receive_error = bulk_receive_datagrams(&receive, &c->received);
	if (c->session)
		cpu_time_end(&c->session->cpu);
	return NULL;
}

static int start(pthread_t *thread, bool *runs, void *(*run)(void *),
		 struct bulk_channel *c)
{
	pthread_attr_t attributes;
	int error;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	error = pthread_create(thread, &attributes, run, c);
	pthread_attr_destroy(&attributes);
	*runs = !error;
	return -error;
}

static void join(pthread_t thread, bool *runs)
{
	if (*runs)
		pthread_join(thread, NULL);
	*runs = false;
}

static int start_halves(struct bulk_channel *c)
{
	const struct bulk_plan *plan = &c->plan;
	uint64_t now = clock_ns();
	int error = 0;

	c->sends =
		c->client ? bulk_client_sends(plan) : bulk_server_sends(plan);
	c->receives =
		c->client ? bulk_server_sends(plan) : bulk_client_sends(plan);
	c->moved_ns = now;
	c->patience_ns = silence_ns + (uint64_t)pace_of(plan, now).gap_ns;
	if (c->receives && c->transport == PROTOCOL_TCP)
		error = bulk_received_open(&c->received, now, plan->slot_ns);
	else if (c->receives)
		error = start(&c->receiver, &c->receiver_runs, run_receiver, c);
	if (!error && c->sends)
		error = start(&c->sender, &c->sender_runs, run_sender, c);
	return error;
}

static int hear_sent(struct bulk_channel *c, const struct bulk_frame *frame)
{
	int error;

	if (c->peer_has_sent)
		return -EPROTO;
	error = bulk_sent_open(&c->peer_sent, 0, 1) ?:
			bulk_sent_read(&c->peer_sent, frame->body, frame->size);
	if (error)
		return error;
	c->peer_has_sent = true;
	if (c->peer_sent.totals.stopped)
		atomic_store(&c->stop, true);
	atomic_store(&c->units_to_come, c->peer_sent.totals.sent);
	join(c->receiver, &c->receiver_runs);
	return c->receive_error;
}

static int hear_result(struct bulk_channel *c, const struct bulk_frame *frame)
{
	int error;

	if (!c->client || c->peer_has_received)
		return -EPROTO;
	error = bulk_received_open(&c->peer_received, 0, 1) ?:
			bulk_received_read(&c->peer_received, frame->body,
					   frame->size);
	c->peer_has_received = !error;
	return error;
}

static int hear(struct bulk_channel *c, const struct bulk_frame *frame)
{
	if (frame->type == BULK_FRAME_SENT)
		return hear_sent(c, frame);
	return frame->type == BULK_FRAME_RESULT ? hear_result(c, frame) :
						  -EPROTO;
}

/* A client that only receives says with an empty SENT that it has enough. */
static int report_stop(struct bulk_channel *c)
{
	c->reported = true;
	c->sent.totals.stopped = 1;
	c->sent.slots.slot_ns = c->plan.slot_ns;
	return report_sent(c);
}

/* What can be said now that the sender does not write any more. */
static int report_rest(struct bulk_channel *c)
{
	if (c->reported || (c->sends && !atomic_load(&c->sender_done)))
		return 0;
	if (c->client) {
		if (!c->sends)
			return atomic_load(&c->stop) ? report_stop(c) : 0;
		c->reported = true;
		return c->send_error;
	}
	if (!c->receives || !c->peer_has_sent)
		return 0;
	c->reported = true;
	return report_received(c);
}

/* The client has heard all; the responder goes on until the client goes. */
static bool is_over(const struct bulk_channel *c)
{
	return c->client && (!c->sends || c->peer_has_received) &&
	       (!c->receives || c->peer_has_sent);
}

static void take_stream(struct bulk_channel *c)
{
	uint64_t before = c->received.totals.bytes;

	bulk_receive_stream(&c->received, &c->frames);
	atomic_store(&c->received_units, c->received.totals.received);
	if (c->session)
		session_spend(c->session, c->received.totals.bytes - before,
			      &c->ended);
}

/* The responder sees by its session's counters that it is not idle. */
static void note_moved(struct bulk_channel *c, bool heard)
{
	uint64_t units =
		atomic_load(&c->sent_units) + atomic_load(&c->received_units);
	uint64_t more = units - c->units_counted;

	c->units_counted = units;
	if (more || heard)
		c->moved_ns = clock_ns();
	if (!c->session)
		return;
	session_count(&c->session->counters.messages, more);
	session_count(&c->session->counters.bytes, more * c->plan.unit_bytes);
}

/* Nothing has moved for too long. On a slow path one unit may take longer than
 * that, and what waits in the send buffer, too. */
static bool is_silent(struct bulk_channel *c)
{
	uint64_t now = clock_ns(), bytes;

	if (c->transport == PROTOCOL_TCP && now - c->looked_ns >= look_ns) {
		c->looked_ns = now;
		bytes = tcp_moved_bytes(c->control_fd);
		if (bytes != c->stream_bytes)
			c->moved_ns = now;
		c->stream_bytes = bytes;
	}
	return now - c->moved_ns >= c->patience_ns;
}

static int listen_to_peer(struct bulk_channel *c)
{
	struct bulk_frame frame;
	int error = 0;

	while (!error && !is_over(c)) {
		int found = bulk_frames_next(&c->frames, &frame);

		if (c->receives && c->transport == PROTOCOL_TCP)
			take_stream(c);
		note_moved(c, found > 0);
		if (found > 0)
			found = hear(c, &frame);
		if (found == -ECONNRESET && !c->client)
			break;
		error = found ? found : report_rest(c);
		if (!error && atomic_load(&c->ended))
			error = -ECANCELED;
		if (!error && is_silent(c))
			error = -ETIMEDOUT;
	}
	return error;
}

int bulk_channel_run(struct bulk_channel *c)
{
	int error = start_halves(c);

	if (!error)
		error = listen_to_peer(c);
	/* Over TCP the sender may stand in the middle of a unit. */
	atomic_store(&c->stop, true);
	atomic_store(&c->ended, true);
	join(c->sender, &c->sender_runs);
	join(c->receiver, &c->receiver_runs);
	note_moved(c, false);
	return error;
}
