/*
 * packet.bpf.h - what we need of a packet's headers, read in place where the
 * kernel has a cast for it (6.2): a copy costs 15 ns more.
 *
 * A packet passes the devices of its way one after the other, and below a
 * tunnel its own transport header stands behind those of the tunnel. Its ports
 * show it: first where the kernel says that the transport header is, then
 * where it says that the inner one is, then by a look at what follows. What was
 * encrypted is not found.
 */
#ifndef LATPROF_PACKET_H
#define LATPROF_PACKET_H

#include "basis.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#ifndef bpf_rdonly_cast
extern void *bpf_rdonly_cast(const void *memory, __u32 type) __ksym __weak;
#endif

#define CAST(type, memory) \
	((const type *)bpf_rdonly_cast(memory, bpf_core_type_id_kernel(type)))
/* Kernel memory, to be read as any type at any place. */
#define VIEW(type, memory) \
	bpf_rdonly_cast(memory, bpf_core_type_id_kernel(type))

/* A field of what is not known to be a pointer: a copy is a call, 15 to 30 ns.
 */
#define SEE(type, memory, field)                                       \
	(bpf_rdonly_cast ? CAST(type, (const void *)(memory))->field : \
			   BPF_CORE_READ((const type *)(memory), field))

/* So far behind the outer transport header an inner one is looked for. */
#define TUNNEL_BYTES 128

static __always_inline void tcp_header_at(unsigned char *transport,
					  struct tcp_header *ret)
{
	const struct tcp_header *header;

	if (bpf_rdonly_cast) {
		header = VIEW(struct tcphdr, transport);
		ret->source = header->source;
		ret->destination = header->destination;
		ret->sequence = header->sequence;
		ret->acknowledge = header->acknowledge;
		ret->offset = header->offset;
		ret->flags = header->flags;
	} else {
		bpf_probe_read_kernel(ret, sizeof(*ret), transport);
	}
}

static __always_inline struct tcp_sock *tcp_of(struct sock *sk)
{
	if (bpf_rdonly_cast)
		return (struct tcp_sock *)CAST(struct tcp_sock, sk);
	return bpf_skc_to_tcp_sock(sk);
}

/* Source and destination port as the socket's own packets carry them. */
static __always_inline __u32 ports_of(const struct sock *sk)
{
	return (__u32)sk->__sk_common.skc_dport << 16 |
	       bpf_htons(sk->__sk_common.skc_num);
}

static __always_inline bool has_ports(const struct tcp_header *header,
				      __u32 ports)
{
	return ((__u32)header->destination << 16 | header->source) == ports;
}

/* How far behind `from` a header with these ports stands, 0 nowhere: behind an
 * outer UDP or GRE header is at least an IP header. */
static __noinline __u32 inner_offset(unsigned char *from, __u32 ports)
{
	__u16 bytes[TUNNEL_BYTES / 2];
	__u16 source = ports, destination = ports >> 16;

	if (bpf_probe_read_kernel(bytes, sizeof(bytes), from))
		return 0;
	for (__u32 i = 10; i < TUNNEL_BYTES / 2 - 1; i++)
		if (bytes[i] == source && bytes[i + 1] == destination)
			return 2 * i;
	return 0;
}

/* Where the TCP header with these ports stands below a tunnel, NULL unknown. */
static __noinline unsigned char *inner_tcp(unsigned char *head,
					   unsigned char *transport,
					   __u32 inner, __u32 ports,
					   struct tcp_header *ret)
{
	__u32 offset;

	if (inner) {
		tcp_header_at(head + inner, ret);
		if (has_ports(ret, ports))
			return head + inner;
	}
	offset = inner_offset(transport, ports);
	if (!offset)
		return NULL;
	tcp_header_at(transport + offset, ret);
	return transport + offset;
}

/* Bytes in each packet that it will be cut into; 0: it will not be. */
static __always_inline __u32 segment_size(const struct sk_buff *skb)
{
	const struct skb_shared_info *info = (void *)(skb->head + skb->end);

	return SEE(struct skb_shared_info, info, gso_size);
}

/* TTL or hop limit. */
static __always_inline __u16 ttl_at(unsigned char *network)
{
	const __u8 *header;
	__u8 copy[9] = {};

	if (bpf_rdonly_cast) {
		header = VIEW(struct iphdr, network);
		return header[0] >> 4 == 4 ? header[8] : header[7];
	}
	bpf_probe_read_kernel(copy, sizeof(copy), network);
	return copy[0] >> 4 == 4 ? copy[8] : copy[7];
}

#endif
