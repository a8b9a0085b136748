/* endpoint.c - sockets of both ends, and what the kernel says of them. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "clock.h"
#include "endpoint.h"
#include "interrupts.h"

enum {
	CONNECT_SECONDS = 10,
	/* A peer whose host is gone is dead after half a minute. */
	PEER_TIMEOUT_MS = 30000,
	KEEPALIVE_IDLE_SECONDS = 10,
	KEEPALIVE_GAP_SECONDS = 5,
	EARLY_DATAGRAMS_MAX = 1 << 12,
};

typedef int (*attach)(int fd, const struct sockaddr *sa, socklen_t length);

static void set(int fd, int level, int name, int value)
{
	/* Each is a wish: the run is right without, only less comfortable. */
	setsockopt(fd, level, name, &value, sizeof(value));
}

static void set_datagram_buffer(int fd)
{
	int bytes = ENDPOINT_DATAGRAM_BUFFER_BYTES;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		set(fd, SOL_SOCKET, SO_RCVBUF, bytes);
}

/* Where a socket leads, or is bound. */
struct place {
	enum protocol protocol;
	const char *address;
	uint64_t port;
	bool only_v6; /* of IPv6: leaves IPv4 to another socket */
};

static int set_options(int fd, const struct options *o, enum protocol protocol,
		       struct failure *failure)
{
	if (protocol == PROTOCOL_UDP) {
		set_datagram_buffer(fd);
		return 0;
	}
	set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	set(fd, IPPROTO_TCP, TCP_NODELAY, !o->nagle);
	set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, PEER_TIMEOUT_MS);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS);
	set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_GAP_SECONDS);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	if (o->congestion && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION,
					o->congestion, strlen(o->congestion)))
		return fail(failure, errno,
			    "cannot use congestion control "
			    "%s: %s; `sysctl net.ipv4.tcp_available_congestion"
			    "_control` lists what this kernel has",
			    o->congestion, strerror(errno));
	return 0;
}

static int look_up(const struct place *p, struct addrinfo **ret,
		   struct failure *failure)
{
	struct addrinfo hints = {
		.ai_socktype =
			p->protocol == PROTOCOL_UDP ? SOCK_DGRAM : SOCK_STREAM,
	};
	int error = getaddrinfo(p->address, NULL, &hints, ret);

	if (error)
		return fail(failure, EADDRNOTAVAIL,
			    "cannot find address %s: "
			    "%s; give --address an IPv4 or IPv6 address",
			    p->address, gai_strerror(error));
	/* The port is at the same place for both families. */
	((struct sockaddr_in *)(*ret)->ai_addr)->sin_port =
		htons((uint16_t)p->port);
	return 0;
}

