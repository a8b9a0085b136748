/*
 * half.bpf.h - what becomes of a finished half of a message: a record, or its
 * stages counted in the histograms of its group (histogram.bpf.h).
 */
#ifndef LATPROF_HALF_H
#define LATPROF_HALF_H

#include "group.bpf.h"
#include "sample.bpf.h"

RING(sent_messages, sent_message);
RING(received_ranges, received_range);
RING(lower_transmits, lower_transmit);
LABELS(record_flag);

#define A_HALF 0
#define A_TURN 1

/* Where there is a flight recorder: user space looks at what was drained only
 * after halves of messages that took so long, which may change. */
const volatile __u32 has_recorder SEC(".rodata.has_recorder") = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} long_half_ns SEC(".maps"); /* of halves, and of turns */

__u64 long_halves; /* of many at once not each counts: a change is enough */

/* Before the record is there: who sees it knows that it may be long. */
static __always_inline bool long_notice(__u32 of, __u64 begin, __u64 end)
{
	const __u64 *least;

	if (!has_recorder || !begin || !end)
		return false;
	least = bpf_map_lookup_elem(&long_half_ns, &of);
	if (!least || (__s64)(end - begin) < (__s64)*least)
		return false;
	long_halves++;
	return true;
}

static __always_inline void sent_half(const struct sent_message *half)
{
	struct sent_message *record;

	long_notice(A_HALF, half->send_ns, half->xmit_ns);
	record = RESERVE(sent_messages);
	if (!record)
		return;
	*record = *half;
	SUBMIT(record);
}

static __always_inline void received_half(const struct received_range *half)
{
	struct received_range *record;

	long_notice(A_HALF, half->arrive_ns ?: half->ready_ns, half->read_ns);
	record = RESERVE(received_ranges);
	if (!record)
		return;
	*record = *half;
	SUBMIT(record);
}

/* When a packet left its queue. What is before it came there was not its own.
 */
static __always_inline __u64 xmit_behind(__u64 queue_ns, __u64 xmit_ns)
{
	if (!xmit_ns || xmit_ns >= queue_ns)
		return xmit_ns;
	count(early_xmits);
	return 0;
}

/* What counts is not static, and takes no more than memory, so that the
 * verifier looks at it once for all who call it. */

/* The stages of a message that left, or was given up. Returns flags of its
 * record: whether it was slow. */
SHARED int sent_count(__u32 group, const struct sent_message *half)
{
	struct group_counts *counts = counts_of_group(group);
	struct group_limit *limit = limit_of(group);
	__u32 messages;

	if (!half || !counts)
		return 0;
	messages = 1 + half->merged;
	__sync_fetch_and_add(&counts->sent_messages, messages);
	__sync_fetch_and_add(&counts->sent_bytes, half->size_bytes);
	__sync_fetch_and_add(&counts->sent_packets, half->packets);
	if (half->queue_ns && half->send_ns)
		histogram_add(group, SEND_QUEUE, half->queue_ns - half->send_ns,
			      1);
	if (half->queue_ns && half->xmit_ns)
		histogram_add(group, QDISC, half->xmit_ns - half->queue_ns, 1);
	if (!limit || !half->xmit_ns || !half->send_ns)
		return 0;
	return slow_flag(limit, half->xmit_ns - half->send_ns, limit->sent_ns);
}

/* The stages of `n` messages that were read at once, or of a range whose
 * messages are not known here: `quantity` is the first of three. Returns flags
 * of its record. */
SHARED int received_count(__u32 group, __u32 quantity, __u32 n,
			  const struct received_range *half)
{
	struct group_counts *counts = counts_of_group(group);
	struct group_limit *limit = limit_of(group);

	if (!half || !counts)
		return 0;
	__sync_fetch_and_add(&counts->received_bytes,
			     half->size_bytes ?: half->end - half->start);
	if (n && quantity == RECEIVE_STACK)
		__sync_fetch_and_add(&counts->received_messages, n);
	else if (n)
		__sync_fetch_and_add(&counts->received_ranges, n);
	if (n && half->ready_ns) {
		if (half->arrive_ns)
			histogram_add(group, quantity,
				      half->ready_ns - half->arrive_ns, n);
		histogram_add(group, quantity + 1,
			      half->read_ns - half->ready_ns, n);
		if (!(half->flags & RECORD_NO_WAKEUP))
			histogram_add(group, quantity + 2, half->wakeup_ns, n);
	}
	if (!limit || !half->arrive_ns)
		return 0;
	return slow_flag(limit, half->read_ns - half->arrive_ns,
			 limit->received_ns);
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
