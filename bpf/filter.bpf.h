/*
 * filter.bpf.h - which sockets are asked for: a list of terms, each about one
 * fact of a socket.
 *
 * A socket of UDP without a remote end is asked with the port that its datagram
 * goes to, and wanted as a whole from then on.
 *
 * Terms of one kind are alternatives, of different kinds all must hold, and one
 * that is negated excludes what it holds for. A fact that a socket does not
 * have matches nothing: an unconnected one of UDP has no remote end, and
 * without a device of its own no interface. What is not known yet counts as if
 * the socket were wanted, and is asked again at its next event.
 *
 * A socket's interface is the one it is bound to, else that of its route, else
 * the one through which it got something last; by its name, in the socket's
 * namespace. Its user is the one who made it, or accepted it.
 *
 * Does not see that the route or the user of a socket changes later.
 */
#ifndef LATPROF_FILTER_H
#define LATPROF_FILTER_H

#include "ring.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define CGROUP_DEPTH 16
#define DEVICE_CHAINS 256 /* of a namespace's devices, by index */
#define DEVICES_IN_A_CHAIN 32

LABELS(term_kind);

/* Not constant: the agent may change them while the programs run. */
struct options options SEC(".data.options");

/* What is known of the processes that have, or made, a socket; a connection
 * that is accepted has the mark of its listener. */
struct mark {
	__u32 notes; /* as of struct options: another one is of an older filter
		      */
	__u32 facts; /* bits, the `mask` of terms that hold */
};

INHERITED_STORAGE(marked, struct mark);

enum answer { NO, YES, NOT_YET };

enum wanted { UNWANTED, WANTED, WANTED_SO_FAR };

/* A namespace's number, for what is done once for a connection or a socket. A
 * pointer that is followed from one that the verifier trusts costs it a search
 * in all of the kernel's types each time that it passes: some 2 ms here.
 * What a helper reads costs it nothing. */
static __always_inline __u32 netns_number(const struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
}

static __always_inline __u32 marks_of(struct sock *sk)
{
	const struct mark *mark = bpf_sk_storage_get(&marked, sk, 0, 0);

	return mark && mark->notes == options.notes ? mark->facts :
						      options.zero;
}

static __always_inline void map_ipv4(__u64 ret[2], __u32 address)
{
	ret[0] = 0;
	ret[1] = (__u64)address << 32 | bpf_htonl(0xffff);
}

static __always_inline bool is_mapped(const __u64 address[2])
{
	return !address[0] && (__u32)address[1] == bpf_htonl(0xffff);
}

/* A socket belongs to the cgroup of the process that made it, or of a parent
 * of that cgroup: a command may make groups of its own below ours. */
static __always_inline bool is_in_cgroup(const struct sock *sk, __u64 id)
{
	struct cgroup *group = BPF_CORE_READ(sk, sk_cgrp_data.cgroup);

	for (int i = 0; i < CGROUP_DEPTH && group; i++) {
		if (BPF_CORE_READ(group, kn, id) == id)
			return true;
		group = BPF_CORE_READ(group, self.parent, cgroup);
	}
	return false;
}

/* A subnet of IPv6 that has the mapped addresses in it has none of IPv4. */
static __always_inline bool is_remote_in(const struct sock *sk,
					 const struct term *term)
{
	__u64 remote[2];

	if (!BPF_CORE_READ(sk, __sk_common.skc_dport))
		return false;
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6)
		bpf_core_read(remote, 16, &sk->__sk_common.skc_v6_daddr);
	else
		map_ipv4(remote, BPF_CORE_READ(sk, __sk_common.skc_daddr));
	if (is_mapped(remote) && (__u32)term->mask[1] != ~0U)
		return false;
	return (remote[0] & term->mask[0]) == term->value[0] &&
	       (remote[1] & term->mask[1]) == term->value[1];
}

/* A device of a namespace by its index; NULL: there is none. */
static __always_inline const struct net_device *device_at(const struct net *net,
							  int index)
{
	struct hlist_head *chains = BPF_CORE_READ(net, dev_index_head);
	struct hlist_head *chain = &chains[index & (DEVICE_CHAINS - 1)];
	struct hlist_node *node = BPF_CORE_READ(chain, first);
	const struct net_device *dev;

	for (int i = 0; i < DEVICES_IN_A_CHAIN && node; i++) {
		dev = (void *)node -
		      bpf_core_field_offset(struct net_device, index_hlist);
		if (BPF_CORE_READ(dev, ifindex) == index)
			return dev;
		node = BPF_CORE_READ(node, next);
	}
	return NULL;
}

/* The device through which a socket got something last; 0: none. Moved by
 * 0c0a5ef809f9 of Linux 5.17. */
static __always_inline int received_through(const struct sock *sk)
{
	const struct inet_sock___before_5_17 *inet = (const void *)sk;

	if (bpf_core_field_exists(sk->sk_rx_dst_ifindex))
		return BPF_CORE_READ(sk, sk_rx_dst_ifindex);
	return BPF_CORE_READ(inet, rx_dst_ifindex);
}

static __always_inline const struct net_device *device_of(const struct sock *sk)
{
	int index = BPF_CORE_READ(sk, __sk_common.skc_bound_dev_if);
	const struct net_device *dev = NULL;

	if (!index) {
		dev = BPF_CORE_READ(sk, sk_dst_cache, dev);
		index = received_through(sk);
	}
	if (!dev && index)
		dev = device_at(BPF_CORE_READ(sk, __sk_common.skc_net.net),
				index);
	return dev;
}

