/*
 * filter.bpf.h - which sockets are watched. Decided before any other work; one
 * predicate per filter, each begins with its off switch.
 */
#ifndef LATPROF_FILTER_H
#define LATPROF_FILTER_H

#include "kernel.h"
#include "records.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

const volatile struct options options;
struct counters counters;

#define count(member) __sync_fetch_and_add(&counters.member, 1)
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define CGROUP_DEPTH 8

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

static __always_inline bool wants_protocol(const struct sock *sk)
{
	if (sk->sk_protocol == IPPROTO_TCP)
		return options.tcp;
	return sk->sk_protocol == IPPROTO_UDP && options.udp;
}

static __always_inline bool wants_socket(const struct sock *sk)
{
	return wants_protocol(sk) &&
	       wants_netns(sk->__sk_common.skc_net.net->ns.inum) &&
	       wants_port(sk) && wants_cgroup(sk);
}

/* skb->sk may also be a request or a time-wait socket: no struct sock at all */
static __always_inline bool is_full_socket(const struct sock *sk)
{
	unsigned char state = sk->__sk_common.skc_state;

	return state != 6 /* TIME_WAIT */ && state != 12 /* NEW_SYN_RECV */;
}

#endif
