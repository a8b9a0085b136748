/*
 * header.bpf.h - what we need of a packet's headers, read in place where the
 * kernel has a cast for it (6.2): a copy costs 15 ns more.
 */
#ifndef LATPROF_HEADER_H
#define LATPROF_HEADER_H

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

extern void *bpf_rdonly_cast(const void *memory, __u32 type) __ksym __weak;

#define VIEW(type, memory) \
	((const __u8 *)bpf_rdonly_cast(memory, bpf_core_type_id_kernel(type)))

static __always_inline void tcp_header_at(unsigned char *transport,
					  struct tcp_header *ret)
{
	const struct tcp_header *header;

	if (bpf_rdonly_cast) {
		header = (const void *)VIEW(struct tcphdr, transport);
		ret->sequence = header->sequence;
		ret->offset = header->offset;
	} else {
		bpf_probe_read_kernel(ret, sizeof(*ret), transport);
	}
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
