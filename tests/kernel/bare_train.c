/*
 * bare_train.c - the plainest trains of datagrams, which latprof knows nothing
 * of.
 *
 *   bare_train echo   ADDRESS PORT CPU
 *   bare_train client ADDRESS PORT CPU BYTES MESSAGES ROUNDS
 *
 * The client sends one datagram of BYTES and waits for its echo, then MESSAGES
 * and waits for as many, ROUNDS times; it prints how long both took, in ns, a
 * line for each round. Does not see loss: a lost datagram stops it until the
 * alarm.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
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

static char buffer[65536];

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "sched_setaffinity");
}

static void echo(int fd)
{
	struct sockaddr_in from;
	socklen_t length = sizeof(from);

	puts("ready");
	fflush(stdout);
	for (;;) {
		ssize_t n = recvfrom(fd, buffer, sizeof(buffer), 0,
				     (struct sockaddr *)&from, &length);

		if (n < 0 || sendto(fd, buffer, (size_t)n, 0,
				    (struct sockaddr *)&from, length) != n)
			err(1, "echo");
	}
}

static uint64_t train_ns(int fd, size_t bytes, int messages)
{
	uint64_t begin = now_ns();

	for (int i = 0; i < messages; i++)
		if (send(fd, buffer, bytes, 0) != (ssize_t)bytes)
			err(1, "send");
	for (int i = 0; i < messages; i++)
		if (recv(fd, buffer, sizeof(buffer), 0) < 0)
			err(1, "recv");
	return now_ns() - begin;
}

static void client(int fd, size_t bytes, int messages, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		unsigned long long one = train_ns(fd, bytes, 1);
		unsigned long long all = train_ns(fd, bytes, messages);

		printf("%llu %llu\n", one, all);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in there = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	int serves = argc == 5 && !strcmp(argv[1], "echo");

	if (!serves && argc != 8)
		errx(2, "see the comment in bare_train.c");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(60);
	there.sin_port = htons((uint16_t)atoi(argv[3]));
	if (inet_pton(AF_INET, argv[2], &there.sin_addr) != 1)
		errx(2, "not an address: %s", argv[2]);
	pin(atoi(argv[4]));
	if (serves) {
		if (bind(fd, (struct sockaddr *)&there, sizeof(there)))
			err(1, "bind");
		echo(fd);
	}
	if (connect(fd, (struct sockaddr *)&there, sizeof(there)))
		err(1, "connect");
	client(fd, (size_t)atol(argv[5]), atoi(argv[6]), atoi(argv[7]));
	return 0;
}
