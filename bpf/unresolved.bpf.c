/*
 * unresolved.bpf.c - notes packets that begin to wait for the link address of
 * their next hop; see unresolved.bpf.h.
 *
 * The hook comes when the neighbour's queue has the packet, and its lock is not
 * held any more: the last one of the queue is looked at. Where another CPU was
 * faster that is not the sender's own packet, or there is none: then its own
 * has no note. Two threads that send on one socket may exchange their calls
 * then.
 *
 * Does not see what waits in another namespace than its socket's (a router's),
 * nor a datagram of io_uring or splice.
 */
#include "unresolved.bpf.h"
#include "send_call.bpf.h"
#include "stream.bpf.h"
#include <bpf/bpf_tracing.h>

static __always_inline void next_hop_of(const struct neighbour *neighbour,
					__u64 ret[2])
{
	__u32 ipv4 = 0;

	if (neighbour->tbl->family == AF_INET6) {
		bpf_core_read(ret, 16, &neighbour->primary_key);
		return;
	}
	bpf_core_read(&ipv4, sizeof(ipv4), &neighbour->primary_key);
	map_ipv4(ret, ipv4);
}

/* Of a socket that no helper takes: the packet may leave meanwhile. */
static __always_inline bool
is_noted(const struct sk_buff *skb, const struct sock *sk, struct unresolved *u)
{
	if (!sk || !is_full_socket(sk) ||
	    skb->dev->nd_net.net != sk->__sk_common.skc_net.net)
		return false;
	u->socket = (__u64)sk;
	if (sk->sk_protocol == IPPROTO_TCP)
		return true;
	u->send_ns = send_call_start(sk);
	return sk->sk_protocol == IPPROTO_UDP && u->send_ns;
}

SEC("?tp_btf/neigh_event_send_done")
int BPF_PROG(on_unresolved, const struct neighbour *neighbour, int queued)
{
	struct unresolved u = { .window = options.window };
	const struct sk_buff *skb;

	if (!queued || !neighbour->arp_queue.qlen)
		return 0;
	skb = neighbour->arp_queue.prev;
	if (!is_noted(skb, skb->sk, &u))
		return 0;
	u.since_ns = bpf_ktime_get_ns();
	u.sender.t_ns = u.since_ns;
	u.sender.pid = bpf_get_current_pid_tgid() >> 32;
	process_name(u.sender.comm);
	next_hop_of(neighbour, u.next_hop);
	unresolved_keep((__u64)skb, &u);
	return 0;
}

/* A segment that waited was freed; a datagram is seen by on_drop. */
SEC("?tp_btf/kfree_skb")
int BPF_PROG(on_unresolved_freed, const struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	const struct unresolved *waited;
	const struct stream *s;

	if (!sk || !is_full_socket(sk) || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	waited = unresolved_of((__u64)sk, (__u64)skb);
	if (!waited)
		return 0;
	s = stream_known(sk);
	if (s && s->flow_out)
		address_wait_write(s->flow_out, waited, bpf_ktime_get_ns(),
				   true);
	unresolved_forget((__u64)skb, waited);
	return 0;
}
