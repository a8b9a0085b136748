/*
 * watch.bpf.h - which sockets are watched: one verdict for each socket, kept
 * with it.
 *
 * The verdict is found at the socket's first event, from the socket alone, and
 * costs a climb through its cgroups. Where processes are asked for, their
 * sockets were marked before (processes.bpf.c). A watched socket has a state
 * (stream.bpf.h, datagram.bpf.h), which is looked up at each event anyway;
 * another one has a note that it is not. Both carry the generation of the
 * filter they were found by: where the agent has changed the filter, they are
 * found again.
 */
#ifndef LATPROF_WATCH_H
#define LATPROF_WATCH_H

#include "counters.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define CGROUP_DEPTH 8

/* Not constant: the agent may change them while the programs run. */
struct options options SEC(".data.options");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32); /* generation of the filter that said no */
} unwatched SEC(".maps");

/* Marks the sockets of the processes that are asked for; a connection that is
 * accepted has the mark of its listener. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, __u32);
} marked SEC(".maps");

static __always_inline bool wants_netns(unsigned int inum)
{
	if (!options.netns[0])
		return true;
	for (unsigned int i = 0; i < ARRAY_SIZE(options.netns); i++) {
		if (options.netns[i] == inum)
			return true;
		if (!options.netns[i])
			return false;
	}
	return false;
}

static __always_inline bool wants_port(const struct sock *sk)
{
	__u16 local, remote;

	if (!options.ports[0])
		return true;
	local = sk->__sk_common.skc_num;
	remote = bpf_ntohs(sk->__sk_common.skc_dport);
	for (unsigned int i = 0; i < ARRAY_SIZE(options.ports); i++) {
		if (!options.ports[i])
			return false;
		if (options.ports[i] == local || options.ports[i] == remote)
			return true;
	}
	return false;
}

/* A socket belongs to the cgroup of the process that made it, or of a parent
 * of that cgroup: a command may make groups of its own below ours. */
static __always_inline bool wants_cgroup(const struct sock *sk)
{
	struct cgroup *group;

	if (!options.cgroup)
		return true;
	group = BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
	for (int i = 0; i < CGROUP_DEPTH && group; i++) {
		if (BPF_CORE_READ(group, kn, id) == options.cgroup)
			return true;
		group = BPF_CORE_READ(group, self.parent, cgroup);
	}
	return false;
}

static __always_inline bool wants_process_of(struct sock *sk)
{
	return (!options.pids && !options.comms[0][0]) ||
	       bpf_sk_storage_get(&marked, sk, 0, 0);
}

/* A raw socket may have the protocol, and none of its state. A subflow of MPTCP
 * is filled and emptied by the socket above it, which we do not follow. */
static __always_inline bool wants_protocol(const struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	bool subflow = false;

	if (sk->sk_protocol == IPPROTO_UDP)
		return options.udp && sk->sk_type == SOCK_DGRAM;
	if (sk->sk_protocol != IPPROTO_TCP || sk->sk_type != SOCK_STREAM ||
	    !options.tcp)
		return false;
	if (bpf_core_field_exists(tp->is_mptcp))
		bpf_core_read(&subflow, sizeof(subflow), &tp->is_mptcp);
	if (subflow)
		count(multipath_sockets);
	return !subflow;
}

static __noinline bool wants_socket(struct sock *sk)
{
	return wants_protocol(sk) &&
	       wants_netns(sk->__sk_common.skc_net.net->ns.inum) &&
	       wants_port(sk) && wants_process_of(sk) && wants_cgroup(sk);
}

/* Whether the verdict on a socket is known, and is no. */
static __always_inline bool is_unwatched(struct sock *sk)
{
	const __u32 *no = bpf_sk_storage_get(&unwatched, sk, 0, 0);

	return no && *no == options.generation;
}

static __noinline void unwatched_note(struct sock *sk)
{
	__u32 *no = bpf_sk_storage_get(&unwatched, sk, 0,
				       BPF_SK_STORAGE_GET_F_CREATE);

	if (no)
		*no = options.generation;
}

/* skb->sk may also be a request or a time-wait socket: no struct sock at all */
static __always_inline bool is_full_socket(const struct sock *sk)
{
	unsigned char state = sk->__sk_common.skc_state;

	return state != 6 /* TIME_WAIT */ && state != 12 /* NEW_SYN_RECV */;
}

#endif
