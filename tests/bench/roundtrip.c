/*
 * roundtrip.c - the plainest ping-pong of 64 bytes, which latprof knows nothing
 * of.
 *
 *   roundtrip pair   tcp|udp ADDRESS SERVER_CPU CLIENT_CPU COUNT [PAUSE_US]
 *   roundtrip server tcp|udp ADDRESS PORT CPU
 *   roundtrip client tcp|udp ADDRESS PORT CPU COUNT [PAUSE_US]
 *   roundtrip pair|client ... windows
 *
 * Blocking send and recv, a clock reading before and one after, nothing else;
 * a pair is a server and a client of one process each. The client prints
 * "begin" after its warm-up, and at the end {"p50_ns": ..., "p99_ns": ...,
 * "n": ..., "seconds": ...}. In place of COUNT, windows waits for a byte on its
 * standard input, asks for WINDOW_NS, prints the same and waits again: one
 * process, so that what differs from window to window is not its place in
 * memory. Does not see loss: a lost datagram stops it until the alarm.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE 64
#define WARMUP 1000
#define PATIENCE_SECONDS 300
#define WINDOW_NS 150000000
#define WINDOW_MOST 200000 /* round trips in it */

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

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "cpu %d", cpu);
}

static int open_socket(int tcp)
{
	int fd = socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0), one = 1;

	if (fd < 0)
		err(1, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (tcp)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* The socket of a server; `at` becomes where it listens. */
static int open_server(int tcp, struct sockaddr_in *at)
{
	int fd = open_socket(tcp);
	socklen_t length = sizeof(*at);

	if (bind(fd, (struct sockaddr *)at, length) || (tcp && listen(fd, 1)) ||
	    getsockname(fd, (struct sockaddr *)at, &length))
		err(1, "bind");
	return fd;
}

static void serve(int fd, int tcp)
{
	struct sockaddr_in peer;
	socklen_t length = sizeof(peer);
	char message[SIZE];

	if (tcp) {
		fd = accept(fd, NULL, NULL);
		while (recv(fd, message, SIZE, MSG_WAITALL) == SIZE)
			if (send(fd, message, SIZE, 0) != SIZE)
				err(1, "send");
		return;
	}
	while (recvfrom(fd, message, SIZE, 0, (struct sockaddr *)&peer,
			&length) == SIZE)
		if (sendto(fd, message, SIZE, 0, (struct sockaddr *)&peer,
			   length) != SIZE)
			err(1, "sendto");
}

static uint64_t round_trip_ns(int fd)
{
	char message[SIZE] = {};
	uint64_t began = now_ns();

	if (send(fd, message, SIZE, 0) != SIZE ||
	    recv(fd, message, SIZE, MSG_WAITALL) != SIZE)
		err(1, "round trip");
	return now_ns() - began;
}

static void tell(uint64_t *rtt, size_t count, uint64_t took)
{
	qsort(rtt, count, sizeof(*rtt), by_value);
	printf("{\"p50_ns\": %lu, \"p99_ns\": %lu, \"n\": %zu, "
	       "\"seconds\": %.9f}\n",
	       rtt[count / 2], rtt[count * 99 / 100], count, took / 1e9);
	fflush(stdout);
}

static void ask_in_windows(int fd)
{
	static uint64_t rtt[WINDOW_MOST];

	while (getchar() != EOF) {
		uint64_t began, took = 0;
		size_t count = 0;

		alarm(PATIENCE_SECONDS);
		for (size_t i = 0; i < WARMUP; i++)
			round_trip_ns(fd);
		began = now_ns();
		while (took < WINDOW_NS && count < WINDOW_MOST) {
			rtt[count++] = round_trip_ns(fd);
			took = now_ns() - began;
		}
		tell(rtt, count, took);
	}
}

static void ask(int fd, size_t count, useconds_t pause_us)
{
	uint64_t *rtt = calloc(count, sizeof(*rtt)), began, took;

	if (!rtt)
		err(1, "calloc");
	alarm(PATIENCE_SECONDS);
	for (size_t i = 0; i < WARMUP && !pause_us; i++)
		round_trip_ns(fd);
	puts("begin");
	fflush(stdout);
	began = now_ns();
	for (size_t i = 0; i < count; i++) {
		rtt[i] = round_trip_ns(fd);
		if (pause_us)
			usleep(pause_us);
	}
	took = now_ns() - began;
	tell(rtt, count, took);
}

static void ask_at(struct sockaddr_in *at, int tcp, char **argv)
{
	int fd = open_socket(tcp);

	stay_on(atoi(argv[0]));
	if (connect(fd, (struct sockaddr *)at, sizeof(*at)))
		err(1, "connect");
	if (!strcmp(argv[1], "windows"))
		ask_in_windows(fd);
	else
		ask(fd, atol(argv[1]), argv[2] ? atoi(argv[2]) : 0);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int pair = !strcmp(mode, "pair"), server = !strcmp(mode, "server");
	int client = !strcmp(mode, "client"), words = server ? 6 : 7;
	struct sockaddr_in at = { .sin_family = AF_INET };
	int tcp = argc > 2 && !strcmp(argv[2], "tcp"), fd;
	pid_t child;

	if (!(pair || server || client) || argc < words ||
	    argc > words + !server ||
	    inet_pton(AF_INET, argv[3], &at.sin_addr) != 1)
		errx(2, "usage: see the head of roundtrip.c");
	if (!pair)
		at.sin_port = htons(atoi(argv[4]));
	if (client) {
		ask_at(&at, tcp, argv + 5);
		return 0;
	}
	fd = open_server(tcp, &at);
	child = pair ? fork() : 0;
	if (child < 0)
		err(1, "fork");
	if (child) {
		close(fd);
		ask_at(&at, tcp, argv + 5);
		kill(child, SIGKILL);
		return 0;
	}
	if (pair)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	stay_on(atoi(argv[pair ? 4 : 5]));
	if (server) {
		puts("ready");
		fflush(stdout);
	}
	serve(fd, tcp);
	return 0;
}
