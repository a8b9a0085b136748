/*
 * group.bpf.h - which group a socket's messages are counted in.
 *
 * Decided once per socket, where its process is at work: at its first send or
 * read; and once more where the agent has asked all sockets to be looked at
 * again (options.generation). A group that is new takes one of the numbers that
 * the agent gives out; where there is none all of a protocol and role are
 * "other". The agent reads the map to learn what the numbers stand for, and
 * takes back those of groups that are idle where there is no room for more.
 *
 * Who is the server: of TCP the end that was accepted, which is a copy of its
 * listener, with its limit; else the end whose port is none of those that the
 * kernel hands out; of UDP else the one that did not speak first.
 */
#ifndef LATPROF_GROUP_H
#define LATPROF_GROUP_H

#include "flow.bpf.h"
#include "histogram.bpf.h"

/* Of both the agent sets how many there are before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct group);
	__type(value, __u32); /* its number */
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_groups SEC(".maps");

__u32 named_groups; /* so far: how many numbers were taken */
__u32 unnamed_groups; /* how often there was none */

static __always_inline bool is_ephemeral(__u16 port)
{
	return port >= options.ephemeral[0] && port <= options.ephemeral[1];
}

/* By ports in host byte order. */
static __always_inline __u8 role_of(const struct sock *sk, __u16 local,
				    __u16 remote, bool spoke_first)
{
	if (sk->sk_protocol == IPPROTO_TCP && sk->sk_max_ack_backlog)
		return ROLE_SERVER;
	if (is_ephemeral(local) != is_ephemeral(remote))
		return is_ephemeral(local) ? ROLE_CLIENT : ROLE_SERVER;
	return spoke_first || sk->sk_protocol == IPPROTO_TCP ? ROLE_CLIENT :
							       ROLE_SERVER;
}

/* The first bits of an address, as two words in network byte order. */
static __always_inline __u64 prefix_of(__u64 word, __s32 bits)
{
	if (bits <= 0)
		return 0;
	if (bits >= 64)
		return word;
	return bpf_cpu_to_be64(bpf_be64_to_cpu(word) & ~(~0ULL >> bits));
}

static __always_inline void subnet_of(const __u64 address[2], __u64 ret[2])
{
	__s32 bits = is_mapped(address) ? 96 + options.prefix_ipv4 :
					  options.prefix_ipv6;

	ret[0] = prefix_of(address[0], bits);
	ret[1] = prefix_of(address[1], bits - 64);
}

/* Of the device that its packets leave by. */
static __always_inline __u32 interface_of(const struct sock *sk)
{
	const struct dst_entry *dst = BPF_CORE_READ(sk, sk_dst_cache);

	return dst ? BPF_CORE_READ(dst, dev, ifindex) :
		     (__u32)sk->__sk_common.skc_bound_dev_if;
}

static __always_inline __u32 other_group(const struct group *group)
{
	__u32 number = GROUP_OTHER;

	if (group->protocol == IPPROTO_UDP)
		number += OTHER_GROUPS / 2;
	if (group->role == ROLE_SERVER)
		number++;
	return number;
}

static __always_inline __u32 group_number(const struct group *group)
{
	__u32 *known = bpf_map_lookup_elem(&groups, group), number;

	if (known)
		return *known;
	if (bpf_map_pop_elem(&free_groups, &number)) {
		__sync_fetch_and_add(&unnamed_groups, 1);
		return other_group(group);
	}
	/* another CPU may have been faster */
	if (bpf_map_update_elem(&groups, group, &number, BPF_NOEXIST)) {
		bpf_map_push_elem(&free_groups, &number, BPF_ANY);
		known = bpf_map_lookup_elem(&groups, group);
		return known ? *known : other_group(group);
	}
	__sync_fetch_and_add(&named_groups, 1);
	return number;
}

/* `tuple`: as the socket sends. */
static __noinline __u32 group_decide(struct sock *sk,
				     const struct five_tuple *tuple, __u8 role)
{
	struct group group = { .protocol = tuple->protocol };

	if (options.by & BY_SERVICE) {
		group.role = role;
		group.service = bpf_ntohs(role == ROLE_SERVER ?
						  tuple->source_port :
						  tuple->destination_port);
	}
	if (options.by & BY_CGROUP)
		group.cgroup = BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id);
	if (options.by & BY_COMM)
		process_name(group.comm);
	if (options.by & BY_REMOTE)
		subnet_of(tuple->destination, group.remote);
	if (options.by & BY_INTERFACE) {
		group.ifindex = interface_of(sk);
		group.netns = netns_number(sk);
	}
	return group_number(&group);
}

#endif
