/*
 * schedule.h - which size is sent next, and when it is due.
 *
 * A round holds every size once, in a random order of its own, so that a burst
 * of noise does not hit one size alone. Due times are absolute: a late message
 * does not move those behind it.
 */
#ifndef LATPROF_LOAD_SCHEDULE_H
#define LATPROF_LOAD_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plan {
	const uint64_t *sizes;
	size_t size_count;
	uint64_t rounds; /* measured ones; 0: until duration_ns */
	uint64_t duration_ns;
	uint64_t warmup_rounds;
	uint64_t interval_ns; /* 0: closed loop, due at once */
	bool poisson; /* gaps exponential with mean interval_ns */
	uint64_t seed;
};

struct schedule {
	struct plan plan;
	uint32_t *order; /* of the current round: indices into plan.sizes */
	size_t position; /* in that order */
	uint64_t round;
	uint64_t sequence; /* of the turn given last, from 1 */
	uint64_t random; /* how many random numbers were used */
	uint64_t base_ns; /* of the fixed schedule */
	uint64_t due_ns; /* of the turn given last */
	uint64_t measured_ns; /* when the measured part began, 0 before */
};

struct turn {
	uint64_t sequence;
	uint64_t due_ns;
	uint32_t size;
	uint32_t size_index;
	bool warmup;
};

/* The plan is copied, its sizes are borrowed. First due time: start_ns.
 * -ENOMEM. */
int schedule_open(struct schedule *s, const struct plan *plan,
		  uint64_t start_ns);
void schedule_close(struct schedule *s);
/* False when the plan is fulfilled. A closed loop is due at now_ns. */
bool schedule_next(struct schedule *s, uint64_t now_ns, struct turn *ret);
/* How many measured messages the plan has; 0 when it goes by duration. */
uint64_t schedule_total(const struct schedule *s);

#endif
