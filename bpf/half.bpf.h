/*
 * half.bpf.h - what becomes of a finished half of a message: today a record.
 * Whoever wants something else of it (a histogram) changes these functions
 * only.
 */
#ifndef LATPROF_HALF_H
#define LATPROF_HALF_H

#include "flow.bpf.h"

RING(sent_messages, sent_message);
RING(received_ranges, received_range);
RING(lower_transmits, lower_transmit);
LABELS(record_flag);

static __always_inline void sent_half(const struct sent_message *half)
{
	struct sent_message *record = RESERVE(sent_messages);

	if (!record)
		return;
	*record = *half;
	SUBMIT(record);
}

static __always_inline void received_half(const struct received_range *half)
{
	struct received_range *record = RESERVE(received_ranges);

	if (!record)
		return;
	*record = *half;
	SUBMIT(record);
}

/* A packet of these bytes, or of the datagram `end`, went on to a device below.
 */
static __noinline void lower_half(__u64 flow, __u64 key, __u64 start, __u64 end,
				  __u32 ifindex)
{
	struct lower_transmit *record = RESERVE(lower_transmits);

	if (!record)
		return;
	record->flow = flow;
	record->key = key;
	record->start = start;
	record->end = end;
	record->t_ns = bpf_ktime_get_ns();
	record->ifindex = ifindex;
	record->pad = 0;
	SUBMIT(record);
}

#endif