/* Let calls that would block return after this time. */
static void limit_waits(int fd, uint64_t limit_ns)
{
	struct timeval tv = {
		.tv_sec = (time_t)(limit_ns / NS_PER_SECOND),
		.tv_usec = (suseconds_t)(limit_ns % NS_PER_SECOND / 1000),
	};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

/* connect() that ends in time, or with ECANCELED at a signal. Called again it
 * waits on for the connection that is on its way. */
static int connect_in_time(int fd, const struct sockaddr *sa, socklen_t length)
{
	uint64_t until_ns = clock_ns() + CONNECT_SECONDS * NS_PER_SECOND;

	limit_waits(fd, INTERRUPTS_LOOK_MS * NS_PER_MS);
	while (connect(fd, sa, length)) {
		if (errno != EINPROGRESS && errno != EALREADY && errno != EINTR)
			return -1;
		errno = interrupts ? ECANCELED : ETIMEDOUT;
		if (interrupts || clock_ns() >= until_ns)
			return -1;
	}
	limit_waits(fd, 0);
	return 0;
}

/* A socket after `call` (connect_in_time or bind); what it was for, and what to
 * do when it fails, are said in the line. */
static int open_socket(const struct options *o, const struct place *p,
		       attach call, const char *aim, const char *advice,
		       int *ret, struct failure *failure)
{
	struct addrinfo *found;
	int fd, error = look_up(p, &found, failure);

	if (error)
		return error;
	fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		error = set_options(fd, o, p->protocol, failure);
	if (fd >= 0 && p->only_v6 && found->ai_family == AF_INET6)
		set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (fd < 0 || (!error && call(fd, found->ai_addr, found->ai_addrlen)))
		error = fail(failure, errno, "cannot %s %s port %llu: %s; %s",
			     aim, p->address, (unsigned long long)p->port,
			     errno == ETIMEDOUT ? "no answer" : strerror(errno),
			     advice);
	freeaddrinfo(found);
	if (error && fd >= 0)
		close(fd);
	*ret = error ? -1 : fd;
	return error;
}

int endpoint_connect(const struct options *options, enum protocol protocol,
		     const char *address, uint64_t port, int *ret,
		     struct failure *failure)
{
	struct place place = { protocol, address, port, false };

	return open_socket(options, &place, connect_in_time, "connect to",
			   "start `latprof echo` there and give its port", ret,
			   failure);
}

void endpoint_local(int fd, struct endpoint_name *ret)
{
	struct sockaddr_in6 sa = { 0 }; /* or a shorter sockaddr_in */
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&sa;
	socklen_t length = sizeof(sa);
	bool v6;

	*ret = (struct endpoint_name){ 0 };
	getsockname(fd, (struct sockaddr *)&sa, &length);
	v6 = sa.sin6_family == AF_INET6;
	inet_ntop(sa.sin6_family,
		  v6 ? (const void *)&sa.sin6_addr : &v4->sin_addr,
		  ret->address, sizeof(ret->address));
	/* The port is at the same place for both families. */
	ret->port = ntohs(sa.sin6_port);
}

bool endpoint_is_v4(const char *address)
{
	struct place place = { .address = address };
	struct failure ignored;
	struct addrinfo *found;
	bool v4;

	if (look_up(&place, &found, &ignored))
		return false;
	v4 = found->ai_family == AF_INET;
	freeaddrinfo(found);
	return v4;
}

int endpoint_listen(const struct options *options, enum protocol protocol,
		    const char *address, bool only_v6, uint16_t *port, int *ret,
		    struct failure *failure)
{
	struct place place = { protocol, address, *port, only_v6 };
	struct endpoint_name bound;
	int error = open_socket(options, &place, bind, "listen on",
				"give an address of this host's and a free "
				"port, or port 0",
				ret, failure);

	if (error)
		return error;
	/* bind() lets two TCP sockets take a port; listen() does not. */
	if (protocol == PROTOCOL_TCP && listen(*ret, SOMAXCONN)) {
		error = fail(failure, errno,
			     "cannot listen on %s port %u: "
			     "%s; give --port a free one, or 0",
			     address, *port, strerror(errno));
		close(*ret);
		*ret = -1;
		return error;
	}
	endpoint_local(*ret, &bound);
	*port = bound.port;
	return 0;
}

static int get(int fd, int level, int name)
{
	int value = 0;
	socklen_t length = sizeof(value);

	return getsockopt(fd, level, name, &value, &length) ? 0 : value;
}

void endpoint_facts(int fd, enum protocol protocol, struct endpoint_facts *ret)
{
	bool v6 = get(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET6;
	socklen_t length = sizeof(ret->congestion);

	*ret = (struct endpoint_facts){ 0 };
	ret->path_mtu_bytes = v6 ? get(fd, IPPROTO_IPV6, IPV6_MTU) :
				   get(fd, IPPROTO_IP, IP_MTU);
	ret->receive_buffer_bytes = get(fd, SOL_SOCKET, SO_RCVBUF);
	if (protocol == PROTOCOL_UDP)
		return;
	ret->mss_bytes = get(fd, IPPROTO_TCP, TCP_MAXSEG);
	getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, ret->congestion, &length);
}

int endpoint_adopt(int listener, int control, const struct sockaddr_in6 *peer,
		   int *ret)
{
	struct sockaddr_in6 own = { 0 };
	socklen_t length = sizeof(own);
	uint8_t early[1];
	int fd, count = 0, error = 0;

	if (getsockname(control, (struct sockaddr *)&own, &length))
		return -errno;
	fd = socket(own.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	set_datagram_buffer(fd);
	/* Only for so long may another socket have the listener's port. */
	set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
	set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (bind(fd, (struct sockaddr *)&own, length) ||
	    connect(fd, (const struct sockaddr *)peer, length))
		error = -errno;
	set(listener, SOL_SOCKET, SO_REUSEADDR, 0);
	/* What came between the two calls may be anyone's. Of a flood there
	 * is no end: whoever sends it asks again. */
	while (!error && recv(fd, early, sizeof(early), MSG_DONTWAIT) >= 0)
		if (++count > EARLY_DATAGRAMS_MAX)
			error = -EBUSY;
	if (error)
		close(fd);
	*ret = fd;
	return error;
}
