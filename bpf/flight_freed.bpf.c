/*
 * flight_freed.bpf.c - segments of TCP that the kernel frees and nobody reads:
 * where a message was lost, for its story.
 *
 *   kfree_skb:  the segment's ports and bytes, the kernel's reason and
 *               function, its device: a record
 *
 * Of all connections, as most such segments have no socket: the agent finds by
 * ports and sequence numbers those few that a slow message was in. Only
 * segments with bytes have records, not SYNs and bare ACKs.
 *
 * Does not see what the kernel frees as consumed (XDP), nor what is lost
 * outside this kernel.
 */
#include "freed.bpf.h"
#include "ring.bpf.h"
#include <bpf/bpf_tracing.h>

RING(freed_segments, freed_segment);

SEC("?tp_btf/kfree_skb")
int BPF_PROG(on_flight_freed, const struct sk_buff *skb, void *location,
	     int reason)
{
	const struct net_device *dev = skb->dev;
	struct freed_segment *record;
	struct freed f = {};

	if (!is_ip(skb))
		return 0;
	headers_read(skb, &f);
	if (!f.ports_known || f.tuple.protocol != IPPROTO_TCP || !f.bytes)
		return 0;
	record = RESERVE(freed_segments);
	if (!record)
		return 0;
	record->t_ns = bpf_ktime_get_ns();
	record->location = (__u64)location;
	record->start = f.sequence;
	record->end = f.sequence + f.bytes;
	record->source_port = bpf_ntohs(f.tuple.source_port);
	record->destination_port = bpf_ntohs(f.tuple.destination_port);
	record->reason = reason;
	/* a socket's queue keeps other things in `dev` */
	bpf_probe_read_kernel(record->device, 16, dev ? dev->name : NULL);
	SUBMIT(record);
	return 0;
}
