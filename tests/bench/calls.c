/*
 * calls.c - the cheapest system call, again and again, for what each call pays.
 *
 *   calls CPU SECONDS
 *
 * Prints {"calls": ..., "seconds": ..., "cpu_seconds": ...} of getppid(). Does
 * not see what a dearer call pays beside.
 */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BATCH 1000

static double now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double began, took;
	uint64_t calls = 0;
	cpu_set_t set;

	if (argc != 3)
		errx(2, "usage: calls CPU SECONDS");
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[1]), &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "cpu %s", argv[1]);
	began = now_seconds();
	do {
		for (int i = 0; i < BATCH; i++)
			syscall(SYS_getppid);
		calls += BATCH;
		took = now_seconds() - began;
	} while (took < atof(argv[2]));
	printf("{\"calls\": %lu, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n",
	       calls, took, (double)clock() / CLOCKS_PER_SEC);
	return 0;
}
