/* bulk_receive.h - the receiving half of a bulk channel. */
#ifndef LATPROF_LOAD_BULK_RECEIVE_H
#define LATPROF_LOAD_BULK_RECEIVE_H

#include <stdatomic.h>

#include "bulk_frames.h"
#include "bulk_plan.h"
#include "bulk_totals.h"
#include "session.h"

/* What is never sent: nobody has said yet how many were. */
#define BULK_SENT_UNKNOWN UINT64_MAX

struct bulk_receive {
	const struct bulk_plan *plan;
	int fd;
	const _Atomic uint64_t *sent; /* by the peer, once it has said so */
	const atomic_bool *ended; /* wait for nothing any more */
	struct session *session; /* whose rate bounds it; NULL: none does */
	_Atomic uint64_t *moved; /* how many came, for others to see */
};

/* SO_RCVBUF as the plan wishes, and the socket's count of drops. What the
 * kernel granted, in bytes, or -errno. */
int bulk_receive_prepare(int fd, const struct bulk_plan *plan);

/* Receive datagrams until the peer has said how many it sent and all of these
 * came, or nothing did for a while. *ret is opened and filled, also where an
 * error ended it. 0 or -errno. */
int bulk_receive_datagrams(const struct bulk_receive *r,
			   struct bulk_received *ret);
/* What bulk_frames_next() has just counted, of a TCP channel. */
void bulk_receive_stream(struct bulk_received *ret,
			 const struct bulk_frames *f);

#endif