static __always_inline enum answer is_of_interface(const struct sock *sk,
						   const struct term *term)
{
	const struct net_device *dev = device_of(sk);
	__u64 name[2] = {};

	if (!dev)
		return BPF_CORE_READ(sk, __sk_common.skc_dport) ? NOT_YET : NO;
	bpf_core_read_str(name, sizeof(name), &dev->name);
	return name[0] == term->value[0] && name[1] == term->value[1];
}

/* Until it is accepted, a connection has its listener's user. */
static __always_inline enum answer is_of_user(const struct sock *sk, __u32 uid)
{
	if (BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP &&
	    !BPF_CORE_READ(sk, sk_socket))
		return NOT_YET;
	return BPF_CORE_READ(sk, sk_uid.val) == uid;
}

struct facts {
	__u64 socket; /* its address */
	__u32 marks; /* of the processes that have it */
	__u32 remote; /* port that its datagram goes to; 0: the socket's own */
};

/* An enum answer. Not static, and of no more than memory, so that the verifier
 * looks at it once for all who call it. */
SHARED int term_holds(const struct facts *facts, __u32 index)
{
	const struct term *term;
	const struct sock *sk;
	__u16 local, remote;

	if (!facts || index >= MOST_TERMS)
		return NO;
	term = &options.terms[index];
	sk = (const struct sock *)facts->socket;
	local = BPF_CORE_READ(sk, __sk_common.skc_num);
	remote = facts->remote ?:
			 bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	switch (term->kind) {
	case TERM_NETNS:
		return netns_number(sk) == term->value[0];
	case TERM_PORT:
		return local == term->value[0] || remote == term->value[0];
	case TERM_LOCAL_PORT:
		return local == term->value[0];
	case TERM_REMOTE_PORT:
		return remote == term->value[0];
	case TERM_UID:
		return is_of_user(sk, term->value[0]);
	case TERM_REMOTE:
		return is_remote_in(sk, term);
	case TERM_PID:
	case TERM_COMM:
		return !!(facts->marks & term->mask[0]);
	case TERM_INTERFACE:
		return is_of_interface(sk, term);
	case TERM_CGROUP:
		return is_in_cgroup(sk, term->value[0]);
	default:
		return NO;
	}
}

struct question {
	struct facts facts;
	__u32 asked; /* kinds, as bits */
	__u32 met;
	bool excluded;
	bool again;
};

static long term_ask(__u32 index, struct question *q)
{
	const struct term *term;
	int answer;

	if (index >= MOST_TERMS)
		return 1;
	term = &options.terms[index];
	if (term->kind == TERM_NONE)
		return 1;
	answer = term_holds(&q->facts, index);
	if (answer == NOT_YET) {
		q->again = true;
		answer = term->negated ? NO : YES;
	}
	if (!term->negated)
		q->asked |= 1U << (term->kind & 31);
	if (!answer)
		return 0;
	if (term->negated) {
		q->excluded = true;
		return 1;
	}
	q->met |= 1U << (term->kind & 31);
	return 0;
}

/* A subflow of MPTCP is filled and emptied by the socket above it, which we do
 * not follow. */
static __always_inline bool is_subflow(const struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	bool subflow = false;

	if (sk->sk_protocol == IPPROTO_TCP &&
	    bpf_core_field_exists(tp->is_mptcp))
		bpf_core_read(&subflow, sizeof(subflow), &tp->is_mptcp);
	return subflow;
}

/* A raw socket may have the protocol, and none of its state. */
static __always_inline bool wants_protocol(const struct sock *sk)
{
	if (sk->sk_protocol == IPPROTO_UDP)
		return options.udp && sk->sk_type == SOCK_DGRAM;
	if (sk->sk_protocol != IPPROTO_TCP || sk->sk_type != SOCK_STREAM ||
	    !options.tcp)
		return false;
	return !is_subflow(sk);
}

/* `remote`: the port that its datagram goes to, 0: that of the socket, if any.
 */
static __always_inline enum wanted terms_hold(struct sock *sk, __u16 remote)
{
	struct question q = {
		.facts = { .socket = (__u64)sk,
			   .marks = marks_of(sk),
			   .remote = remote },
		.asked = options.zero,
		.met = options.zero,
	};

	bpf_loop(MOST_TERMS, term_ask, &q, 0);
	if (q.excluded || q.met != q.asked)
		return UNWANTED;
	return q.again ? WANTED_SO_FAR : WANTED;
}

static __always_inline enum wanted wants_socket_to(struct sock *sk,
						   __u16 remote)
{
	return wants_protocol(sk) ? terms_hold(sk, remote) : UNWANTED;
}

static __always_inline enum wanted wants_socket(struct sock *sk)
{
	return wants_socket_to(sk, 0);
}

/* The terms of namespaces alone, which come first: for whoever has no socket
 * at hand that a helper would take. Not static, as above. */
SHARED int wants_netns(__u32 inum)
{
	__u32 others = 1;

	for (int i = 0; i < MOST_TERMS; i++) {
		const struct term *term = &options.terms[i];

		if (term->kind != TERM_NETNS)
			break;
		if (term->value[0] == inum)
			return !term->negated;
		others &= term->negated;
	}
	return others;
}

#endif
