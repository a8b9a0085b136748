/* pingpong.h - the client: sends requests and measures their replies. */
#ifndef LATPROF_LOAD_PINGPONG_H
#define LATPROF_LOAD_PINGPONG_H

#include "endpoint.h"
#include "exchange.h"

struct peer_result {
	struct endpoint_name local;
	struct totals totals;
};

struct pingpong_result {
	bool ran; /* the rest says something */
	bool stopped; /* by a signal */
	struct totals totals; /* of all peers */
	struct endpoint_facts facts; /* of the first peer's socket */
	struct peer_result *peers; /* one for each of options->peers */
	uint64_t elapsed_ns; /* of the measured part */
	uint64_t max_rate; /* of a responder's answers, bytes/s; 0: none */
};

/* Run the whole workload. 0, also when a signal stopped it, or -errno with a
 * line; *ret is filled in both cases, and the caller frees ret->peers. */
int pingpong_run(const struct options *options, struct pingpong_result *ret,
		 struct failure *failure);

#endif
