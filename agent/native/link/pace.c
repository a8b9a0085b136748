// SPDX-License-Identifier: GPL-2.0-only
/*
 * pace.c - punctual waiting that leaves the CPU to others.
 *
 * A timer wakes a thread 5 to 40 us late on a virtual machine, most of it the
 * way out of an idle CPU. So the last SPIN_NS are spent awake. At a steady
 * packet rate that would be most of a CPU: no more than one part in
 * SPIN_SHARE of the time may be spun away, and then timers have to do.
 */
#include "pace.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "clock.h"

#define SPIN_NS 50000
#define SPIN_SHARE 4
#define SPIN_CREDIT_MAX_NS 2000000

#define WINDOW_NS 20000000
/* Percent of a window on the CPU: real-time priority ends and comes back. */
#define BUSY_PERCENT 70
#define CALM_PERCENT 50

/* Without the permission the thread stays an ordinary one. */
static void pace_set_real_time(struct pace *pace, bool on)
{
	struct sched_param parameters = { .sched_priority = on ? 1 : 0 };
	int policy = on ? SCHED_FIFO : SCHED_OTHER;

	pace->real_time = !sched_setscheduler(0, policy, &parameters) && on;
}

void pace_init(struct pace *pace)
{
	*pace = (struct pace){ .last_ns = clock_ns() };
	pace->window_start_ns = pace->last_ns;
	pace->window_start_cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	prctl(PR_SET_TIMERSLACK, 1);
	pace_set_real_time(pace, true);
}

static void pace_yield_to_others(struct pace *pace, uint64_t now_ns)
{
	uint64_t elapsed_ns = now_ns - pace->window_start_ns, cpu_ns, percent;

	if (elapsed_ns < WINDOW_NS)
		return;
	cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	percent = (cpu_ns - pace->window_start_cpu_ns) * 100 / elapsed_ns;
	pace->window_start_ns = now_ns;
	pace->window_start_cpu_ns = cpu_ns;
	if (pace->real_time ? percent > BUSY_PERCENT : percent < CALM_PERCENT)
		pace_set_real_time(pace, !pace->real_time);
}

static void pace_account(struct pace *pace, uint64_t now_ns)
{
	uint64_t elapsed_ns = now_ns - pace->last_ns;
	uint64_t credit_ns = pace->spin_credit_ns + elapsed_ns / SPIN_SHARE;

	if (pace->spinning)
		credit_ns -= elapsed_ns < credit_ns ? elapsed_ns : credit_ns;
	if (credit_ns > SPIN_CREDIT_MAX_NS)
		credit_ns = SPIN_CREDIT_MAX_NS;
	pace->spin_credit_ns = credit_ns;
	pace->last_ns = now_ns;
	pace->spinning = false;
}

int64_t pace_sleep_ns(struct pace *pace, uint64_t now_ns, uint64_t due_ns)
{
	uint64_t left_ns;

	pace_account(pace, now_ns);
	pace_yield_to_others(pace, now_ns);
	if (due_ns == CLOCK_NEVER)
		return -1;
	if (due_ns <= now_ns)
		return 0;
	left_ns = due_ns - now_ns;
	if (left_ns > SPIN_NS)
		return (int64_t)(left_ns - SPIN_NS);
	if (pace->spin_credit_ns < left_ns)
		return (int64_t)left_ns;
	pace->spinning = true;
	return 0;
}
