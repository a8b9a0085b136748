/* bulk.h - the client of the service `bulk`: all channels of a run. */
#ifndef LATPROF_LOAD_BULK_H
#define LATPROF_LOAD_BULK_H

#include "bulk_channel.h"
#include "endpoint.h"
#include "session.h"

struct bulk_worker {
	struct bulk *bulk;
	struct bulk_channel channel;
	struct session_link link;
	struct endpoint_facts facts;
	struct sockaddr_in6 local; /* of the data socket; or a sockaddr_in */
	pthread_t thread;
	bool runs;
	_Atomic int error; /* of the channel, once its thread has ended */
};

struct bulk {
	const struct options *options;
	bool ran; /* the rest says something; not where a signal came before */
	bool stopped; /* by a signal */
	size_t count; /* of workers */
	struct bulk_worker *workers;
	int ended; /* eventfd: one for each channel that has */
	size_t ended_count;
};

/* Run the whole workload. 0, also when a signal stopped it, or -errno with a
 * line; what was measured is in *b in both cases. */
int bulk_run(struct bulk *b, const struct options *options,
	     struct failure *failure);
void bulk_close(struct bulk *b);

#endif
