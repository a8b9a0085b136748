/*
 * device.bpf.h - the devices that a packet passes on its way out.
 */
#ifndef LATPROF_DEVICE_H
#define LATPROF_DEVICE_H

#include "packet.bpf.h"
#include "ring.bpf.h"

RING(path_devices, path_device);

/* Only where bpf_rdonly_cast() is. */
static __always_inline const struct Qdisc *queue_of(const struct sk_buff *skb)
{
	const struct netdev_queue *queue =
		CAST(struct netdev_queue,
		     (void *)skb->dev->_tx +
			     skb->queue_mapping *
				     bpf_core_type_size(struct netdev_queue));

	return queue->qdisc;
}

/* Whether the queue that the packet was given to can hold it. One that cannot
 * (loopback, veth, tunnels) hands it to the driver in the same call: one stamp
 * serves for both, and the hook of the queue has nothing to do. */
static __always_inline bool has_queue(const struct sk_buff *skb)
{
	if (!bpf_rdonly_cast)
		return true; /* not known without a copy */
	return queue_of(skb)->enqueue;
}

static __always_inline void device_kind(const struct net_device *dev,
					__u8 ret[16])
{
	const struct rtnl_link_ops *ops = dev->rtnl_link_ops;

	__builtin_memset(ret, 0, 16);
	if (ops)
		bpf_probe_read_kernel_str(ret, 16, BPF_CORE_READ(ops, kind));
}

/* Whether packets of this device may go on to another one of this host: a
 * bridge, a bond, a VLAN, a tunnel. What leaves by veth is on its way. */
static __noinline bool is_stacked(const struct net_device *dev)
{
	__u8 kind[16];

	device_kind(dev, kind);
	return kind[0] && !(kind[0] == 'v' && kind[1] == 'e' && kind[2] == 't');
}

/* Two devices may share a bit: then one of them is not announced. */
static __always_inline __u32 device_bit(const struct net_device *dev)
{
	return 1U << (dev->ifindex & 31);
}

static __noinline bool device_announce(__u64 flow, const struct net_device *dev,
				       __u32 lower)
{
	struct path_device *record = RESERVE(path_devices);

	if (!record)
		return false;
	record->flow = flow;
	record->t_ns = bpf_ktime_get_ns();
	record->ifindex = dev->ifindex;
	record->netns = dev->nd_net.net->ns.inum;
	record->lower = lower;
	record->pad = 0;
	__builtin_memcpy(record->name, dev->name, 16);
	device_kind(dev, record->kind);
	SUBMIT(record);
	return true;
}

#endif
