/*
 * flood.c - datagrams as fast as they go, and who takes them.
 *
 *   flood sink CPU PORT
 *   flood send CPU ADDRESS PORT SIZE SECONDS
 *
 * The sender says hello with one byte until the sink answers, prints "begin",
 * floods, and ends with {"sent": ..., "received": ..., "seconds": ...,
 * "cpu_seconds": ...} of all datagrams, hellos and answers too. Does not see
 * what the sink did not read.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BATCH 32
#define LARGEST 65536

static char payload[LARGEST];

static double now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "cpu %d", cpu);
}

static void sink(int fd)
{
	static char spare[LARGEST];
	int room = 4 << 20;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	for (;;) {
		struct sockaddr_in peer;
		socklen_t length = sizeof(peer);
		ssize_t n = recvfrom(fd, spare, sizeof(spare), 0,
				     (struct sockaddr *)&peer, &length);

		if (n == 1)
			sendto(fd, spare, 1, 0, (struct sockaddr *)&peer,
			       length);
	}
}

static void say_hello(int fd, uint64_t *sent, uint64_t *received)
{
	struct timeval patience = { .tv_usec = 100000 };
	char answer;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	for (;;) {
		*sent += send(fd, payload, 1, 0) == 1;
		if (recv(fd, &answer, 1, 0) == 1)
			break;
	}
	++*received;
}

static void flood(int fd, size_t size, double seconds)
{
	struct iovec part = { payload, size };
	struct mmsghdr batch[BATCH] = {};
	uint64_t sent = 0, received = 0;
	double begun;

	for (int i = 0; i < BATCH; i++)
		batch[i].msg_hdr =
			(struct msghdr){ .msg_iov = &part, .msg_iovlen = 1 };
	say_hello(fd, &sent, &received);
	puts("begin");
	fflush(stdout);
	begun = now_seconds();
	while (now_seconds() - begun < seconds) {
		int n = sendmmsg(fd, batch, BATCH, 0);

		sent += n > 0 ? n : 0;
	}
	printf("{\"sent\": %lu, \"received\": %lu, \"seconds\": %.6f, "
	       "\"cpu_seconds\": %.6f}\n",
	       sent, received, now_seconds() - begun,
	       (double)clock() / CLOCKS_PER_SEC);
}

int main(int argc, char **argv)
{
	int sends = argc == 7 && !strcmp(argv[1], "send");
	struct sockaddr_in at = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (!sends && (argc != 4 || strcmp(argv[1], "sink")))
		errx(2, "usage: flood sink CPU PORT, or "
			"flood send CPU ADDRESS PORT SIZE SECONDS");
	stay_on(atoi(argv[2]));
	at.sin_port = htons(atoi(argv[sends ? 4 : 3]));
	if (sends)
		inet_pton(AF_INET, argv[3], &at.sin_addr);
	if ((sends ? connect : bind)(fd, (struct sockaddr *)&at, sizeof(at)))
		err(1, "%s", argv[1]);
	if (!sends) {
		puts("ready");
		fflush(stdout);
		sink(fd);
	}
	flood(fd, atoi(argv[5]), atof(argv[6]));
	return 0;
}
