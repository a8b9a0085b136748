/*
 * peer.bpf.h - the watched ends of this host by what their packets carry: a
 * packet without its socket is found by it, and where both ends of a connection
 * are here, a socket that no filter wants by the one that is watched: a message
 * of which one end alone is watched is a half.
 *
 * A watched connection is noted when it is established, before any of its bytes
 * can arrive, or where it is older by processes.bpf.c. What has no one peer (a
 * listener, any UDP) is noted by its port: of several sockets at one port the
 * last.
 *
 * Does not see a peer whose addresses or ports a translator changes (NAT), nor
 * as a peer one of UDP, which has no connection.
 */
#ifndef LATPROF_PEER_H
#define LATPROF_PEER_H

#include "flow.bpf.h"
#include "packet.bpf.h"

#define WATCHED_ENDS 65536

struct watched_end {
	__u64 socket;
	__u32 netns;
	__u32 group; /* 0: not known yet */
	__u32 notes; /* as of struct options */
	__u32 pad;
};

/* By a number of addresses and ports, as the watched end sends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WATCHED_ENDS);
	__type(key, __u64);
	__type(value, struct watched_end);
} watched_ends SEC(".maps");

/* Whether its packets cannot leave its namespace: others may have the same
 * addresses and ports there. */
static __always_inline bool is_local(const struct five_tuple *tuple)
{
	const __u64 *from = tuple->source, *to = tuple->destination;

	return (from[0] == to[0] && from[1] == to[1]) ||
	       (is_mapped(from) && (from[1] >> 32 & 0xff) == 127);
}

static __always_inline __u64 connection_number(const struct five_tuple *tuple,
					       __u32 netns)
{
	return flow_number(tuple, is_local(tuple) ? netns : 0);
}

/* `port` in network byte order. */
static __always_inline __u64 port_number(__u16 port, __u16 protocol,
					 __u32 netns)
{
	return mix(mix(protocol, port), netns);
}

/* A socket that is closed has given back its port (skc_num). */
static __always_inline void tuple_of_connection(struct sock *sk,
						struct five_tuple *ret)
{
	const struct tcp_sock *tp = tcp_of(sk);

	tuple_of_socket(sk, ret);
	if (tp)
		ret->source_port = tp->inet_conn.icsk_inet.inet_sport;
}

static __noinline __u64 stream_number(struct sock *sk)
{
	__u32 netns = netns_number(sk);
	struct five_tuple tuple;

	tuple_of_connection(sk, &tuple);
	if (!tuple.destination_port)
		return port_number(tuple.source_port, IPPROTO_TCP, netns);
	return connection_number(&tuple, netns);
}

static __always_inline __u64 socket_number(const struct sock *sk)
{
	return port_number(bpf_htons(sk->__sk_common.skc_num), IPPROTO_UDP,
			   netns_number(sk));
}

static __noinline void end_note(struct sock *sk, __u64 number, __u32 group)
{
	struct watched_end end = {
		.socket = (__u64)sk,
		.netns = netns_number(sk),
		.group = group,
		.notes = options.notes,
	};
	const struct watched_end *known =
		bpf_map_lookup_elem(&watched_ends, &number);

	if (known && known->socket == end.socket && known->group == group &&
	    known->notes == end.notes)
		return;
	if (bpf_map_update_elem(&watched_ends, &number, &end, BPF_ANY))
		count(failed_inserts);
}

static __noinline void end_forget(__u64 number, __u64 socket)
{
	const struct watched_end *end =
		bpf_map_lookup_elem(&watched_ends, &number);

	if (end && end->socket == socket)
		bpf_map_delete_elem(&watched_ends, &number);
}

/* The end that a packet with this tuple was sent by, or NULL. */
static __noinline const struct watched_end *
end_of(const struct five_tuple *tuple, __u32 netns)
{
	const struct watched_end *end = NULL;
	__u64 number;

	if (tuple->protocol == IPPROTO_TCP) {
		number = connection_number(tuple, netns);
		end = bpf_map_lookup_elem(&watched_ends, &number);
	}
	if (!end) {
		number =
			port_number(tuple->source_port, tuple->protocol, netns);
		end = bpf_map_lookup_elem(&watched_ends, &number);
	}
	return end;
}

static __noinline bool is_peer(struct sock *sk)
{
	const struct watched_end *end;
	struct five_tuple tuple;
	__u64 number;

	if (!options.peers || !wants_protocol(sk))
		return false;
	tuple_of_connection(sk, &tuple);
	tuple_reverse(&tuple);
	number = connection_number(&tuple, netns_number(sk));
	end = bpf_map_lookup_elem(&watched_ends, &number);
	return end && end->notes == options.notes;
}

/* Until the other end has answered, its connection may not be noted. */
static __noinline bool may_become_peer(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_of(sk);

	return options.peers && tp && !tp->bytes_received &&
	       tp->bytes_acked <= 1 /* a SYN counts */;
}

#endif
