// SPDX-License-Identifier: GPL-2.0-only
/*
 * packet.c - which packets carry payload of a transport.
 *
 * Does not look through extension headers other than hop-by-hop, destination
 * options and fragment: behind any other, a packet counts as one without.
 */
#include "packet.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

static bool transport_carries_payload(int protocol, const void *header,
				      size_t bytes)
{
	const struct tcphdr *tcp = header;

	if (protocol == IPPROTO_UDP)
		return bytes > sizeof(struct udphdr);
	if (protocol != IPPROTO_TCP || bytes < sizeof(*tcp))
		return false;
	return bytes > tcp->doff * 4u;
}

static bool ipv4_carries_payload(const struct iphdr *ip, size_t bytes)
{
	size_t header;

	if (bytes < sizeof(*ip))
		return false;
	header = ip->ihl * 4u;
	if (header > bytes)
		return false;
	if (ntohs(ip->frag_off) & IP_OFFMASK)
		return true;
	return transport_carries_payload(
		ip->protocol, (const char *)ip + header, bytes - header);
}

static bool ipv6_carries_payload(const struct ip6_hdr *ip, size_t bytes)
{
	const unsigned char *at = (const void *)(ip + 1);
	size_t left, header;
	int protocol;

	if (bytes < sizeof(*ip))
		return false;
	left = bytes - sizeof(*ip);
	for (protocol = ip->ip6_nxt; left >= 8;
	     protocol = at[0], at += header, left -= header) {
		if (protocol == IPPROTO_FRAGMENT) {
			if ((at[2] << 8 | at[3]) & 0xfff8)
				return true;
			header = sizeof(struct ip6_frag);
		} else if (protocol == IPPROTO_HOPOPTS ||
			   protocol == IPPROTO_DSTOPTS) {
			header = (at[1] + 1) * 8u;
		} else {
			break;
		}
		if (header > left)
			return false;
	}
	return transport_carries_payload(protocol, at, left);
}

bool packet_carries_payload(const void *packet, size_t bytes)
{
	const struct iphdr *ip = packet;

	if (bytes && ip->version == 4)
		return ipv4_carries_payload(ip, bytes);
	if (bytes && ip->version == 6)
		return ipv6_carries_payload(packet, bytes);
	return false;
}
