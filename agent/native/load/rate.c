/* rate.c - a bound on bytes per second that all sessions share. */
#include "rate.h"
#include "clock.h"

/* What was not used is kept for so long. */
static const uint64_t kept_ns = 10 * NS_PER_MS;

static uint64_t bytes_ns(const struct rate *r, uint64_t bytes)
{
	return (uint64_t)((double)bytes * 1e9 / (double)r->bytes_per_second);
}

uint64_t rate_reserve(struct rate *r, uint64_t bytes, uint64_t now_ns)
{
	uint64_t cost_ns = bytes_ns(r, bytes);
	uint64_t before = atomic_load(&r->paid_ns), from;

	do
		from = before + kept_ns > now_ns ? before : now_ns - kept_ns;
	while (!atomic_compare_exchange_weak(&r->paid_ns, &before,
					     from + cost_ns));
	if (from <= now_ns)
		return now_ns;
	atomic_fetch_add(&r->waits, 1);
	return from;
}

void rate_give_back(struct rate *r, uint64_t bytes)
{
	atomic_fetch_sub(&r->paid_ns, bytes_ns(r, bytes));
}
