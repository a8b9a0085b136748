/*
 * peer.bpf.h - the other ends of watched connections, where both are on this
 * host: a message of which one end alone is watched is a half.
 *
 * A watched connection is noted when it is established, before any of its bytes
 * can arrive, or where it is older by processes.bpf.c. A socket that no filter
 * wants is found by it at its first event.
 *
 * Does not see a peer whose addresses or ports a translator changes (NAT), nor
 * one of UDP, which has no connection.
 */
#ifndef LATPROF_PEER_H
#define LATPROF_PEER_H

#include "flow.bpf.h"
#include "packet.bpf.h"

#define CONNECTIONS 65536

/* By a number of addresses and ports, as the watched end sends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CONNECTIONS);
	__type(key, __u64);
	__type(value, __u8);
} connections SEC(".maps");

/* Whether its packets cannot leave its namespace: others may have the same
 * addresses and ports there. */
static __always_inline bool is_local(const struct five_tuple *tuple)
{
	const __u64 *from = tuple->source, *to = tuple->destination;

	return (from[0] == to[0] && from[1] == to[1]) ||
	       (!from[0] && (__u32)from[1] == bpf_htonl(0xffff) &&
		(from[1] >> 32 & 0xff) == 127);
}

static __always_inline __u64 connection_number(struct sock *sk, bool reverse)
{
	__u32 netns = sk->__sk_common.skc_net.net->ns.inum;
	const struct tcp_sock *tp = tcp_of(sk);
	struct five_tuple tuple;

	tuple_of_socket(sk, &tuple);
	/* a socket that is closed has given back its port (skc_num) */
	if (tp)
		tuple.source_port = tp->inet_conn.icsk_inet.inet_sport;
	if (reverse)
		tuple_reverse(&tuple);
	return flow_number(&tuple, is_local(&tuple) ? netns : 0);
}

static __noinline void connection_note(struct sock *sk)
{
	__u64 number = connection_number(sk, false);
	__u8 yes = 1;

	if (bpf_map_update_elem(&connections, &number, &yes, BPF_ANY))
		count(failed_inserts);
}

static __noinline void connection_forget(struct sock *sk)
{
	__u64 number = connection_number(sk, false);

	bpf_map_delete_elem(&connections, &number);
}

static __noinline bool is_peer(struct sock *sk)
{
	__u64 number;

	if (!options.peers || !wants_protocol(sk))
		return false;
	number = connection_number(sk, true);
	return bpf_map_lookup_elem(&connections, &number);
}

/* Until the other end has answered, its connection may not be noted. */
static __noinline bool may_become_peer(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_of(sk);

	return options.peers && tp && !tp->bytes_received &&
	       tp->bytes_acked <= 1 /* a SYN counts */;
}

#endif
