/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_PACE_H
#define LINK_PACE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How to wait for an instant: asleep until shortly before it, then awake,
 * within a budget; and with real-time priority, as long as others get a CPU.
 */
struct pace {
	uint64_t last_ns;
	uint64_t spin_credit_ns;
	bool spinning;
	bool real_time;
	uint64_t window_start_ns;
	uint64_t window_start_cpu_ns;
};

/* Sets the calling thread's timer slack and, where permitted, SCHED_FIFO. */
void pace_init(struct pace *pace);

/*
 * How long to sleep at `now_ns` for an event at `due_ns` (CLOCK_NEVER: none):
 * nanoseconds, 0 to look again at once, or -1 for as long as it takes.
 */
int64_t pace_sleep_ns(struct pace *pace, uint64_t now_ns, uint64_t due_ns);

#endif
