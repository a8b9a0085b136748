/*
 * session.h - what a client and `latprof-load echo` do together once they
 * have agreed: a control connection, a data socket, and who serves it.
 *
 * The control connection is that of the handshake (handshake.h). Over TCP the
 * data follow on it; over UDP they have a socket of their own, connected to
 * the client, on the responder's one port. The control connection lives as
 * long as the session: its end is the session's.
 *
 * A workload that is to be served needs a value and a name in workload.[ch],
 * a `serve` function, and a row in services.c.
 */
#ifndef LATPROF_LOAD_SESSION_H
#define LATPROF_LOAD_SESSION_H

#include <stdatomic.h>

#include "cpu_time.h"
#include "handshake.h"
#include "rate.h"

/* What a session did; only its own thread writes them, anyone may read. Over
 * UDP a session in which `messages` stands still is idle. */
struct session_counters {
	_Atomic uint64_t messages, bytes; /* that came */
	_Atomic uint64_t corrupt; /* requests, where they are checked */
	_Atomic uint64_t rejected; /* not what this session is about */
	_Atomic uint64_t unsent; /* datagrams that the kernel refused */
};

/* The responder's side of one session. */
struct session {
	int control;
	int data; /* UDP; over TCP it is the control connection */
	bool connected; /* data leads to the client alone; not in clear UDP */
	enum wire wire;
	struct terms terms; /* within the limits */
	struct limits limits;
	struct rate *rate; /* of all sessions together */
	int lender; /* takes who asks for the recording; -1: nobody does */
	struct session_counters counters;
	struct cpu_time cpu; /* of its threads */
	_Atomic bool stop; /* it is to end; both sockets are shut down then */
};

struct service {
	enum workload workload;
	/* Refuse terms that this workload cannot serve; NULL: all are good. */
	bool (*allows)(const struct terms *terms);
	/* What a session takes beside its messages; NULL: nothing. */
	uint64_t (*memory_bytes)(const struct terms *terms);
	/* Serve until the peer ends or session->stop. The sockets block, and
	 * belong to the caller. 0 or -errno. */
	int (*serve)(struct session *session);
};

extern const struct service services[];
extern const size_t service_count;
/* NULL: there is none. */
const struct service *service_find(enum workload workload);

/* One writer, so no locked instruction is needed. */
static inline void session_count(_Atomic uint64_t *counter, uint64_t amount)
{
	uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, before + amount, memory_order_relaxed);
}

static inline bool session_is_stopped(const struct session *session)
{
	return atomic_load_explicit(&session->stop, memory_order_relaxed);
}

/* A share of the rate that is asked for at once, so that one long message does
 * not hold up the short ones of others. */
enum { SESSION_SHARE_BYTES = 1 << 16 };

/* Wait until so many bytes may be answered (or taken in, where that is the
 * work). Returns at once where no rate is set. false: before it could be, the
 * session, or *stop where that is given, was to end. */
bool session_spend(struct session *session, uint64_t bytes,
		   const atomic_bool *stop);

/* Frames on the control connection of a UDP session: u8 type, u32 length,
 * body. The values are on the wire. */
enum frame_type { FRAME_BEGIN = 1 };
enum { FRAME_HEADER_BYTES = 5 };

/* 0 or -errno. */
int frame_send(int control, enum frame_type type, const void *body,
	       uint32_t size);

/* The client's side. */
struct session_link {
	int control; /* -1: none, in the clear wire */
	int data; /* the one to send on; over TCP the control connection */
	struct limits limits;
	/* What the handshake took of each direction of the data's flow: bytes
	 * over TCP, datagrams over UDP. See records.h. */
	uint64_t sent_before, received_before;
	uint8_t token[TOKEN_BYTES]; /* the session's name; 0: none */
};

/* Connect to the responder at address and port, agree on the terms, and open
 * the data socket; options give wire, secret, and how sockets are set. In the
 * clear wire there is nothing to agree on. 0 or -errno with a line, -ECANCELED
 * where a signal came meanwhile (interrupts.h). */
int session_open(const struct options *options, const char *address,
		 uint64_t port, const struct terms *terms,
		 struct session_link *ret, struct failure *failure);
void session_close(struct session_link *link);
/* The lower of two bounds on bytes per second, of which 0 is none. */
uint64_t session_lower_rate(uint64_t a, uint64_t b);

/* Why a responder ended or refused something, and what to do. */
struct session_reason {
	const char *why, *advice;
};
/* Ask the responder, which has closed this session. NULL: it does not say. */
const struct session_reason *session_why_ended(const struct options *options,
					       const char *address,
					       uint64_t port,
					       const struct session_link *link);

#endif
