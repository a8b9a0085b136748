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
	for (size_t i = s->entries; i > 1; i--) {
		size_t j = random_below(s, i);
		uint32_t held = s->order[i - 1];

		s->order[i - 1] = s->order[j];
		s->order[j] = held;
	}
}

/* An entry of the order is a kind times the number of sizes plus a size. */
enum { ALONE, BACK_TO_BACK, WITH_GAP };

static uint32_t kinds_of(const struct plan *plan)
{
	if (!plan->train_messages)
		return ALONE + 1;
	return plan->train_gap_ns ? WITH_GAP + 1 : BACK_TO_BACK + 1;
}

int schedule_open(struct schedule *s, const struct plan *plan,
		  uint64_t start_ns)
{
	*s = (struct schedule){
		.plan = *plan,
		.entries = (uint32_t)plan->size_count * kinds_of(plan),
		.base_ns = start_ns,
		.heartbeat_ns = start_ns + plan->heartbeat_phase_ns,
	};
	s->order = calloc(s->entries, sizeof(*s->order));
	if (!s->order)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->entries; i++)
		s->order[i] = i;
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

/* When the entry behind the one begun last is due. */
static uint64_t due_ns(struct schedule *s, uint64_t now_ns)
{
	const struct plan *plan = &s->plan;

	if (!plan->interval_ns)
		return now_ns;
	if (!plan->poisson)
		return s->base_ns + s->entries_begun * plan->interval_ns;
	return s->entries_begun ? s->next_ns + exponential_gap_ns(s) :
				  s->base_ns;
}

/* The duration is over at this time. */
static bool over(const struct schedule *s, uint64_t time_ns)
{
	return !s->plan.rounds && s->measured_ns &&
	       time_ns - s->measured_ns >= s->plan.duration_ns;
}

static bool fulfilled(const struct schedule *s)
{
	if (s->round < s->plan.warmup_rounds)
		return false;
	if (s->plan.rounds)
		return s->round - s->plan.warmup_rounds >= s->plan.rounds;
	return over(s, s->next_ns);
}

static bool heartbeat_is_next(const struct schedule *s)
{
	return s->plan.heartbeat_interval_ns && s->heartbeat_ns < s->next_ns &&
	       !over(s, s->heartbeat_ns);
}

static void begin_heartbeat(struct schedule *s)
{
	s->turn = (struct turn){
		.due_ns = s->heartbeat_ns,
		.size = (uint32_t)s->plan.heartbeat_bytes,
		.size_index = (uint32_t)s->plan.size_count,
		.warmup = s->plan.warmup_rounds && !s->measured_ns,
		.heartbeat = true,
		.train_messages = 1,
	};
	s->left = 1;
	s->heartbeat_ns += s->plan.heartbeat_interval_ns;
}

static void begin_entry(struct schedule *s)
{
	const struct plan *plan = &s->plan;
	uint32_t entry = s->order[s->position++];
	uint32_t kind = entry / (uint32_t)plan->size_count;
	uint32_t index = entry % (uint32_t)plan->size_count;
	bool warmup = s->round < plan->warmup_rounds;

	s->turn = (struct turn){
		.due_ns = s->next_ns,
		.size = (uint32_t)plan->sizes[index],
		.size_index = index,
		.warmup = warmup,
		.train_messages = kind ? (uint32_t)plan->train_messages : 1,
		.train = kind ? ++s->trains : 0,
		.train_gap_ns = kind == WITH_GAP ? plan->train_gap_ns : 0,
	};
	s->left = s->turn.train_messages;
	s->next_known = false;
	s->entries_begun++;
	if (!warmup && !s->measured_ns)
		s->measured_ns = s->next_ns;
	if (s->position == s->entries) {
		s->position = 0;
		s->round++;
		shuffle(s);
	}
}

/* False when there is none. */
static bool begin_next(struct schedule *s, uint64_t now_ns)
{
	if (!s->next_known)
		s->next_ns = due_ns(s, now_ns);
	s->next_known = true;
	if (heartbeat_is_next(s))
		begin_heartbeat(s);
	else if (fulfilled(s))
		return false;
	else
		begin_entry(s);
	return true;
}

bool schedule_next(struct schedule *s, uint64_t now_ns, struct turn *ret)
{
	if (!s->left && !begin_next(s, now_ns))
		return false;
	s->left--;
	*ret = s->turn;
	ret->sequence = ++s->sequence;
	s->turn.due_ns += s->turn.train_gap_ns;
	return true;
}

uint64_t schedule_total(const struct schedule *s)
{
	const struct plan *plan = &s->plan;
	uint64_t of_a_size = 1 + (kinds_of(plan) - 1) * plan->train_messages;

	return plan->rounds * plan->size_count * of_a_size;
}
