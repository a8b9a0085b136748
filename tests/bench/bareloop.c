/*
 * bareloop.c - the naive ping-pong loop that latprof-load is measured against.
 *
 *   bareloop server tcp|udp ADDRESS PORT SIZE
 *   bareloop client tcp|udp ADDRESS PORT SIZE COUNT
 *
 * Blocking send and recv, one clock reading before and one after, nothing
 * else. The client prints {"p50_ns": ..., "p99_ns": ..., "n": ...}.
 * Does not see loss: a lost datagram stops it for ever.
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 26];

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void transfer(int fd, size_t size, ssize_t (*call)(int, char *, size_t))
{
	for (size_t done = 0; done < size;) {
		ssize_t n = call(fd, buffer + done, size - done);

		if (n <= 0)
			exit(n < 0);
		done += n;
	}
}

static ssize_t give(int fd, char *p, size_t n)
{
	return send(fd, p, n, 0);
}
static ssize_t take(int fd, char *p, size_t n)
{
	return recv(fd, p, n, 0);
}

static void serve(int fd, int tcp, size_t size)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof(peer);

	if (tcp && (listen(fd, 1) || (fd = accept(fd, NULL, NULL)) < 0))
		err(1, "accept");
	if (tcp)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &tcp, sizeof(tcp));
	while (tcp) {
		transfer(fd, size, take);
		transfer(fd, size, give);
	}
	for (;;) {
		ssize_t n = recvfrom(fd, buffer, sizeof(buffer), 0,
				     (struct sockaddr *)&peer, &len);

		if (n < 0 ||
		    sendto(fd, buffer, n, 0, (struct sockaddr *)&peer, len) < 0)
			err(1, "echo");
	}
}

static void ask(int fd, int tcp, size_t size, size_t count)
{
	uint64_t *rtt = malloc(count * sizeof(*rtt));

	if (!rtt)
		err(1, "malloc");
	if (tcp)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &tcp, sizeof(tcp));
	for (size_t i = 0; i < count; i++) {
		uint64_t t = now_ns();

		transfer(fd, size, give);
		transfer(fd, size, take);
		rtt[i] = now_ns() - t;
	}
	qsort(rtt, count, sizeof(*rtt), by_value);
	printf("{\"p50_ns\": %lu, \"p99_ns\": %lu, \"n\": %zu}\n",
	       rtt[count / 2], rtt[count * 99 / 100], count);
}

int main(int argc, char **argv)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	int client = argc == 7 && !strcmp(argv[1], "client");
	int tcp = argc > 2 && !strcmp(argv[2], "tcp"), one = 1, fd;

	if (!client && (argc != 6 || strcmp(argv[1], "server")))
		errx(2, "usage: bareloop server|client tcp|udp ADDRESS PORT "
			"SIZE [COUNT]");
	sa.sin_port = htons(atoi(argv[4]));
	inet_pton(AF_INET, argv[3], &sa.sin_addr);
	fd = socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if ((client ? connect : bind)(fd, (struct sockaddr *)&sa, sizeof(sa)))
		err(1, "%s", client ? "connect" : "bind");
	if (!client) {
		puts("ready");
		fflush(stdout);
		serve(fd, tcp, atoi(argv[5]));
	}
	ask(fd, tcp, atoi(argv[5]), atoi(argv[6]));
	return 0;
}
