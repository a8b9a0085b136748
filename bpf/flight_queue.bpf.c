/*
 * flight_queue.bpf.c - what stands in devices' queues: a part of the flight
 * recorder.
 *
 *   net_dev_queue:  a packet is handed over, of any socket or of none: its ends
 *                   (by the program of qdisc.bpf.c)
 *   qdisc_enqueue:  the queue has it: written, with what stood before it
 *
 * Of packets that found an empty queue only those of watched sockets are
 * written. The queue's lock is held when it has a packet: the order of times is
 * that of the packets.
 *
 * Does not see packets that were dropped at the entry, nor what a queue that
 * counts by CPU holds (pfifo_fast). A packet's ends are in its own headers: of
 * what is encrypted or in a tunnel those outside. While no watched socket uses
 * a queue only the second hook is attached: such packets have no ends and no
 * size.
 */
#include "handed.bpf.h"
#include <bpf/bpf_tracing.h>

#define COUNTS_BY_CPU 0x20 /* TCQ_F_CPUSTATS */

FLIGHT(queued_packets, queued_packet);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct device_queue);
} device_queues SEC(".maps");

static __always_inline void kind_of(const struct Qdisc *queue, __u8 ret[16])
{
	bpf_probe_read_kernel_str(ret, 16, BPF_CORE_READ(queue, ops, id));
}

/* A token bucket has a queue within, by default a FIFO. */
static __noinline void queue_describe(const struct Qdisc *queue,
				      const struct net_device *dev,
				      struct device_queue *ret)
{
	const struct Qdisc *within = NULL;
	const void *private;

	ret->since_ns = bpf_ktime_get_ns();
	ret->netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	ret->ifindex = BPF_CORE_READ(dev, ifindex);
	ret->handle = BPF_CORE_READ(queue, handle);
	ret->parent = BPF_CORE_READ(queue, parent);
	bpf_probe_read_kernel_str(ret->device, 16, dev->name);
	kind_of(queue, ret->kind);
	if (ret->kind[0] != 't' || ret->kind[1] != 'b' || ret->kind[2] != 'f' ||
	    !bpf_core_field_exists(((struct Qdisc *)0)->privdata) ||
	    !bpf_core_field_exists(((struct tbf_sched_data *)0)->qdisc))
		return;
	private = (const void *)queue +
		  bpf_core_field_offset(((struct Qdisc *)0)->privdata);
	within = BPF_CORE_READ((const struct tbf_sched_data *)private, qdisc);
	kind_of(within, ret->within);
}

static __always_inline bool queue_is_known(const struct device_queue *known,
					   const struct Qdisc *queue,
					   const struct net_device *dev)
{
	return known && known->handle == queue->handle &&
	       known->parent == queue->parent &&
	       known->ifindex == (__u32)dev->ifindex;
}

static __noinline void queue_announce(__u32 id, const struct Qdisc *queue,
				      const struct net_device *dev)
{
	struct device_queue record = {};

	queue_describe(queue, dev, &record);
	bpf_map_update_elem(&device_queues, &id, &record, BPF_ANY);
}

SEC("?tp_btf/qdisc_enqueue")
int BPF_PROG(on_flight_queued, const struct Qdisc *queue,
	     const struct netdev_queue *tx, const struct sk_buff *skb)
{
	__u32 zero = 0, id = low_half((__u64)queue), backlog;
	struct queued_packet *p;
	struct handed_over *h = bpf_map_lookup_elem(&handed_overs, &zero);

	/* who segments it has freed it: its address is all that is left */
	if (!h || (h->skb == (__u64)skb && !h->t_ns))
		return 0;
	if (!queue_is_known(bpf_map_lookup_elem(&device_queues, &id), queue,
			    tx->dev))
		queue_announce(id, queue, tx->dev);
	p = flight_next(&queued_packets);
	if (!p)
		return 0;
	*p = h->packet;
	p->t_ns = bpf_ktime_get_ns();
	p->handed_ns = p->t_ns - h->t_ns;
	p->queue = id;
	backlog = queue->qstats.backlog;
	p->backlog_bytes = backlog > p->bytes ? backlog - p->bytes : 0;
	if (h->skb != (__u64)skb)
		p->bytes = NOT_KNOWN;
	h->skb = 0;
	if (queue->flags & COUNTS_BY_CPU)
		p->backlog_bytes = NOT_KNOWN;
	SUBMIT(p);
	return 0;
}
