/*
 * responder.h - the service `pingpong`: answers requests of one session.
 *
 * A reply is made anew: kind 2, its own creation time, the request's sequence.
 * Its size is the request's or, where the client asked for it, a fixed one. A
 * full echo carries the request's own payload back, so the client's check
 * covers both directions and none is needed here; where the reply is of
 * another size the request is checked here, after the reply has left.
 *
 * A client may ask for a busy reader: after each reply it computes, and only
 * then reads the next message, which has waited in the socket meanwhile.
 */
#ifndef LATPROF_LOAD_RESPONDER_H
#define LATPROF_LOAD_RESPONDER_H

#include "session.h"

/* terms.own of this workload: work after each answer, in ns. */
enum { PINGPONG_TERM_BUSY };

bool responder_allows(const struct terms *terms);
/* What a session takes beside its messages: what its socket may hold. */
uint64_t responder_memory_bytes(const struct terms *terms);
/* Serve until the stream ends, or the session is stopped. 0 or -errno. */
int responder_serve(struct session *session);

#endif
