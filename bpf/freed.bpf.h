/*
 * freed.bpf.h - a packet that the kernel frees and nobody has read, by its own
 * headers: at most places it has no socket.
 */
#ifndef LATPROF_FREED_H
#define LATPROF_FREED_H

#include "datagram.bpf.h"

/* What a packet's headers say. */
struct freed {
	struct five_tuple tuple;
	__u32 netns; /* where it is now */
	__u32 bytes; /* of payload, all segments together */
	__u32 sequence; /* of TCP's first byte */
	bool empty;
	bool ports_known; /* its addresses and ports are known */
};

struct ip_front {
	struct ipv6_header ip; /* or IPv4 */
	struct ipv6_fragment cut;
};

/* Length of the IP header, 0 where it is none; the protocol behind it. */
static __always_inline __u32 ip_length(const struct ip_front *front,
				       __u16 *protocol)
{
	const struct ipv4_header *ip = (const void *)front;

	if (ip->version_ihl >> 4 == 4) {
		*protocol = ip->protocol;
		return (ip->version_ihl & 15) * 4;
	}
	if (ip->version_ihl >> 4 != 6)
		return 0;
	*protocol = front->ip.next_header;
	if (*protocol != 44 /* fragment header */)
		return sizeof(front->ip);
	*protocol = front->cut.next_header;
	return sizeof(*front);
}

static __always_inline void transport_read(unsigned char *transport,
					   __u32 behind_ip, struct freed *ret)
{
	struct tcp_header header;
	__u32 length = sizeof(struct udp_header);

	bpf_probe_read_kernel(&header, sizeof(header), transport);
	ret->tuple.source_port = header.source;
	ret->tuple.destination_port = header.destination;
	ret->sequence = bpf_ntohl(header.sequence);
	ret->ports_known = true;
	if (ret->tuple.protocol == IPPROTO_TCP)
		length = (header.offset >> 4) * 4;
	ret->bytes = behind_ip > length ? behind_ip - length : 0;
	ret->empty = ret->tuple.protocol == IPPROTO_TCP && !ret->bytes &&
		     !(header.flags & (TCP_FLAG_SYN | TCP_FLAG_FIN));
}

/* A packet that the stack has not finished has no headers yet. */
static __noinline void headers_read(const struct sk_buff *skb,
				    struct freed *ret)
{
	unsigned char *network = skb->head + skb->network_header;
	struct fragment part = {};
	struct ip_front front = {};
	__u32 length, header;
	__u16 protocol = 0;

	ret->bytes = skb->len;
	if (bpf_probe_read_kernel(&front, sizeof(front), network))
		return;
	header = ip_length(&front, &protocol);
	length = skb->len + (__u32)(skb->data - network);
	if (header < 20 || length < header || length > 1 << 20)
		return;
	fragment_of(network, &part);
	ret->tuple = part.tuple;
	ret->tuple.protocol = protocol;
	ret->bytes = length - header;
	if (part.first && (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP))
		transport_read(network + header, length - header, ret);
}

static __always_inline bool is_ip(const struct sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_IP) ||
	       skb->protocol == bpf_htons(ETH_P_IPV6) || !skb->protocol;
}

#endif
