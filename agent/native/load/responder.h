/*
 * responder.h - answers requests on one socket.
 *
 * A reply is made anew: kind 2, its own creation time, the request's sequence.
 * Its size is the request's or, with --reply, a fixed one. A full echo carries
 * the request's own payload back, so the client's check covers both
 * directions and none is needed here; where the reply is of another size the
 * request is checked here, after the reply has left.
 */
#ifndef LATPROF_LOAD_RESPONDER_H
#define LATPROF_LOAD_RESPONDER_H

#include <stdatomic.h>

#include "flags.h"

/* Shared by all connections. */
struct responder_counters {
	_Atomic uint64_t connections, messages, bytes;
	_Atomic uint64_t corrupt; /* requests, where they are checked */
	_Atomic uint64_t rejected; /* not a request of this wire */
	_Atomic uint64_t unsent; /* replies that the kernel refused */
};

/* Serve one TCP connection until it ends; does not close it. 0 or -errno. */
int responder_serve_stream(const struct options *options, int fd,
			   struct responder_counters *counters);
/* Serve a UDP socket; returns only on an error of the socket: -errno. */
int responder_serve_datagrams(const struct options *options, int fd,
			      struct responder_counters *counters);

#endif
