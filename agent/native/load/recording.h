/*
 * recording.h - the workload `recording`: a client asks for what a responder
 * has recorded of it.
 *
 * Neither program has the recording: at both ends the connection, once both
 * have agreed, is handed to the process that started the program, over a Unix
 * socket of packets (--hand-over): two u64, the terms below, and the
 * connection itself. What is sent on it is theirs.
 */
#ifndef LATPROF_LOAD_RECORDING_H
#define LATPROF_LOAD_RECORDING_H

#include "session.h"

/* terms.own of this workload. */
enum {
	RECORDING_TERM_SINCE, /* what is wanted began at most so many ns ago */
	RECORDING_TERM_BYTES, /* the most that the client takes */
	RECORDING_TERMS,
};

/* Over TCP alone. */
bool recording_allows(const struct terms *terms);
/* Hand the connection over, and wait until either side closes it. 0 or -errno,
 * -EPROTO where the client says more. */
int recording_serve(struct session *session);
/* The client: agree with a responder, and hand the connection over. 0 or
 * -errno with a line. */
int recording_fetch(const struct options *options, struct failure *failure);

#endif
