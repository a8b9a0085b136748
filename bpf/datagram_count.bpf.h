/*
 * datagram_count.bpf.h - datagrams in the histograms of their socket's group.
 *
 * One socket may talk to many others, so turns are kept by conversation: by the
 * number of the flow that this socket sends.
 */
#ifndef LATPROF_DATAGRAM_COUNT_H
#define LATPROF_DATAGRAM_COUNT_H

#include "datagram.bpf.h"
#include "exchange.bpf.h"
#include "peer.bpf.h"

/* The agent sets how many there are before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct exchange);
} datagram_turns SEC(".maps");

/* `tuple`: as the socket sends. */
static __always_inline void datagram_group(struct sock *sk,
					   struct datagram_socket *s,
					   const struct five_tuple *tuple,
					   bool spoke_first)
{
	if (s->grouped)
		return;
	s->grouped = 1;
	if (!s->group)
		s->role = role_of(sk, bpf_ntohs(tuple->source_port),
				  bpf_ntohs(tuple->destination_port),
				  spoke_first);
	s->group = group_decide(sk, tuple, s->role);
	end_note(sk, socket_number(sk), s->group);
}

static __noinline struct exchange *
datagram_turn_begin(const struct datagram_socket *s, __u64 flow)
{
	struct exchange x = { .group = s->group, .role = s->role };

	if (bpf_map_update_elem(&datagram_turns, &flow, &x, BPF_ANY))
		count(failed_inserts);
	return bpf_map_lookup_elem(&datagram_turns, &flow);
}

/* What was kept of a conversation is of this socket's group. */
static __always_inline struct exchange *
datagram_turn(const struct datagram_socket *s, __u64 flow)
{
	struct exchange *x = bpf_map_lookup_elem(&datagram_turns, &flow);

	return x && x->group == s->group ? x : datagram_turn_begin(s, flow);
}

/* Who claims a turn that is asked for, or answered, counts it: a send and a
 * read that is reported late may meet on two CPUs. */
static __always_inline void datagram_spoke(struct exchange *x, __u64 now,
					   bool same)
{
	if (x->role == ROLE_CLIENT) {
		exchange_end(x, false, NULL);
		/* the request before is given up, if this one is another */
		if (x->turn == TURN_ASKED && !same &&
		    now - x->spoke_ns >= BURST_NS) {
			if (x->state & WAS_ANSWERED)
				unanswered_count(x);
			x->turn = TURN_NONE;
		}
		exchange_ask(x, now, false);
	} else if (atomic_replace(&x->turn, TURN_ASKED, TURN_ANSWERED)) {
		exchange_count(x, SERVER, now - x->begin_ns);
	}
}

static __always_inline bool datagrams_take_turns(struct exchange *x,
						 const struct head *head)
{
	if (head->kind == HEAD_QUIC && !(x->state & TAKES_NO_TURNS))
		turns_overlap(x);
	return !(x->state & TAKES_NO_TURNS);
}

/* Queries of DNS are paired with answers by their identification: each has
 * turns of its own. */
static __always_inline bool is_of_dns(const struct head *head)
{
	return head->kind == HEAD_DNS_QUERY || head->kind == HEAD_DNS_ANSWER;
}

static __always_inline __u64 turns_number(__u64 flow, const struct head *head)
{
	return is_of_dns(head) ? mix(flow, head->id + 1) : flow;
}

static __always_inline void datagram_turn_send(const struct datagram_socket *s,
					       __u64 flow, __u64 now,
					       const struct head *head)
{
	struct exchange *x = datagram_turn(s, turns_number(flow, head));

	if (!x)
		return;
	if (!datagrams_take_turns(x, head)) {
		no_turns_count(x);
		return;
	}
	datagram_spoke(x, now, is_of_dns(head));
	atomic_exchange(&x->spoke_ns, now);
}

/* `answer`: number of the flow that this socket answers in. A datagram may be
 * read before its readiness is reported, on another CPU: what this end has said
 * since was said to it. */
static __always_inline void datagram_turn_read(const struct datagram_socket *s,
					       __u64 answer, __u64 now,
					       __u64 ready_ns,
					       const struct head *head)
{
	struct exchange *x = datagram_turn(s, turns_number(answer, head));
	__u64 spoke_ns;

	if (!x)
		return;
	if (!datagrams_take_turns(x, head))
		return;
	x->state |= WAS_ANSWERED;
	exchange_read(x, now, ready_ns, true);
	if (is_of_dns(head) && exchange_end(x, false, NULL))
		return;
	spoke_ns = atomic_add(&x->spoke_ns, 0);
	if (spoke_ns > now)
		datagram_spoke(x, spoke_ns, is_of_dns(head));
}

#endif
