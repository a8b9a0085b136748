/*
 * pace.h - when each unit of a bulk channel is due.
 *
 * Units of a direction leave at equal distances, those of its channels in
 * turn. The schedule is absolute: what was late is made up for, so that the
 * rate is the one that was asked for, to the unit.
 */
#ifndef LATPROF_LOAD_PACE_H
#define LATPROF_LOAD_PACE_H

#include "bulk_plan.h"

struct pace {
	uint64_t start_ns;
	uint64_t end_ns; /* CLOCK_NEVER: when all units are sent */
	uint64_t units; /* all in all; UINT64_MAX: until end_ns */
	double gap_ns; /* 0: as fast as it goes */
	double phase_ns; /* of this channel among the others */
};

struct pace pace_of(const struct bulk_plan *plan, uint64_t start_ns);
/* How many may leave now, `sent` having left. */
uint64_t pace_due(const struct pace *p, uint64_t sent, uint64_t now_ns);
/* When number `sent` is due. */
uint64_t pace_due_ns(const struct pace *p, uint64_t sent);
bool pace_is_over(const struct pace *p, uint64_t sent, uint64_t now_ns);

#endif
