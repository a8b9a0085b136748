/* pace.c - when each unit of a bulk channel is due. */
#include <math.h>

#include "clock.h"
#include "pace.h"

/* The last units of a paced sender may leave so much late, so that waiting for
 * a CPU takes none away; who cannot keep the rate at all ends then. */
static const uint64_t lateness_ns = 200 * NS_PER_MS;

/* How many are due before the end. */
static double units_until(const struct pace *p, uint64_t duration_ns)
{
	double left_ns = (double)duration_ns - p->phase_ns;

	return left_ns > 0 ? ceil(left_ns / p->gap_ns) : 0;
}

struct pace pace_of(const struct bulk_plan *plan, uint64_t start_ns)
{
	struct pace p = { .start_ns = start_ns,
			  .end_ns = CLOCK_NEVER,
			  .units = plan->units ? plan->units : UINT64_MAX };

	if (plan->rate_bps) {
		double unit_ns = (double)plan->unit_bytes * 8 * NS_PER_SECOND /
				 (double)plan->rate_bps;

		p.gap_ns = unit_ns * (double)plan->channels;
		p.phase_ns = unit_ns * (double)plan->channel;
	}
	if (!plan->duration_ns)
		return p;
	p.end_ns = start_ns + plan->duration_ns;
	if (plan->rate_bps) {
		double most = units_until(&p, plan->duration_ns);

		if (most < (double)p.units)
			p.units = (uint64_t)most;
		p.end_ns += lateness_ns;
	}
	return p;
}

uint64_t pace_due_ns(const struct pace *p, uint64_t sent)
{
	return p->start_ns + (uint64_t)(p->phase_ns + (double)sent * p->gap_ns);
}

uint64_t pace_due(const struct pace *p, uint64_t sent, uint64_t now_ns)
{
	uint64_t left = p->units - sent, due;
	double passed_ns = (double)(now_ns - p->start_ns) - p->phase_ns;

	if (p->gap_ns == 0)
		return left;
	if (passed_ns < 0)
		return 0;
	due = (uint64_t)(passed_ns / p->gap_ns) + 1;
	if (due <= sent)
		return 0;
	return due - sent < left ? due - sent : left;
}

bool pace_is_over(const struct pace *p, uint64_t sent, uint64_t now_ns)
{
	return sent >= p->units || now_ns >= p->end_ns;
}
