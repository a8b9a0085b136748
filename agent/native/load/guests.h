/*
 * guests.h - clients of the responder, from their connection to the end of
 * their sessions: who is let in, who serves them, who has to go.
 *
 * All functions are the main thread's.
 */
#ifndef LATPROF_LOAD_GUESTS_H
#define LATPROF_LOAD_GUESTS_H

#include "arrival.h"
#include "echo.h"

enum {
	ARRIVALS_MAX = 64, /* guests without a session */
	WATCH_MS = 1000, /* how often it is looked whose time is over */
};

/* A client, from its connection to the end of its session. */
struct guest {
	struct guest *next;
	struct echo *echo;
	struct host *host; /* NULL: the datagrams of the clear wire */
	struct session session;
	struct arrival arrival;
	const struct listener *listener;
	struct sockaddr_in6 peer; /* of the control connection */
	uint16_t data_port; /* the peer's, of its UDP socket; network order */
	bool data_came; /* UDP: before ARRIVAL_BEGIN was over */
	bool running; /* a thread serves it */
	uint64_t memory_bytes; /* what it was admitted with */
	uint64_t cpu_ns, looked_ns; /* CPU time: of all; of the last look */
	uint64_t since_ns; /* arrived; from `running` on: began */
	uint64_t moved, moved_ns; /* how far it was, and since when */
	_Atomic bool ended; /* the thread's last word */
};

/* A new one, by its connection and from where that is; -1 and NULL: it has
 * none. NULL: out of memory. */
struct guest *guest_add(struct echo *e, int control,
			const struct sockaddr_in6 *peer);
/* No thread serves it, or that has ended. Closes its sockets. */
void guest_remove(struct echo *e, struct guest *g);
/* What decides on its terms, and the limits that it hears of. */
struct admission guest_admission(struct guest *g);
/* From ACCEPT on it takes its share of sessions and of memory. */
void guest_enter_share(struct echo *e, struct guest *g);
/* Its session begins on the terms of its arrival, or it is gone. */
void guest_begin(struct echo *e, struct guest *g);
/* The same on those of the clear wire, which asks for nothing. */
void guest_begin_clear(struct echo *e, struct guest *g,
		       enum protocol transport);
/* The same for a connection, where there may be one more session. */
void guest_admit_clear(struct echo *e, struct guest *g);
/* Its thread sees the end of its sockets; OK: the client wants it so. */
void guest_end(struct guest *g, enum handshake_status why);
/* Count one that goes before its session; `error` is arrival_take()'s. */
void guest_note_unfinished(struct echo *e, const struct guest *g, int error);
/* The oldest of those that are not served yet makes room; one that holds a
 * share, only where all do. */
void guests_evict_oldest(struct echo *e);
/* Whose time is over goes. */
void guests_watch(struct echo *e);
/* Those whose threads have ended go. */
void guests_reap(struct echo *e);

#endif
