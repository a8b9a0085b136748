/* schedule.c - which size is sent next, and when it is due. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "schedule.h"
#include "splitmix.h"

static uint64_t random_u64(struct schedule *s)
{
	return splitmix64(splitmix64(s->plan.seed) + s->random++);
}

/* Below `bound`, which is far below 2^32: the bias is below bound / 2^32. */
static size_t random_below(struct schedule *s, size_t bound)
{
	return (random_u64(s) >> 32) * bound >> 32;
}

static void shuffle(struct schedule *s)
{
	for (size_t i = s->plan.size_count; i > 1; i--) {
		size_t j = random_below(s, i);
		uint32_t held = s->order[i - 1];

		s->order[i - 1] = s->order[j];
		s->order[j] = held;
	}
}

int schedule_open(struct schedule *s, const struct plan *plan,
		  uint64_t start_ns)
{
	*s = (struct schedule){ .plan = *plan,
				.base_ns = start_ns,
				.due_ns = start_ns };
	s->order = calloc(plan->size_count, sizeof(*s->order));
	if (!s->order)
		return -ENOMEM;
	for (size_t i = 0; i < plan->size_count; i++)
		s->order[i] = (uint32_t)i;
	shuffle(s);
	return 0;
}

void schedule_close(struct schedule *s)
{
	free(s->order);
	s->order = NULL;
}

static uint64_t exponential_gap_ns(struct schedule *s)
{
	/* 53 bits in (0, 1]: the logarithm is finite. */
	double u = ((double)(random_u64(s) >> 11) + 1) * 0x1p-53;

	return (uint64_t)(-log(u) * (double)s->plan.interval_ns);
}

static uint64_t due_ns(struct schedule *s, uint64_t now_ns)
{
	const struct plan *plan = &s->plan;

	if (!plan->interval_ns)
		return now_ns;
	if (!plan->poisson)
		return s->base_ns + s->sequence * plan->interval_ns;
	return s->sequence ? s->due_ns + exponential_gap_ns(s) : s->base_ns;
}

static bool fulfilled(const struct schedule *s, uint64_t due)
{
	if (s->round < s->plan.warmup_rounds)
		return false;
	if (s->plan.rounds)
		return s->round - s->plan.warmup_rounds >= s->plan.rounds;
	return s->measured_ns && due - s->measured_ns >= s->plan.duration_ns;
}

bool schedule_next(struct schedule *s, uint64_t now_ns, struct turn *ret)
{
	uint64_t due = due_ns(s, now_ns);

	if (fulfilled(s, due))
		return false;
	s->due_ns = due;
	ret->due_ns = due;
	ret->sequence = ++s->sequence;
	ret->size_index = s->order[s->position++];
	ret->size = (uint32_t)s->plan.sizes[ret->size_index];
	ret->warmup = s->round < s->plan.warmup_rounds;
	if (!ret->warmup && !s->measured_ns)
		s->measured_ns = due;
	if (s->position == s->plan.size_count) {
		s->position = 0;
		s->round++;
		shuffle(s);
	}
	return true;
}

uint64_t schedule_total(const struct schedule *s)
{
	return s->plan.rounds * s->plan.size_count;
}
