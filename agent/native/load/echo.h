/*
 * echo.h - the responder as a program: who comes in, who is served, what all
 * of them together may take, and how it ends.
 */
#ifndef LATPROF_LOAD_ECHO_H
#define LATPROF_LOAD_ECHO_H

#include <poll.h>

#include "hosts.h"
#include "session.h"

enum { FAREWELLS_MAX = 256 };

/* Of all sessions, those that are over included. */
struct echo_counters {
	uint64_t connections, sessions;
	uint64_t messages, bytes, corrupt, rejected, unsent;
	/* Refused or ended by us, and why: */
	uint64_t refused[STATUS_COUNT];
	uint64_t strangers; /* connections that said no HELLO */
	uint64_t unfinished; /* handshakes that ended before a session */
	uint64_t crowded_out; /* before a session, to make room */
	uint64_t ended[STATUS_COUNT]; /* sessions */
	uint64_t stray_datagrams; /* of no session: not answered */
};

struct listener {
	char address[ADDRESS_BYTES];
	int stream, datagrams;
};

struct guest;

/* A session that we ended, and why: whoever had it may ask. */
struct farewell {
	uint8_t token[TOKEN_BYTES];
	enum handshake_status why;
};

struct echo {
	const struct options *options;
	struct listener listeners[ADDRESSES_MAX];
	size_t listener_count;
	uint16_t port; /* of all listeners, TCP and UDP */
	int signals; /* a signalfd of SIGINT and SIGTERM */
	int ended; /* an eventfd: some session is over */
	struct rate rate;
	struct guest *guests; /* the newest first */
	size_t guest_count, arriving_count;
	struct host *hosts; /* of guests, and who owes CPU time */
	struct share share; /* of all sessions */
	struct farewell farewells[FAREWELLS_MAX]; /* a ring */
	uint64_t farewell_count;
	struct pollfd *events;
	struct guest **event_guests; /* whom an event is about; NULL: none */
	uint64_t watched_ns; /* when it was last seen whose time is over */
	bool over;
	struct echo_counters counters;
};

/* Listen. From now on SIGINT and SIGTERM wait for echo_run(). 0 or -errno
 * with a line. */
int echo_open(struct echo *e, const struct options *options,
	      struct failure *failure);
/* Serve until a signal or, with --until-eof, the end of stdin. Sessions still
 * open then end with the process. 0 or -errno with a line. */
int echo_run(struct echo *e, struct failure *failure);
/* What was done until now, by open sessions too. */
struct echo_counters echo_counters(const struct echo *e);

#endif
