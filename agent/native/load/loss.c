/* loss.c - when a datagram counts as lost, and which ones did. */
#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "loss.h"
#include "splitmix.h"

enum { LOST_KEYS = 8192 };

static const uint64_t limit_min_ns = 20 * NS_PER_MS;
static const uint64_t limit_max_ns = NS_PER_SECOND;

int loss_open(struct loss *l, size_t size_count, uint64_t fixed_ns)
{
	*l = (struct loss){ .fixed_ns = fixed_ns };
	l->estimates = calloc(size_count, sizeof(*l->estimates));
	l->lost_keys = calloc(LOST_KEYS, sizeof(*l->lost_keys));
	if (!l->estimates || !l->lost_keys) {
		loss_close(l);
		return -ENOMEM;
	}
	for (size_t i = 0; i < size_count; i++)
		l->estimates[i].limit_ns = limit_max_ns;
	return 0;
}

void loss_close(struct loss *l)
{
	free(l->estimates);
	free(l->lost_keys);
	*l = (struct loss){ 0 };
}

uint64_t loss_limit_ns(const struct loss *l, uint32_t size_index)
{
	return l->fixed_ns ? l->fixed_ns : l->estimates[size_index].limit_ns;
}

static uint64_t within_limits(uint64_t ns)
{
	if (ns < limit_min_ns)
		return limit_min_ns;
	return ns > limit_max_ns ? limit_max_ns : ns;
}

void loss_sample(struct loss *l, uint32_t size_index, uint64_t rtt_ns)
{
	struct round_trip_estimate *e = &l->estimates[size_index];
	uint64_t apart;

	if (!e->srtt_ns) {
		e->srtt_ns = rtt_ns;
		e->rttvar_ns = rtt_ns / 2;
	}
	apart = rtt_ns > e->srtt_ns ? rtt_ns - e->srtt_ns : e->srtt_ns - rtt_ns;
	e->rttvar_ns += apart / 4 - e->rttvar_ns / 4;
	e->srtt_ns += rtt_ns / 8 - e->srtt_ns / 8;
	e->limit_ns = within_limits(2 * e->srtt_ns + 4 * e->rttvar_ns);
}

static uint64_t *place(const struct loss *l, uint64_t key)
{
	return &l->lost_keys[splitmix64(key) % LOST_KEYS];
}

void loss_add(struct loss *l, uint32_t size_index, uint64_t key)
{
	struct round_trip_estimate *e = &l->estimates[size_index];

	e->limit_ns = within_limits(2 * e->limit_ns);
	*place(l, key) = key;
}

bool loss_take(struct loss *l, uint64_t key)
{
	uint64_t *found = place(l, key);

	if (*found != key)
		return false;
	*found = 0;
	return true;
}
