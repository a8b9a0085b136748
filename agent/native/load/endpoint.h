/* endpoint.h - sockets of both ends, and what the kernel says of them. */
#ifndef LATPROF_LOAD_ENDPOINT_H
#define LATPROF_LOAD_ENDPOINT_H

#include "flags.h"

struct endpoint_facts {
	char congestion[16]; /* TCP only, else empty */
	int mss_bytes; /* TCP only, else 0 */
	int path_mtu_bytes; /* 0: unknown */
	int receive_buffer_bytes;
};

/* A connected socket to the responder. 0 or -errno with a line. */
int endpoint_connect(const struct options *options, int *ret,
		     struct failure *failure);
/* A bound socket, listening if TCP, and its port. 0 or -errno with a line. */
int endpoint_listen(const struct options *options, int *ret, uint16_t *port,
		    struct failure *failure);
/* Let sends and receives of a blocking socket return EAGAIN after this time. */
void endpoint_limit_waits(int fd, uint64_t limit_ns);
void endpoint_facts(int fd, const struct options *options,
		    struct endpoint_facts *ret);

#endif
