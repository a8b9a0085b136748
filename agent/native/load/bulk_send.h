/* bulk_send.h - the sending half of a bulk channel. */
#ifndef LATPROF_LOAD_BULK_SEND_H
#define LATPROF_LOAD_BULK_SEND_H

#include <stdatomic.h>

#include "bulk_plan.h"
#include "bulk_totals.h"
#include "session.h"

struct bulk_send {
	const struct bulk_plan *plan;
	enum protocol transport;
	int fd; /* connected, with a SO_SNDTIMEO if TCP */
	const atomic_bool *stop; /* send no more units */
	const atomic_bool *ended; /* nor what is left of this one */
	struct session *session; /* whose rate bounds it; NULL: none does */
	_Atomic uint64_t *moved; /* how many units left, for others to see */
};

/* Send what the plan says, from now on. *ret is opened and filled, also where
 * an error ended it: what was sent was sent. 0 or -errno. */
int bulk_send(const struct bulk_send *s, struct bulk_sent *ret);

#endif
