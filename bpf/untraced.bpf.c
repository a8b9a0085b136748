/*
 * untraced.bpf.c - time in which a CPU could not be traced: some kernels
 * hide certain tasks from tracing, and with them every interrupt on top.
 *
 *   sched_switch:  who leaves a CPU is not who came to it  ->  one record
 *
 * Where tasks that are hidden follow each other, their time is one record. The
 * flight recorder's program at that hook does the same besides.
 */
#include "occupant.bpf.h"
#include <bpf/bpf_tracing.h>

SEC("?tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	occupant_follow(prev, next, bpf_ktime_get_ns());
	return 0;
}
