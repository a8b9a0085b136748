/*
 * translated.bpf.h - packets whose addresses or ports were changed in their
 * sender's own namespace: a masquerade, a service's address that the output
 * chain turns into a container's (kube-proxy, a mesh), what a server's REDIRECT
 * makes of its answers. Their headers are not what their socket says.
 *
 * Does not see what is changed without conntrack for UDP.
 */
#ifndef LATPROF_TRANSLATED_H
#define LATPROF_TRANSLATED_H

#include "flow.bpf.h"
#include "packet.bpf.h"

#define IPS_NAT 0x30 /* of IPS_SRC_NAT or IPS_DST_NAT */
#define NFCT_POINTER (~7UL)

/* Protocol that an IP header says comes next. */
static __always_inline __u8 protocol_at(unsigned char *network)
{
	const __u8 *header;
	__u8 copy[10] = {};

	if (bpf_rdonly_cast) {
		header = VIEW(struct iphdr, network);
		return header[0] >> 4 == 4 ? header[9] : header[6];
	}
	bpf_probe_read_kernel(copy, sizeof(copy), network);
	return copy[0] >> 4 == 4 ? copy[9] : copy[6];
}

/* Whether the connection that conntrack knows of the packet is translated.
 * Where the kernel does not say how that looks: whether it knows one, and the
 * packet is in no tunnel. */
static __noinline bool is_translated(const struct sk_buff *skb)
{
	const struct nf_conn *connection;

	if (!bpf_core_field_exists(skb->_nfct))
		return false;
	connection = (const void *)(BPF_CORE_READ(skb, _nfct) & NFCT_POINTER);
	if (!connection)
		return false;
	if (!bpf_core_field_exists(connection->status))
		return !BPF_CORE_READ(skb, inner_transport_header);
	return BPF_CORE_READ(connection, status) & IPS_NAT;
}

/* Whether `address` stands in the tuple: 0 says nothing. */
static __always_inline bool is_other_ipv4(__u32 address, const __u64 mapped[2])
{
	return address && is_mapped(mapped) &&
	       (__u32)(mapped[1] >> 32) != address;
}

/* Whether the ends in a datagram's header are not its socket's. One that is
 * connected may also send to others. */
static __always_inline bool differs(const struct sock *sk,
				    const struct five_tuple *tuple)
{
	const struct sock_common *ends = &sk->__sk_common;

	return tuple->source_port != bpf_htons(ends->skc_num) ||
	       (ends->skc_dport &&
		(tuple->destination_port != ends->skc_dport ||
		 is_other_ipv4(ends->skc_daddr, tuple->destination))) ||
	       is_other_ipv4(ends->skc_rcv_saddr, tuple->source);
}

/* The ends as the socket knows them. Of one that is not connected only its own
 * is known. */
static __noinline void tuple_untranslate(const struct sock *sk,
					 struct five_tuple *tuple)
{
	struct five_tuple own;

	tuple_of_socket(sk, &own);
	tuple->source_port = own.source_port;
	if (sk->__sk_common.skc_family == AF_INET6 ?
		    own.source[0] | own.source[1] :
		    sk->__sk_common.skc_rcv_saddr)
		__builtin_memcpy(tuple->source, own.source, 16);
	if (!own.destination_port)
		return;
	tuple->destination_port = own.destination_port;
	__builtin_memcpy(tuple->destination, own.destination, 16);
}

#endif
