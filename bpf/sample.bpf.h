/*
 * sample.bpf.h - which messages are records, too, where all are counted in
 * histograms: a sample, whose halves are joined by the agent, and slow ones.
 *
 * Both ends must choose the same without a word between them. Of a stream they
 * choose one block in each period, by a hash of flow and period; a message
 * belongs to the block of its last byte, so each has the same chance, whatever
 * its size. Datagrams are chosen by their fingerprint.
 */
#ifndef LATPROF_SAMPLE_H
#define LATPROF_SAMPLE_H

#include "flow.bpf.h"
#include "histogram.bpf.h"

/* What is slow in a group; the agent writes it while the programs run, and sets
 * how many there are before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct group_limit);
} group_limits SEC(".maps");

/* Whether the block that is chosen overlaps bytes [start, end). */
static __always_inline bool is_sampled_at(__u64 flow, __u64 period, __u64 start,
					  __u64 end)
{
	__u32 block = options.sample_block_bits & 63;
	__u32 bits = (options.sample_period_bits & 63) - block;
	/* the first bits: who samples more chooses these, too, up to 2^8 blocks
	 */
	__u64 first = mix(flow, period) >> 1 >> (63 - (bits & 31));

	first = ((period << (bits & 31)) + first) << block;
	return first < end && first + (1ULL << block) > start;
}

/* Of a range; it may reach into the next period. */
static __always_inline bool is_range_sampled(__u64 flow, __u64 start, __u64 end)
{
	__u32 bits = options.sample_period_bits & 63;

	return is_sampled_at(flow, start >> bits, start, end) ||
	       (start >> bits != (end - 1) >> bits &&
		is_sampled_at(flow, (end - 1) >> bits, start, end));
}

/* Of a message, by its end. */
static __always_inline bool is_message_sampled(__u64 flow, __u64 end)
{
	__u32 bits = options.sample_period_bits & 63;

	return is_sampled_at(flow, (end - 1) >> bits, end - 1, end);
}

static __always_inline bool is_datagram_sampled(__u64 key)
{
	__u32 bits = options.sample_period_bits - options.sample_block_bits;

	return !(key >> 20 & ((1ULL << (bits & 31)) - 1));
}

static __always_inline struct group_limit *limit_of(__u32 group)
{
	return bpf_map_lookup_elem(&group_limits, &group);
}

/* Take a token for the record of a slow one, if the group has any. */
static __always_inline bool take_token(struct group_limit *limit)
{
	return limit->tokens > 0 && atomic_add(&limit->tokens, -1) > 0;
}

static __always_inline __u16 slow_flag(struct group_limit *limit, __u64 ns,
				       __u64 most)
{
	return most && ns > most && take_token(limit) ? RECORD_SLOW : 0;
}

#endif
