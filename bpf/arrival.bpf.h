/*
 * arrival.bpf.h - the packet that is being received on this CPU, and when it
 * entered the stack.
 */
#ifndef LATPROF_ARRIVAL_H
#define LATPROF_ARRIVAL_H

#include "filter.bpf.h"

struct arrival {
	__u64 skb;
	__u64 t_ns;
	__u32 length;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct arrival);
} arrivals SEC(".maps");

static __always_inline struct arrival *arrival_slot(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&arrivals, &zero);
}

#endif
