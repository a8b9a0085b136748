/*
 * pass.bpf.c - an XDP program for tests that passes all packets on. On a device
 * without XDP of its own the kernel copies packets for it (generic XDP).
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp")
int pass(struct xdp_md *packet)
{
	return XDP_PASS;
}

const char LICENSE[] SEC("license") = "GPL";
