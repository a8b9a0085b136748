/*
 * flow.bpf.h - one number for one direction of a conversation.
 *
 * Both ends compute it from what both see: the addresses and ports as the
 * sender wrote them and what keeps apart those that are equal. For TCP that is
 * the first sequence number, so that a port that is used again is another flow;
 * for UDP it is the sender's network namespace, since containers may have the
 * addresses of others. A packet that arrives still knows the socket that sent
 * it; where it does not, the agent looks for the only sender with such
 * addresses. A translator on the way (NAT) makes two flows of one. It leaves
 * TCP's sequence numbers as they are: the agent joins the two by the first ones
 * of both directions.
 * What the number stands for is sent once by each end.
 */
#ifndef LATPROF_FLOW_H
#define LATPROF_FLOW_H

#include "watch.bpf.h"

RING(flows, flow);
RING(tasks, task);

struct five_tuple {
	__u64 source[2];
	__u64 destination[2];
	__u16 source_port; /* network byte order */
	__u16 destination_port;
	__u16 protocol;
	__u16 pad;
};

/* TCP: sequence numbers of the first byte each way; UDP: 0 */
struct first_bytes {
	__u32 sequence;
	__u32 answer;
};

/* What a namespace is known by: its cookie, which no other one has; before
 * Linux 5.12 (3d368ab87cf6) its number, which a later one may get. */
static __always_inline __u64 cookie_of(const struct net *net)
{
	return bpf_core_field_exists(net->net_cookie) ? net->net_cookie :
							net->ns.inum;
}

static __always_inline __u64 netns_cookie(const struct sock *sk)
{
	return cookie_of(sk->__sk_common.skc_net.net);
}

static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash ^= value;
	hash *= 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 29);
}

/* `apart`: TCP's first sequence number, or the cookie of UDP's sending
 * namespace. */
static __always_inline __u64 flow_number(const struct five_tuple *tuple,
					 __u64 apart)
{
	__u64 hash = mix(apart + 1, tuple->source[0]);

	hash = mix(hash, tuple->source[1]);
	hash = mix(hash, tuple->destination[0]);
	hash = mix(hash, tuple->destination[1]);
	return mix(hash, (__u64)tuple->source_port << 32 |
				 (__u64)tuple->destination_port << 16 |
				 tuple->protocol);
}

/* The tuple as the socket's own packets carry it. */
static __always_inline void tuple_of_socket(const struct sock *sk,
					    struct five_tuple *ret)
{
	if (sk->__sk_common.skc_family == AF_INET6) {
		bpf_core_read(ret->source, 16,
			      &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(ret->destination, 16,
			      &sk->__sk_common.skc_v6_daddr);
	} else {
		map_ipv4(ret->source, sk->__sk_common.skc_rcv_saddr);
		map_ipv4(ret->destination, sk->__sk_common.skc_daddr);
	}
	ret->source_port = bpf_htons(sk->__sk_common.skc_num);
	ret->destination_port = sk->__sk_common.skc_dport;
	ret->protocol = sk->sk_protocol;
	ret->pad = 0;
}

static __always_inline void tuple_reverse(struct five_tuple *tuple)
{
	__u64 address;
	__u16 port = tuple->source_port;

	for (int i = 0; i < 2; i++) {
		address = tuple->source[i];
		tuple->source[i] = tuple->destination[i];
		tuple->destination[i] = address;
	}
	tuple->source_port = tuple->destination_port;
	tuple->destination_port = port;
}

/* False where the ring was full: the caller tries again next time. */
static __always_inline bool flow_announce(__u64 flow,
					  const struct five_tuple *tuple,
					  const struct sock *sk, __u16 side,
					  __u16 group, struct first_bytes first,
					  __u64 sender_netns)
{
	struct flow *record = RESERVE(flows);

	if (!record)
		return false;
	record->flow = flow;
	record->t_ns = bpf_ktime_get_ns();
	__builtin_memcpy(record->source, tuple->source, 16);
	__builtin_memcpy(record->destination, tuple->destination, 16);
	record->sender_netns = sender_netns;
	record->netns = netns_number(sk);
	record->source_port = bpf_ntohs(tuple->source_port);
	record->destination_port = bpf_ntohs(tuple->destination_port);
	record->protocol = tuple->protocol;
	record->side = side;
	record->first_sequence = first.sequence;
	record->first_answer = first.answer;
	/* what was accepted is a copy of its listener, with its limit */
	record->accepted =
		sk->sk_protocol == IPPROTO_TCP && sk->sk_max_ack_backlog;
	record->group = group;
	SUBMIT(record);
	return true;
}

/* Announced last, by number: a server takes thousands of connections a second,
 * and each begins with its process. */
#define KNOWN_TASKS 1024 /* a power of two */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KNOWN_TASKS);
	__type(key, __u32);
	__type(value, struct task);
} known_tasks SEC(".maps");

static __always_inline bool is_same_task(const struct task *a,
					 const struct task *b)
{
	return a->pid == b->pid && a->comm[0] == b->comm[0] &&
	       a->comm[1] == b->comm[1];
}

static __always_inline bool task_write(const struct task *now)
{
	struct task *record = RESERVE(tasks);

	if (!record)
		return false;
	*record = *now;
	SUBMIT(record);
	return true;
}

/* A thread may have a name of its own (`pool-worker-5`); what users call the
 * process by is that of its first one. */
static __always_inline void process_name(__u64 ret[2])
{
	const struct task_struct *task = bpf_get_current_task_btf();
	const struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	ret[0] = ret[1] = 0;
	bpf_core_read_str(ret, 16, &leader->comm);
}

static __always_inline bool task_announce_named(const struct task *now)
{
	__u32 at = now->pid & (KNOWN_TASKS - 1);
	struct task *last = bpf_map_lookup_elem(&known_tasks, &at);

	if (last && is_same_task(last, now))
		return true;
	if (!task_write(now))
		return false;
	if (last)
		*last = *now;
	return true;
}

static __always_inline bool task_announce(__u32 pid, __u64 now_ns)
{
	struct task now = { .pid = pid, .t_ns = now_ns };

	process_name(now.comm);
	return task_announce_named(&now);
}

/* Whom a process has working for it; its first thread has its name. */
static __noinline void thread_announce(__u64 now_ns)
{
	const struct task_struct *task = bpf_get_current_task_btf();
	struct task now = { .pid = FOLLOW(task, pid), .t_ns = now_ns };

	bpf_core_read_str(now.comm, 16, &task->comm);
	task_announce_named(&now);
}

#endif
