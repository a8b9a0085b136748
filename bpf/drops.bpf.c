/*
 * drops.bpf.c - packets of watched flows that the kernel frees and nobody
 * reads, by place, reason and function. Counted, never recorded; only where
 * messages are counted, too (histogram.bpf.h).
 *
 *   kfree_skb:  the socket that was to get it, the one that sent it, or the
 *               packet's own addresses (peer.bpf.h)  ->  a count in `drops`
 *
 * Many packets are freed that way and are no loss (a probe to a closed port, a
 * duplicate, what a filter refused): all of a watched flow are counted with the
 * kernel's reason, which user space judges by its name. One packet is counted
 * once, at the end where it was lost: the receiver's where that is watched.
 *
 * Does not see what the kernel frees as consumed, though nobody got it: a SYN
 * that found its listener's queue full (listener.bpf.h counts these), and what
 * an XDP program drops. Of fragments only the first has a flow, once they have
 * left their socket.
 */
#include "freed.bpf.h"
#include "loss.bpf.h"
#include <bpf/bpf_tracing.h>

/* The socket of a packet is the one that sent it until IP has it again; then,
 * with early demultiplexing and in its queue, the one that is to get it. A
 * closed one has given back its port (skc_num). */
static __always_inline __u8 place_at(const struct sock *sk,
				     const struct freed *f)
{
	const struct inet_sock *inet = (const struct inet_sock *)sk;

	return f->ports_known &&
			       f->tuple.destination_port ==
				       BPF_CORE_READ(inet, inet_sport) &&
			       f->tuple.source_port ==
				       sk->__sk_common.skc_dport ?
		       DROP_AT_RECEIVER :
		       DROP_AT_SENDER;
}

static __always_inline bool at_socket(struct sock *sk, struct freed *f,
				      __u8 place, struct drop *ret)
{
	struct five_tuple tuple = f->tuple;

	if (!is_full_socket(sk) || !is_watched(sk))
		return false;
	if (!f->ports_known)
		tuple_of_socket(sk, &tuple);
	else if (place == DROP_AT_RECEIVER)
		tuple_reverse(&tuple);
	ret->group = group_of_socket(sk, &tuple);
	ret->place = place;
	ret->protocol = sk->sk_protocol;
	return true;
}

static __always_inline __u8 place_of(__u32 netns, __u32 here, __u8 place)
{
	return netns == here || !here ? place : DROP_BETWEEN;
}

/* A packet without a socket of ours: by what it carries. Not static, so that
 * the verifier looks at it once. */
SHARED int at_end(struct freed *f, struct drop *ret)
{
	const struct watched_end *end;

	if (!f || !ret || !f->ports_known)
		return false;
	tuple_reverse(&f->tuple);
	end = end_of(&f->tuple, f->netns);
	tuple_reverse(&f->tuple);
	if (end) {
		ret->place = place_of(end->netns, f->netns, DROP_AT_RECEIVER);
		ret->group = end->group;
		return true;
	}
	end = end_of(&f->tuple, f->netns);
	if (!end)
		return false;
	ret->place = place_of(end->netns, f->netns, DROP_AT_SENDER);
	ret->group = end->group;
	return true;
}

/* The group that the packet was sent by, for what is lost without a trace. */
static __noinline __u32 sender_of(const struct freed *f)
{
	const struct watched_end *end = NULL;

	if (f->ports_known)
		end = end_of(&f->tuple, f->netns);
	return end ? end->group : GROUP_UNDECIDED;
}

/* The packet left the namespace of its socket, and may be at its receiver. */
static __always_inline void look_further(struct freed *f, struct drop *ret)
{
	__u16 sender = ret->group;

	ret->place = DROP_BETWEEN;
	at_end(f, ret);
	ret->sender = sender;
}

static __always_inline bool find_flow(const struct sk_buff *skb,
				      struct sock *receiver, struct freed *f,
				      struct drop *ret)
{
	struct sock *sk = skb->sk;
	__u8 place = DROP_AT_RECEIVER;

	if (receiver) {
		sk = receiver;
	} else if (sk) {
		if (!is_full_socket(sk))
			sk = NULL;
		else
			place = place_at(sk, f);
	}
	if ((!sk || !at_socket(sk, f, place, ret)) && !at_end(f, ret))
		return false;
	if (ret->place != DROP_AT_SENDER || !sk) {
		ret->sender = sender_of(f);
		return true;
	}
	ret->sender = ret->group;
	if (f->netns && f->netns != sk->__sk_common.skc_net.net->ns.inum)
		look_further(f, ret);
	return true;
}

/* The handle of the queue that the device has for the packet, or where that has
 * none, its place below the root. */
static __always_inline __u32 queue_handle(const struct net_device *dev,
					  __u16 queue)
{
	struct Qdisc *qdisc;
	__u64 queues = 0; /* a number: pointers of types are not added to */
	__u32 handle;

	bpf_core_read(&queues, sizeof(queues), &dev->_tx);
	if (!queues)
		return 0;
	queues += queue * bpf_core_type_size(struct netdev_queue);
	qdisc = BPF_CORE_READ((const struct netdev_queue *)queues, qdisc);
	handle = BPF_CORE_READ(qdisc, handle);
	if (!handle)
		handle = BPF_CORE_READ(qdisc, parent);
	return handle == TC_H_ROOT ? 0 : handle;
}

static __always_inline void device_read(const struct sk_buff *skb,
					struct drop *drop,
					struct dropped *dropped)
{
	const struct net_device *dev = skb->dev;

	drop->netns = dev->nd_net.net->ns.inum;
	drop->ifindex = dev->ifindex;
	drop->qdisc = queue_handle(dev, skb->queue_mapping);
	bpf_probe_read_kernel(dropped->device, 16, dev->name);
}

static __always_inline int packet_freed(const struct sk_buff *skb,
					__u64 location, __u32 reason,
					struct sock *receiver)
{
	struct drop drop = { .location = location, .reason = reason };
	struct dropped dropped = { .buffers = 1, .packets = 1 };
	const struct skb_shared_info *info;
	struct freed f = {};

	if (!is_ip(skb))
		return 0;
	headers_read(skb, &f);
	/* UDP keeps other things there, once the socket has it */
	if (!receiver || receiver->sk_protocol != IPPROTO_UDP)
		f.netns = skb->dev ? skb->dev->nd_net.net->ns.inum : 0;
	if (!f.netns && receiver)
		f.netns = receiver->__sk_common.skc_net.net->ns.inum;
	if (!find_flow(skb, receiver, &f, &drop))
		return 0;
	if (!drop.protocol)
		drop.protocol = f.tuple.protocol;
	drop.empty = f.empty;
	if (drop.place != DROP_AT_RECEIVER && skb->dev)
		device_read(skb, &drop, &dropped);
	info = (const void *)(skb->head + skb->end);
	dropped.packets = SEE(struct skb_shared_info, info, gso_segs);
	if (!dropped.packets)
		dropped.packets = 1;
	dropped.bytes = f.bytes;
	drop_count(&drop, &dropped);
	return 0;
}

SEC("?tp_btf/kfree_skb")
int BPF_PROG(on_freed_for, const struct sk_buff *skb, void *location,
	     int reason, struct sock *receiver)
{
	return packet_freed(skb, (__u64)location, reason, receiver);
}

/* Kernels that do not pass the socket. */
SEC("?tp_btf/kfree_skb")
int BPF_PROG(on_freed, const struct sk_buff *skb, void *location, int reason)
{
	return packet_freed(skb, (__u64)location, reason, NULL);
}
