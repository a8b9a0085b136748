/*
 * counted.c - send a known number of messages from one network namespace to
 * another, and count what arrives.
 *
 *   counted PROTOCOL SENDER RECEIVER ADDRESS PORT COUNT WINDOW SIZE...
 *
 * The sizes are used in turn, one send call each; at most WINDOW messages are
 * on their way, so nothing overflows. Fails unless all of them were received.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_S 600
#define BUFFER_BYTES (8 << 20)

static char buffer[1 << 16];
static bool stream;
static struct sockaddr_in address = { .sin_family = AF_INET };
static unsigned long count, window;
static unsigned long sizes[16];
static unsigned long kinds;

static void enter(const char *name)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "/run/netns/%s", name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		err(1, "%s", path);
	close(fd);
}

static int new_socket(void)
{
	int one = 1, room = BUFFER_BYTES;
	int fd = socket(AF_INET, stream ? SOCK_STREAM : SOCK_DGRAM, 0);
	if (fd < 0)
		err(1, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (stream)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	else if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room,
			    sizeof(room)))
		err(1, "SO_RCVBUFFORCE");
	return fd;
}

static void tell(int to)
{
	if (write(to, "+", 1) != 1)
		err(1, "pipe");
}

static void wait_for(int from)
{
	char c;
	if (read(from, &c, 1) != 1)
		errx(1, "the other end is gone");
}

static int is_size(size_t bytes)
{
	for (unsigned long i = 0; i < kinds; i++)
		if (sizes[i] == bytes)
			return 1;
	return 0;
}

/* Tell of each message that was received whole, after one for being ready. */
static void receive(int told)
{
	int fd = new_socket();
	if (bind(fd, (void *)&address, sizeof(address)))
		err(1, "bind");
	if (stream && listen(fd, 1))
		err(1, "listen");
	tell(told);
	if (stream) {
		int listener = fd;
		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			err(1, "accept");
		close(listener);
	}
	for (unsigned long n = 0; n < count; n++) {
		size_t want = sizes[n % kinds];
		while (want) {
			size_t most = stream ? want : sizeof(buffer);
			ssize_t got = recv(fd, buffer, most, 0);
			/* datagrams may overtake each other */
			if (got <= 0 || (!stream && !is_size((size_t)got)))
				errx(1, "message %lu: %zd of %zu", n, got,
				     want);
			want = stream ? want - (size_t)got : 0;
		}
		tell(told);
	}
}

static void transmit(int told)
{
	wait_for(told);
	int fd = new_socket();
	if (connect(fd, (void *)&address, sizeof(address)))
		err(1, "connect");
	for (unsigned long n = 0; n < count + window; n++) {
		if (n >= window)
			wait_for(told);
		if (n >= count)
			continue;
		size_t size = sizes[n % kinds];
		if (send(fd, buffer, size, 0) != (ssize_t)size)
			err(1, "send %lu", n);
	}
}

int main(int argc, char **argv)
{
	int pipes[2], status;
	if (argc < 9 || argc > 8 + 16)
		errx(2, "see the head of counted.c");
	stream = !strcmp(argv[1], "tcp");
	if (inet_pton(AF_INET, argv[4], &address.sin_addr) != 1)
		errx(2, "no address: %s", argv[4]);
	address.sin_port = htons((in_port_t)strtoul(argv[5], NULL, 10));
	count = strtoul(argv[6], NULL, 10);
	window = strtoul(argv[7], NULL, 10);
	for (kinds = 0; argv[8 + kinds]; kinds++)
		sizes[kinds] = strtoul(argv[8 + kinds], NULL, 10);
	if (window > count)
		window = count;
	if (pipe(pipes))
		err(1, "pipe");
	pid_t child = fork();
	if (child < 0)
		err(1, "fork");
	alarm(DEADLINE_S);
	if (!child) {
		enter(argv[3]);
		receive(pipes[1]);
		return 0;
	}
	close(pipes[1]);
	enter(argv[2]);
	transmit(pipes[0]);
	if (waitpid(child, &status, 0) < 0 || status)
		errx(1, "the receiver failed");
	printf("%s %s %lu\n", argv[1], argv[5], count);
	return 0;
}
