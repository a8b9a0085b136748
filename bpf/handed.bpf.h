/*
 * handed.bpf.h - a packet on its way from net_dev_queue to its device's queue:
 * a part of the flight recorder.
 */
#ifndef LATPROF_HANDED_H
#define LATPROF_HANDED_H

#include "datagram_send.bpf.h"
#include "device.bpf.h"
#include "flight.bpf.h"
#include "stream.bpf.h"

#define NOT_FIRST_FRAGMENT 0x1fff

/* Between both hooks: on the same CPU nothing comes in between. */
struct handed_over {
	__u64 skb;
	__u64 t_ns; /* 0: of no interest */
	struct queued_packet packet;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handed_over);
} handed_overs SEC(".maps");

/* The first bytes of a packet from its IP header on. */
union ip_headers {
	struct ipv4_header v4;
	struct ipv6_header v6;
};

static __always_inline bool has_port(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

static __noinline void packet_ends(const struct sk_buff *skb,
				   struct queued_packet *ret)
{
	unsigned char *network = skb->head + skb->network_header;
	union ip_headers front = {};
	__u32 header = 0, ports = 0;

	__builtin_memset(ret->source, 0, sizeof(ret->source));
	__builtin_memset(ret->destination, 0, sizeof(ret->destination));
	ret->source_port = ret->destination_port = ret->protocol = 0;
	bpf_probe_read_kernel(&front, sizeof(front), network);
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		ret->source[10] = ret->source[11] = 0xff;
		ret->destination[10] = ret->destination[11] = 0xff;
		__builtin_memcpy(ret->source + 12, &front.v4.source, 4);
		__builtin_memcpy(ret->destination + 12, &front.v4.destination,
				 4);
		ret->protocol = front.v4.protocol;
		if (!(front.v4.fragment & bpf_htons(NOT_FIRST_FRAGMENT)))
			header = (front.v4.version_ihl & 15) * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		__builtin_memcpy(ret->source, front.v6.source, 16);
		__builtin_memcpy(ret->destination, front.v6.destination, 16);
		ret->protocol = front.v6.next_header;
		header = sizeof(front.v6);
	}
	if (!header || !has_port(ret->protocol))
		return;
	bpf_probe_read_kernel(&ports, sizeof(ports), network + header);
	ret->source_port = bpf_ntohs(ports);
	ret->destination_port = bpf_ntohs(ports >> 16);
}

/* Of the file that a program has of it: /proc has its owner by it. */
static __always_inline __u32 socket_inode(const struct sock *sk)
{
	const struct socket_alloc *whole = (const void *)sk->sk_socket;

	return whole ? BPF_CORE_READ(whole, vfs_inode.i_ino) : 0;
}

static __always_inline bool is_followed(struct sock *sk)
{
	if (sk->sk_protocol == IPPROTO_TCP)
		return stream_known(sk);
	return sk->sk_protocol == IPPROTO_UDP && datagram_known(sk);
}

/* Notes a packet that a device with a queue is handed. */
static __always_inline void handed_note(const struct sk_buff *skb)
{
	const __u32 *cb = (const void *)skb->cb; /* struct qdisc_skb_cb */
	const struct Qdisc *queue;
	struct handed_over *h;
	struct sock *sk;
	__u32 zero = 0;

	if (!bpf_rdonly_cast)
		return;
	h = bpf_map_lookup_elem(&handed_overs, &zero);
	queue = queue_of(skb);
	if (!h || !queue)
		return;
	h->skb = (__u64)skb;
	h->t_ns = 0;
	sk = skb->sk;
	if (sk && !is_full_socket(sk))
		sk = NULL;
	if (!queue->qstats.backlog && !(sk && is_followed(sk)))
		return;
	h->t_ns = bpf_ktime_get_ns();
	h->packet.bytes = cb[0];
	h->packet.inode = sk ? socket_inode(sk) : 0;
	packet_ends(skb, &h->packet);
}

#endif
