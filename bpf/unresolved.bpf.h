/*
 * unresolved.bpf.h - packets that wait until the link address of their next hop
 * is known (ARP, NDP). The kernel keeps them in a queue of the neighbour,
 * before any device, and lets them go where the address is learnt: in no call
 * of their sender. So what the call shows is noted when the packet begins to
 * wait.
 *
 *   neigh_event_send_done:  a packet waits: noted, by its address
 *   net_dev_queue, net_dev_start_xmit, kfree_skb:
 *                           its note is taken, and for stories its wait written
 *
 * Nothing is noted where an address is known, reachable or stale.
 */
#ifndef LATPROF_UNRESOLVED_H
#define LATPROF_UNRESOLVED_H

#include "flight.bpf.h"
#include "flow.bpf.h"

#define UNRESOLVED_PACKETS 4096

FLIGHT(address_waits, address_wait);

struct unresolved {
	__u64 socket; /* its address, for comparison only */
	__u64 since_ns;
	__u64 send_ns; /* of a datagram: its call began */
	__u64 next_hop[2];
	struct task sender;
	__u32 window;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, UNRESOLVED_PACKETS);
	__type(key, __u64);
	__type(value, struct unresolved);
} unresolved_packets SEC(".maps");

/* How many datagrams were noted in a window, and not taken yet: while there are
 * none nobody looks for one. */
__u32 unresolved_datagrams;
__u32 unresolved_window;

static __always_inline void unresolved_keep(__u64 packet,
					    const struct unresolved *u)
{
	if (bpf_map_update_elem(&unresolved_packets, &packet, u, BPF_ANY)) {
		count(failed_inserts);
		return;
	}
	if (!u->send_ns)
		return;
	if (unresolved_window != u->window) {
		unresolved_window = u->window;
		unresolved_datagrams = 0;
	}
	__sync_fetch_and_add(&unresolved_datagrams, 1);
}

static __noinline void unresolved_forget(__u64 packet,
					 const struct unresolved *u)
{
	if (u->send_ns && u->window == unresolved_window &&
	    unresolved_datagrams)
		__sync_fetch_and_add(&unresolved_datagrams, -1);
	bpf_map_delete_elem(&unresolved_packets, &packet);
}

/* The note of a packet of this socket, until it is forgotten; NULL: none, or
 * one of a packet that went where nobody looked. */
static __noinline const struct unresolved *unresolved_of(__u64 socket,
							 __u64 packet)
{
	const struct unresolved *u =
		bpf_map_lookup_elem(&unresolved_packets, &packet);

	if (!u || (u->socket == socket && u->window == options.window))
		return u;
	unresolved_forget(packet, u);
	return NULL;
}

/* The same of a datagram. */
static __always_inline const struct unresolved *
unresolved_datagram(const struct sock *sk, const struct sk_buff *skb)
{
	if (!unresolved_datagrams || unresolved_window != options.window)
		return NULL;
	return unresolved_of((__u64)sk, (__u64)skb);
}

/* Its wait is over; `given_up`: it was freed. */
static __always_inline void address_wait_write(__u64 flow,
					       const struct unresolved *u,
					       __u64 now, bool given_up)
{
	struct address_wait *record;

	if (!held_ns || now - u->since_ns < held_ns)
		return;
	record = flight_next(&address_waits);
	if (!record)
		return;
	record->until_ns = now;
	record->from_ns = u->since_ns;
	record->flow = flow;
	record->next_hop[0] = u->next_hop[0];
	record->next_hop[1] = u->next_hop[1];
	record->given_up = given_up;
	record->pad = 0;
	SUBMIT(record);
}

#endif
