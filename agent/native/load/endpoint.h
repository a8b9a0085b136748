/* endpoint.h - sockets of both ends, and what the kernel says of them. */
#ifndef LATPROF_LOAD_ENDPOINT_H
#define LATPROF_LOAD_ENDPOINT_H

#include <netinet/in.h>

#include "flags.h"

/* SO_RCVBUF of a UDP socket, where the kernel grants it: an open loop against a
 * stopped responder queues many datagrams. The kernel takes the double. */
enum { ENDPOINT_DATAGRAM_BUFFER_BYTES = 4 << 20 };

struct endpoint_facts {
	char congestion[16]; /* TCP only, else empty */
	int mss_bytes; /* TCP only, else 0 */
	int path_mtu_bytes; /* 0: unknown */
	int receive_buffer_bytes;
};

/* As numbers. */
struct endpoint_name {
	char address[INET6_ADDRSTRLEN];
	uint16_t port;
};

/* A connected socket to that address; blocks. 0 or -errno with a line,
 * -ECANCELED where a signal came meanwhile (interrupts.h). */
int endpoint_connect(const struct options *options, enum protocol protocol,
		     const char *address, uint64_t port, int *ret,
		     struct failure *failure);
bool endpoint_is_v4(const char *address);
/* A bound socket, listening if TCP; of IPv6 it takes IPv4 too, unless only_v6.
 * *port: the one wanted, 0 for any; then the one that it has. 0 or -errno with
 * a line. */
int endpoint_listen(const struct options *options, enum protocol protocol,
		    const char *address, bool only_v6, uint16_t *port, int *ret,
		    struct failure *failure);
/* A UDP socket on the listener's port and the control connection's address
 * that takes in datagrams of this peer alone. 0 or -errno. */
int endpoint_adopt(int listener, int control, const struct sockaddr_in6 *peer,
		   int *ret);
/* This end's name of a socket. */
void endpoint_local(int fd, struct endpoint_name *ret);
void endpoint_facts(int fd, enum protocol protocol, struct endpoint_facts *ret);

#endif
