/*
 * interrupt.bpf.h - the interrupt that each CPU serves, as flight.bpf.c notes
 * it.
 */
#ifndef LATPROF_INTERRUPT_H
#define LATPROF_INTERRUPT_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

/* When the interrupt that runs on a CPU began; a hard one may come upon a soft
 * one. */
struct interrupt_begin {
	__u64 hard_ns;
	__u64 soft_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct interrupt_begin);
} interrupt_begins SEC(".maps");

#endif
