/*
 * counters.bpf.h - what was counted instead of recorded, on each CPU by itself:
 * two CPUs that count on one word pay for it with every packet.
 */
#ifndef LATPROF_COUNTERS_H
#define LATPROF_COUNTERS_H

#include "basis.bpf.h"
#include "records.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

/* An interrupt may count between, so the addition is one instruction. */
#define count_more(member, n)                                                \
	({                                                                   \
		__u32 zero = 0;                                              \
		struct counters *here = bpf_map_lookup_elem(&counts, &zero); \
                                                                             \
		if (here)                                                    \
			__sync_fetch_and_add(&here->member, (__u64)(n));     \
	})

#define count(member) count_more(member, 1)

#endif
