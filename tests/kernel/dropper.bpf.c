/*
 * dropper.bpf.c - a tc classifier for tests: drops what nobody asked to be sent
 * (ICMPv6, multicast listener reports) and, of the packets that carry payload,
 * those whose numbers are in DROPPED, a list for `case`. Counted from 1.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

__u32 payloads;

static int is_dropped(__u32 number)
{
	switch (number) {
		DROPPED
		return 1;
	default:
		return 0;
	}
}

SEC("tc")
int drop(struct __sk_buff *skb)
{
	__u32 transport, bytes;
	__u8 ip[40] = {}, tcp_words = 0, protocol;

	/* not every device has an Ethernet header before it */
	if (bpf_skb_load_bytes_relative(skb, 0, ip, 20, BPF_HDR_START_NET))
		return TC_ACT_OK;
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		protocol = ip[6];
		transport = 40;
		bytes = transport + (ip[4] << 8) + ip[5];
	} else if (skb->protocol == bpf_htons(ETH_P_IP)) {
		protocol = ip[9];
		transport = (ip[0] & 15) * 4;
		bytes = (ip[2] << 8) + ip[3];
	} else {
		return TC_ACT_OK;
	}
	if (protocol == IPPROTO_ICMPV6 || protocol == IPPROTO_HOPOPTS)
		return TC_ACT_SHOT;
	if (protocol == IPPROTO_TCP) {
		if (bpf_skb_load_bytes_relative(skb, transport + 12, &tcp_words,
						1, BPF_HDR_START_NET))
			return TC_ACT_OK;
		if (bytes <= transport + (tcp_words >> 4) * 4)
			return TC_ACT_OK; /* no payload */
	} else if (protocol != IPPROTO_UDP) {
		return TC_ACT_OK;
	}
	return is_dropped(__sync_add_and_fetch(&payloads, 1)) ? TC_ACT_SHOT :
								TC_ACT_OK;
}

const char LICENSE[] SEC("license") = "GPL";
