/* world.c - the input as a source of bytes and of time. */
#define FUZZ_WORLD
#include "world.h"

#include <string.h>

enum { FIRST_NS = 1000000000 };

struct world world;

void world_begin(const uint8_t *input, size_t size)
{
	world = (struct world){ input, size, FIRST_NS };
}

uint8_t world_byte(void)
{
	if (!world.left)
		return 0;
	world.left--;
	return *world.at++;
}

uint32_t world_number(uint32_t last)
{
	uint32_t n = 0;

	for (uint32_t rest = last; rest; rest >>= 8)
		n = n << 8 | world_byte();
	return last == UINT32_MAX ? n : n % (last + 1);
}

size_t world_bytes(void *ret, size_t size)
{
	size_t count = size < world.left ? size : world.left;

	memcpy(ret, world.at, count);
	world.at += count;
	world.left -= count;
	return count;
}

/* Every look at the clock takes a while. */
int world_clock(struct timespec *ret)
{
	world.now_ns += 100;
	ret->tv_sec = (time_t)(world.now_ns / 1000000000);
	ret->tv_nsec = (long)(world.now_ns % 1000000000);
	return 0;
}

/* All of them may be read: their turn to say that nothing came is then. */
int world_wait(struct pollfd *fds, nfds_t count, const struct timespec *limit)
{
	for (nfds_t i = 0; i < count; i++)
		fds[i].revents = POLLIN;
	world.now_ns +=
		(uint64_t)limit->tv_sec * 1000000000 + (uint64_t)limit->tv_nsec;
	return (int)count;
}
