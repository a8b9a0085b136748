/*
 * world.h - the world outside of latprof's programs, as an input tells it.
 *
 * Included before their sources (clang -include): what they receive, how much
 * of a send the kernel takes, and what time it is all come from the input, so
 * a finding is found again. The input ends: then nothing more comes.
 */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* The input that is being tried, and how far it is used up. */
struct world {
	const uint8_t *at;
	size_t left;
	uint64_t now_ns;
};
extern struct world world;

void world_begin(const uint8_t *input, size_t size);
/* The next byte; 0 where there is none. */
uint8_t world_byte(void);
/* A number from 0 to `last`. */
uint32_t world_number(uint32_t last);
/* Up to `size` bytes of the input; how many. */
size_t world_bytes(void *ret, size_t size);

/* Each target has its own of these, where its sources call them. */
ssize_t world_receive(void *ret, size_t size);
ssize_t world_send(const void *bytes, size_t size);
int world_wait(struct pollfd *fds, nfds_t count, const struct timespec *limit);
int world_poll(struct pollfd *fds, nfds_t count, int limit_ms);
int world_random(unsigned char *ret, int size);
int world_clock(struct timespec *ret);

/* What must hold whatever the input is. */
#define MUST(condition)                                                    \
	do {                                                               \
		if (!(condition)) {                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, \
				#condition);                               \
			abort();                                           \
		}                                                          \
	} while (0)

#ifndef FUZZ_WORLD
#define recv(fd, to, size, flags) world_receive(to, size)
#define recvfrom(fd, to, size, flags, from, length) world_receive(to, size)
#define send(fd, from, size, flags) world_send(from, size)
#define sendto(fd, from, size, flags, to, length) world_send(from, size)
#define write(fd, from, size) world_send(from, size)
#define ppoll(fds, count, limit, mask) world_wait(fds, count, limit)
#define poll(fds, count, limit) world_poll(fds, count, limit)
#define RAND_bytes world_random
#define clock_gettime(clock, ret) world_clock(ret)
#define setitimer(which, new, old) 0
#define sigaction(signal, new, old) 0
#define sigprocmask(how, set, old) 0
#endif

#endif
