/* bulk_service.h - the service `bulk`: one channel of a client's run. */
#ifndef LATPROF_LOAD_BULK_SERVICE_H
#define LATPROF_LOAD_BULK_SERVICE_H

#include "session.h"

/* In terms.own[]: the largest receive buffer that will be asked for. */
enum { BULK_TERM_RECEIVE_BUFFER };

/* Are there terms for a bulk channel? */
bool bulk_allows(const struct terms *terms);
/* What a session takes beside its messages. */
uint64_t bulk_memory_bytes(const struct terms *terms);
/* Send and receive what the client's plan says. 0 or -errno. */
int bulk_serve(struct session *session);

#endif
