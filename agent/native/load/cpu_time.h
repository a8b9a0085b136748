/* cpu_time.h - the CPU time of threads that come and go, read by another one.
 */
#ifndef LATPROF_LOAD_CPU_TIME_H
#define LATPROF_LOAD_CPU_TIME_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum { CPU_TIME_THREADS_MAX = 3 };

struct cpu_time {
	_Atomic clockid_t running[CPU_TIME_THREADS_MAX]; /* 0: none */
	_Atomic uint64_t ended_ns; /* of threads that are over */
};

/* The calling thread is counted from now on. Where it would be one too many,
 * it is not. */
void cpu_time_begin(struct cpu_time *c);
/* The last that the calling thread does with it. */
void cpu_time_end(struct cpu_time *c);
/* Of all of them until now. Of a thread that ends meanwhile it may lack what
 * the next reading has: never is any counted twice. */
uint64_t cpu_time_ns(const struct cpu_time *c);

#endif
