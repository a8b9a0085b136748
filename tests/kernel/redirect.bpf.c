/*
 * redirect.bpf.c - a tc classifier for tests: hands all packets on, as the
 * networks of containers do: into the namespace of a device's peer, or out of a
 * device.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

SEC("tc/peer")
int to_peer(struct __sk_buff *skb)
{
	return bpf_redirect_peer(IFINDEX, 0);
}

SEC("tc/out")
int out(struct __sk_buff *skb)
{
	return bpf_redirect(IFINDEX, 0);
}

const char LICENSE[] SEC("license") = "GPL";
