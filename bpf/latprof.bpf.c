/*
 * latprof.bpf.c - all probes as one object, so that they share their maps. The
 * agent loads those whose hooks the running kernel has.
 */
#include "accept.bpf.c"
#include "close.bpf.c"
#include "drops.bpf.c"
#include "flight.bpf.c"
#include "flight_freed.bpf.c"
#include "flight_queue.bpf.c"
#include "flight_wake.bpf.c"
#include "idle.bpf.c"
#include "loss.bpf.c"
#ifndef LATPROF_OLD_H
#include "open.bpf.c"
#endif
#include "processes.bpf.c"
#include "qdisc.bpf.c"
#include "read.bpf.c"
#include "receive.bpf.c"
#include "send.bpf.c"
#include "unresolved.bpf.c"
#include "untraced.bpf.c"

char LICENSE[] SEC("license") = "GPL";
