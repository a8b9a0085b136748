/*
 * bulk_channel.h - one channel of a bulk run, at either end.
 *
 *   client                          echo
 *   PLAN                      ->
 *                             <-    READY    its sockets are prepared
 *   GO                        ->             when all channels are ready
 *   units, then SENT         <->             whoever sends, both where both do
 *                             <-    RESULT   where the client sends
 *
 * SENT says how many units there were, so that the receiver knows what is
 * lost when nothing comes any more. A client that wants the end before the
 * plan's says so in its SENT; the other end then stops sending as well.
 *
 * While a channel sends, its sending thread alone writes to the control
 * connection (over TCP the units go there), and the thread that runs the
 * channel alone reads from it.
 */
#ifndef LATPROF_LOAD_BULK_CHANNEL_H
#define LATPROF_LOAD_BULK_CHANNEL_H

#include <pthread.h>

#include "bulk_frames.h"
#include "bulk_plan.h"
#include "bulk_totals.h"
#include "session.h"

struct bulk_channel {
	struct bulk_plan plan;
	enum protocol transport;
	bool client; /* else the responder */
	int control_fd;
	int data_fd; /* TCP: the same */
	struct session *session; /* the responder's; NULL at the client */

	atomic_bool stop; /* send no more: what was sent is still counted */
	atomic_bool ended; /* wait for nothing any more */
	_Atomic uint64_t sent_units, received_units; /* until now */

	/* What was measured. Own ones are there once the channel has run; the
	 * peer's where it has said them. */
	bool sends, receives, peer_has_sent, peer_has_received;
	struct bulk_sent sent, peer_sent;
	struct bulk_received received, peer_received;

	struct bulk_frames frames;
	pthread_t sender, receiver;
	bool sender_runs, receiver_runs; /* and must be joined */
	atomic_bool sender_done;
	_Atomic uint64_t units_to_come; /* as the peer says in SENT */
	bool reported; /* this end has sent all of its report */
	uint64_t units_counted; /* of those that went or came */
	uint64_t moved_ns; /* when one last did, or something was said */
	uint64_t looked_ns; /* when it was last seen how far the stream is... */
	uint64_t stream_bytes; /* ... which is units in part, too */
	uint64_t patience_ns; /* with a channel in which nothing moves */
	int send_error, receive_error; /* -errno */
};

/* The sockets stay the caller's. 0 or -errno; close it in any case. */
int bulk_channel_open(struct bulk_channel *c);
void bulk_channel_close(struct bulk_channel *c);
/* Client: the responder has prepared its end. -EPROTO, -ETIMEDOUT, -ECANCELED
 * after a signal, ... */
int bulk_channel_prepare(struct bulk_channel *c);
/* Client: the responder may begin, and so shall we. */
int bulk_channel_go(struct bulk_channel *c);
/* The responder: until the client says go. -EINVAL: an unsound plan, or one
 * that is not within the session's terms. */
int bulk_channel_accept(struct bulk_channel *c,
			bool (*is_within)(const struct bulk_plan *plan,
					  const struct terms *terms));
/* Send and receive what the plan says, until both ends reported. 0 or -errno:
 * what was counted until then is there. */
int bulk_channel_run(struct bulk_channel *c);

#endif
