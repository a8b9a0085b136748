/*
 * flight_queue.bpf.c - what stands in devices' queues: a part of the flight
 * recorder.
 *
 *   net_dev_queue:  a packet is handed over, of any socket or of none: its ends
 *   qdisc_enqueue:  the queue has it: written, with what stood before it
 *
 * Of packets that found an empty queue only those of watched sockets are
 * written. The queue's lock is held when it has a packet: the order of times is
 * that of the packets.
 *
 * Does not see packets that were dropped at the entry, nor what a queue that
 * counts by CPU holds (pfifo_fast). The packet's own headers tell its ends: of
 * what is encrypted or in a tunnel those outside. While no watched socket uses
 * a queue only the second hook is attached: such packets have no ends and no
 * size.
 */
#include "datagram_send.bpf.h"
#include "device.bpf.h"
#include "flight.bpf.h"
#include "stream.bpf.h"
#include <bpf/bpf_tracing.h>

#define COUNTS_BY_CPU 0x20 /* TCQ_F_CPUSTATS */
#define NOT_FIRST_FRAGMENT 0x1fff

FLIGHT(queued_packets, queued_packet);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct device_queue);
} device_queues SEC(".maps");

/* Between both hooks: on the same CPU nothing comes in between. */
struct handed_over {
	__u64 skb;
	__u64 t_ns; /* 0: of no interest */
	struct queued_packet packet;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handed_over);
} handed_overs SEC(".maps");

/* The first bytes of a packet from its IP header on. */
union ip_headers {
	struct ipv4_header v4;
	struct ipv6_header v6;
};

static __always_inline bool has_port(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

static __noinline void packet_ends(const struct sk_buff *skb,
				   struct queued_packet *ret)
{
	unsigned char *network = skb->head + skb->network_header;
	union ip_headers front = {};
	__u32 header = 0, ports = 0;

	__builtin_memset(ret->source, 0, sizeof(ret->source));
	__builtin_memset(ret->destination, 0, sizeof(ret->destination));
	ret->source_port = ret->destination_port = ret->protocol = 0;
	bpf_probe_read_kernel(&front, sizeof(front), network);
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		ret->source[10] = ret->source[11] = 0xff;
		ret->destination[10] = ret->destination[11] = 0xff;
		__builtin_memcpy(ret->source + 12, &front.v4.source, 4);
		__builtin_memcpy(ret->destination + 12, &front.v4.destination,
				 4);
		ret->protocol = front.v4.protocol;
		if (!(front.v4.fragment & bpf_htons(NOT_FIRST_FRAGMENT)))
			header = (front.v4.version_ihl & 15) * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		__builtin_memcpy(ret->source, front.v6.source, 16);
		__builtin_memcpy(ret->destination, front.v6.destination, 16);
		ret->protocol = front.v6.next_header;
		header = sizeof(front.v6);
	}
	if (!header || !has_port(ret->protocol))
		return;
	bpf_probe_read_kernel(&ports, sizeof(ports), network + header);
	ret->source_port = bpf_ntohs(ports);
	ret->destination_port = bpf_ntohs(ports >> 16);
}

/* Of the file that a program has of it: by it /proc tells whose it is. */
static __always_inline __u32 socket_inode(const struct sock *sk)
{
	const struct socket_alloc *whole = (const void *)sk->sk_socket;

	return whole ? BPF_CORE_READ(whole, vfs_inode.i_ino) : 0;
}

static __always_inline bool is_followed(struct sock *sk)
{
	if (sk->sk_protocol == IPPROTO_TCP)
		return stream_known(sk);
	return sk->sk_protocol == IPPROTO_UDP && datagram_known(sk);
}

static __always_inline const struct Qdisc *queue_of(const struct sk_buff *skb)
{
	return skb->dev->_tx ?
		       CAST(struct netdev_queue,
			    (void *)skb->dev->_tx +
				    skb->queue_mapping *
					    bpf_core_type_size(
						    struct netdev_queue))
			       ->qdisc :
		       NULL;
}

SEC("?tp_btf/net_dev_queue")
int BPF_PROG(on_flight_handed, struct sk_buff *skb)
{
	const struct Qdisc *queue;
	struct handed_over *h;
	struct sock *sk;
	__u32 zero = 0;

	if (!bpf_rdonly_cast || !has_queue(skb))
		return 0;
	h = bpf_map_lookup_elem(&handed_overs, &zero);
	queue = queue_of(skb);
	if (!h || !queue)
		return 0;
	h->skb = (__u64)skb;
	h->t_ns = 0;
	sk = skb->sk;
	if (sk && !is_full_socket(sk))
		sk = NULL;
	if (!queue->qstats.backlog && !(sk && is_followed(sk)))
		return 0;
	h->t_ns = bpf_ktime_get_ns();
	h->packet.bytes = *(__u32 *)&skb->cb[0]; /* struct qdisc_skb_cb */
	h->packet.inode = sk ? socket_inode(sk) : 0;
	packet_ends(skb, &h->packet);
	return 0;
}

static __always_inline void kind_of(const struct Qdisc *queue, __u8 ret[16])
{
	bpf_probe_read_kernel_str(ret, 16, BPF_CORE_READ(queue, ops, id));
}

/* A token bucket has a queue within, by default a FIFO. */
static __noinline void queue_tell(const struct Qdisc *queue,
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

static __always_inline bool is_told(const struct device_queue *known,
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
	struct device_queue told = {};

	queue_tell(queue, dev, &told);
	bpf_map_update_elem(&device_queues, &id, &told, BPF_ANY);
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
	if (!is_told(bpf_map_lookup_elem(&device_queues, &id), queue, tx->dev))
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
