/* cpu_time.c - the CPU time of threads that come and go. */
#include <pthread.h>

#include "clock.h"
#include "cpu_time.h"

static uint64_t read_ns(clockid_t clock)
{
	struct timespec t;

	/* The thread may have ended since. */
	if (clock_gettime(clock, &t))
		return 0;
	return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

void cpu_time_begin(struct cpu_time *c)
{
	clockid_t own, none;

	if (pthread_getcpuclockid(pthread_self(), &own))
		return;
	for (int i = 0; i < CPU_TIME_THREADS_MAX; i++) {
		none = 0;
		if (atomic_compare_exchange_strong(&c->running[i], &none, own))
			return;
	}
}

void cpu_time_end(struct cpu_time *c)
{
	clockid_t own;

	if (pthread_getcpuclockid(pthread_self(), &own))
		return;
	for (int i = 0; i < CPU_TIME_THREADS_MAX; i++) {
		clockid_t expected = own;

		if (!atomic_compare_exchange_strong(&c->running[i], &expected,
						    0))
			continue;
		atomic_fetch_add(&c->ended_ns, read_ns(own));
		return;
	}
}

uint64_t cpu_time_ns(const struct cpu_time *c)
{
	/* First what has ended: a thread leaves its place before it adds. */
	uint64_t sum = atomic_load(&c->ended_ns);

	for (int i = 0; i < CPU_TIME_THREADS_MAX; i++) {
		clockid_t clock = atomic_load(&c->running[i]);

		if (clock)
			sum += read_ns(clock);
	}
	return sum;
}
