/*
 * histogram.bpf.h - durations counted in the kernel instead of recorded: a
 * histogram for each group and quantity.
 *
 * CPUs share the histograms of their shard: all CPUs one is slow, and one for
 * each CPU is much memory on large hosts.
 *
 *   block = shard * BLOCKS + group / BLOCK_GROUPS
 *   place in it = group % BLOCK_GROUPS * QUANTITIES + quantity
 *
 * User space makes a block before it gives out the numbers of its groups
 * (group.bpf.h), and only reads them, and takes differences.
 */
#ifndef LATPROF_HISTOGRAM_H
#define LATPROF_HISTOGRAM_H

#include "ring.bpf.h"
#include "watch.bpf.h"

#define BLOCKS (GROUPS / BLOCK_GROUPS)
#define GROUP_UNDECIDED 0
/* What has no room: by protocol and role, which all groups have. */
#define GROUP_OTHER 1
#define OTHER_GROUPS 4
#define FIRST_GROUP (GROUP_OTHER + OTHER_GROUPS)

struct histogram_block {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BLOCK_GROUPS *QUANTITIES);
	__type(key, __u32);
	__type(value, struct histogram);
};

/* So that its type is in the object's. */
const struct histogram *some_histogram __attribute__((unused));

/* The agent sets how many there are before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct histogram_block);
} group_histograms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct group_counts);
} group_totals SEC(".maps");

LABELS(quantity);
LABELS(grouping);
LABELS(group_role);

#define FIRST_OCTAVE 6
#define LAST_OCTAVE 36
#define SUB_BUCKET_BITS 5

/* By the upper six bits of a number's product with DE_BRUIJN, where all bits
 * below the number's highest one are set. */
static const __u8 highest_bits[64] = {
	0,  47, 1,  56, 48, 27, 2,  60, 57, 49, 41, 37, 28, 16, 3,  61,
	54, 58, 35, 52, 50, 42, 21, 44, 38, 32, 29, 23, 17, 11, 4,  62,
	46, 55, 26, 59, 40, 36, 15, 53, 34, 51, 20, 43, 31, 22, 10, 45,
	25, 39, 14, 33, 19, 30, 9,  24, 13, 18, 8,  12, 7,  6,	5,  63,
};
#define DE_BRUIJN 0x03f79d71b4cb0a89ULL

/* Position of the highest bit that is set. Without a branch, of which the
 * verifier would follow each way to the end of the program. */
static __always_inline __u32 highest_bit(__u64 value)
{
	value |= value >> 1;
	value |= value >> 2;
	value |= value >> 4;
	value |= value >> 8;
	value |= value >> 16;
	value |= value >> 32;
	return highest_bits[value * DE_BRUIJN >> 58];
}

static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 bit;

	if (ns < 1 << FIRST_OCTAVE)
		return 0;
	if (ns >> LAST_OCTAVE)
		return HISTOGRAM_BUCKETS - 1;
	bit = highest_bit(ns);
	return 1 + ((bit - FIRST_OCTAVE) << SUB_BUCKET_BITS) +
	       (ns >> (bit - SUB_BUCKET_BITS) & ((1 << SUB_BUCKET_BITS) - 1));
}

static __always_inline __u32 shard_place(__u32 group)
{
	return (bpf_get_smp_processor_id() & options.shard_mask) * GROUPS +
	       group;
}

static __always_inline struct histogram *histogram_of(__u32 group,
						      __u32 quantity)
{
	__u32 block = shard_place(group) / BLOCK_GROUPS;
	__u32 place = group % BLOCK_GROUPS * QUANTITIES + quantity;
	void *histograms_of_block =
		bpf_map_lookup_elem(&group_histograms, &block);

	return histograms_of_block ?
		       bpf_map_lookup_elem(histograms_of_block, &place) :
		       NULL;
}

/* `n` durations at once. */
static __always_inline void histogram_add(__u32 group, __u32 quantity, __u64 ns,
					  __u32 n)
{
	struct histogram *histogram = histogram_of(group, quantity);
	__u32 bucket = bucket_of(ns);

	if (!histogram || bucket >= HISTOGRAM_BUCKETS)
		return;
	__sync_fetch_and_add(&histogram->counts[bucket], n);
	__sync_fetch_and_add(&histogram->sum_ns, ns * n);
}

static __always_inline struct group_counts *counts_of_group(__u32 group)
{
	__u32 place = shard_place(group);

	return bpf_map_lookup_elem(&group_totals, &place);
}

#endif
