/*
 * schedule.h - which message is sent next, and when it is due.
 *
 * A round holds every size once, in a random order of its own, so that a burst
 * of noise does not hit one size alone; with trains, every size once for each
 * of PRTT(1,0,s), PRTT(n,0,s) and PRTT(n,d,s) (Hoefler et al. 2007). Due times
 * are absolute: a late message does not move those behind it. Heartbeats come
 * in between, on a schedule of their own, for as long as rounds do.
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
	uint64_t train_messages; /* 0: no trains */
	uint64_t train_gap_ns; /* 0: none but those back to back */
	uint64_t heartbeat_interval_ns; /* 0: none */
	uint64_t heartbeat_bytes;
	uint64_t heartbeat_phase_ns; /* from the start to the first */
};

/* One message. */
struct turn {
	uint64_t sequence;
	uint64_t due_ns;
	uint32_t size;
	uint32_t size_index; /* of a heartbeat: one behind those of the sizes */
	bool warmup;
	bool heartbeat;
	uint32_t train_messages; /* as many as are due together */
	uint64_t train; /* number of its train, 0: a message alone */
	uint64_t train_gap_ns;
};

struct schedule {
	struct plan plan;
	uint32_t entries; /* of a round */
	uint32_t *order; /* of the current round: a kind of each size */
	uint32_t position; /* in that order */
	uint64_t round;
	uint64_t sequence; /* of the message given last, from 1 */
	uint64_t random; /* how many random numbers were used */
	uint64_t base_ns; /* of the fixed schedule */
	uint64_t entries_begun;
	bool next_known;
	uint64_t next_ns; /* when the next entry is due, where known */
	uint64_t heartbeat_ns; /* when the next one is due */
	uint64_t measured_ns; /* when the measured part began, 0 before */
	uint64_t trains;
	struct turn turn; /* the next message of the entry begun last */
	uint32_t left; /* messages of that entry that are not given yet */
};

/* The plan is copied, its sizes are borrowed. First due time: start_ns.
 * -ENOMEM. */
int schedule_open(struct schedule *s, const struct plan *plan,
		  uint64_t start_ns);
void schedule_close(struct schedule *s);
/* False when the plan is fulfilled. A closed loop is due at now_ns. */
bool schedule_next(struct schedule *s, uint64_t now_ns, struct turn *ret);
/* How many measured messages the plan has, without heartbeats; 0 when it goes
 * by duration. */
uint64_t schedule_total(const struct schedule *s);

/* The message given last was not the last of its train. */
static inline bool schedule_in_train(const struct schedule *s)
{
	return s->left;
}

#endif
