/*
 * arrival.bpf.h - when a packet entered the stack, by its address.
 *
 * Between its arrival and its socket a packet may wait in a backlog, on another
 * CPU, or behind the rest of a batch that its driver handed over. An array
 * keyed by the packet's address outlives all that. There are two places for
 * each address; where later packets take both, the arrival is not known.
 *
 * A packet may enter more than once: from the NIC, then out of a tunnel, then
 * into another namespace. The time is the first one in the namespace of its
 * socket: that of a packet whose header is still there, in memory which holds
 * the later one. Some devices hand a packet on into a container within the same
 * call, and nothing enters there (macvlan, ipvlan, bpf_redirect_peer()): then
 * it is the first one in the namespace where it entered last. A queue at the
 * entry (ifb) hands a packet back to the device that it came by: what it waited
 * there is behind its arrival, and it is marked; not what such a queue has cut
 * into its segments, which are other packets.
 *
 * TCP adds segments in the backlog to the one before them, so that their
 * packets are gone. They are found by ports and the sequence number that they
 * end with.
 */
#ifndef LATPROF_ARRIVAL_H
#define LATPROF_ARRIVAL_H

#include "flow.bpf.h"
#include "packet.bpf.h"

#define ARRIVAL_BITS 14
#define ARRIVALS (1 << ARRIVAL_BITS)
#define PACKET_SHIFT 8 /* the allocator gives them so many bytes, as bits */

#define HEADERS_BYTES 28 /* the least: of IPv4 and UDP */

struct arrival {
	__u64 skb;
	__u64 t_ns;
	__u64 dev;
	__u64 data; /* where its IP header is ... */
	__u64 mark; /* ... and a hash of what stands there first */
	union {
		__u64 sender_netns; /* cookie, of datagrams; 0 not known */
		__u32 acknowledges; /* of a bare ACK: up to where; 0 of none */
	};
	__u32 length; /* bytes from there */
	__u16 identification;
	__u16 flags; /* RECORD_ENTRY_QUEUED */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ARRIVALS);
	__type(key, __u32);
	__type(value, struct arrival);
} arrivals SEC(".maps");

/* The packets that entered last on this CPU; a driver hands over 8 at once
 * before the first is delivered (net.core.gro_normal_batch). */
#define LAST_ENTERED 16 /* a power of two */

struct entered {
	__u64 skbs[LAST_ENTERED];
	__u32 next;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct entered);
} last_entered SEC(".maps");

/* The verifier lets no bits of a pointer be moved: as a number it is known by
 * its lower half, which the compiler would keep where the pointer is. */
static __always_inline __u32 low_half(__u64 address)
{
	__u32 low;

	asm volatile("%0 = %1" : "=w"(low) : "w"((__u32)address));
	return low;
}

static __always_inline struct arrival *arrival_place(__u64 skb, __u32 other)
{
	__u32 low = low_half(skb);
	__u32 at = ((low >> PACKET_SHIFT) ^
		    (low >> (PACKET_SHIFT + ARRIVAL_BITS)) ^ other) &
		   (ARRIVALS - 1);

	return bpf_map_lookup_elem(&arrivals, &at);
}

/* What was noted of this packet, NULL nothing; a place that is free has none.
 */
static __always_inline struct arrival *arrival_of(__u64 skb)
{
	struct arrival *a;

	if (!skb)
		return NULL;
	a = arrival_place(skb, 0);
	if (a && a->skb == skb)
		return a;
	a = arrival_place(skb, 1);
	return a && a->skb == skb ? a : NULL;
}

/* Where to note it: over the older one of two. */
static __always_inline struct arrival *arrival_room(__u64 skb)
{
	struct arrival *a = arrival_place(skb, 0);
	struct arrival *other = arrival_place(skb, 1);

	if (!a || !other || a->skb == skb)
		return a;
	return other->skb == skb || other->t_ns < a->t_ns ? other : a;
}

static __always_inline __u64 net_of(__u64 dev)
{
	return (__u64)SEE(struct net_device, dev, nd_net.net);
}

/* The first 24 bytes of a packet from its IP header on: of IPv4 without options
 * up to the ports. */
struct packet_front {
	__u64 word[3];
};

static __always_inline void front_at(__u64 data, struct packet_front *ret)
{
	if (bpf_rdonly_cast) {
		const void *bytes = VIEW(struct ipv6hdr, (void *)data);

		for (int i = 0; i < 3; i++)
			ret->word[i] = *(const __u64 *)(bytes + 8 * i);
	} else {
		bpf_probe_read_kernel(ret, sizeof(*ret), (void *)data);
	}
}

/* Addresses, ports, identification: a hash of what distinguishes packets. */
static __always_inline __u64 front_mark(const struct packet_front *front)
{
	return (front->word[0] * 0x9e3779b97f4a7c15ULL ^ front->word[1]) *
		       0x9e3779b97f4a7c15ULL ^
	       front->word[2];
}

static __noinline bool is_marked(__u64 data, __u64 mark)
{
	struct packet_front front;

	front_at(data, &front);
	return front_mark(&front) == mark;
}

static __always_inline __u16 identification(const struct packet_front *front)
{
	return front->word[0] >> 32; /* of IPv4 */
}

/* Whether the packet whose IP header is at `network` is the one that was noted,
 * and not another one in memory that was given back: it stands where it stood,
 * or is of IPv4, was put together from fragments and has grown. */
static __noinline bool is_still(const struct arrival *a, __u64 network)
{
	struct packet_front front;

	front_at(network, &front);
	if (network == a->data)
		return !a->mark || front_mark(&front) == a->mark;
	return (front.word[0] & 0xf0) == 0x40 &&
	       identification(&front) == a->identification &&
	       bpf_ntohs(front.word[0] >> 16) > a->length;
}

/* Whether an ifb hands it back: nothing else asks for no second look by tc. */
static __always_inline bool is_from_ifb(const struct sk_buff *skb)
{
	return bpf_core_field_exists(skb->tc_skip_classify) &&
	       BPF_CORE_READ_BITFIELD(skb, tc_skip_classify);
}

/* The same packet again, from a tunnel or a bridge of the same namespace? */
static __noinline bool entered_before(const struct arrival *a, __u64 dev,
				      __u64 data, __u32 length)
{
	return data >= a->data && data + length <= a->data + a->length &&
	       net_of(a->dev) == net_of(dev) && is_marked(a->data, a->mark);
}

/* Each segment takes a new place, so few enough to stay in the cache. */
#define SEGMENT_BITS 12
#define SEGMENTS (1 << SEGMENT_BITS)

/* A TCP segment that entered, by what it ends with. */
struct segment_arrival {
	__u64 t_ns;
	__u32 ports; /* source, then destination */
	__u32 end;
	__u32 bytes;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEGMENTS);
	__type(key, __u32);
	__type(value, struct segment_arrival);
} segment_arrivals SEC(".maps");

static __always_inline struct segment_arrival *segment_arrival_of(__u32 ports,
								  __u32 end)
{
	/* multiples of the golden ratio: segments that follow each other spread
	 * over all places before they meet */
	__u32 at = (end + ports * 0x85ebca6b) * 0x9e3779b9;

	at >>= 32 - SEGMENT_BITS;
	return bpf_map_lookup_elem(&segment_arrivals, &at);
}

/* How many bytes of headers stand before TCP's, and in all; false where it is
 * another protocol. */
static __always_inline bool is_tcp(const struct packet_front *front,
				   __u32 *header, __u32 *total)
{
	__u64 first = front->word[0], second = front->word[1];

	if ((first & 0xf0) == 0x40) {
		*header = (first & 15) * 4;
		*total = bpf_ntohs(first >> 16); /* 0: too long for the field */
		return (second >> 8 & 0xff) == IPPROTO_TCP;
	}
	*header = 40;
	*total = bpf_ntohs(first >> 32);
	*total += *total ? 40 : 0;
	return (first & 0xf0) == 0x60 && (first >> 48 & 0xff) == IPPROTO_TCP;
}

/* What stands in its TCP header: of a segment with data its ports and sequence
 * number, of a bare ACK its number. */
static __always_inline void segment_note(struct arrival *packet, __u32 header,
					 __u32 total)
{
	struct segment_arrival *a;
	struct tcp_header tcp;
	__u32 bytes, end, ports;

	tcp_header_at((unsigned char *)packet->data + header, &tcp);
	bytes = (total ? total : packet->length) - header -
		(tcp.offset >> 4) * 4;
	if (!bytes) {
		if (tcp.flags & TCP_FLAG_ACK)
			packet->acknowledges = bpf_ntohl(tcp.acknowledge);
		return;
	}
	end = bpf_ntohl(tcp.sequence) + bytes;
	ports = (__u32)tcp.destination << 16 | tcp.source;
	a = segment_arrival_of(ports, end);
	if (!a)
		return;
	a->t_ns = packet->t_ns;
	a->ports = ports;
	a->end = end;
	a->bytes = bytes;
}

/* A driver hands over many at once: which of them a socket got is asked for
 * where the socket's queue does not show it. */
static __always_inline void entered_note(__u64 skb)
{
	__u32 zero = 0;
	struct entered *last = bpf_map_lookup_elem(&last_entered, &zero);

	if (last)
		last->skbs[last->next++ & (LAST_ENTERED - 1)] = skb;
}

static __always_inline bool is_internet(const struct sock *sk)
{
	return sk->__sk_common.skc_family == AF_INET ||
	       sk->__sk_common.skc_family == AF_INET6;
}

/* The namespace of the socket that sent the packet, which keeps it until IP has
 * it, across veth, too; loopback takes it away, and what a program writes into
 * a tunnel's device has that program's. 0: not known. */
static __always_inline __u64 sender_netns(const struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;

	if (sk && is_full_socket(sk) && is_internet(sk))
		return netns_cookie(sk);
	return skb->dev->flags & IFF_LOOPBACK ?
		       cookie_of(skb->dev->nd_net.net) :
		       0;
}

static __always_inline void arrival_note(struct sk_buff *skb)
{
	struct arrival *a = arrival_room((__u64)skb);
	__u64 dev = (__u64)skb->dev, data = (__u64)skb->data;
	__u32 length = skb->len, linear = length - skb->data_len;
	struct packet_front front = {};
	__u32 header, total;
	bool again, from_ifb;

	if (!a)
		return;
	from_ifb = a->skb == (__u64)skb && a->dev == dev && is_from_ifb(skb);
	again = a->skb == (__u64)skb && (a->dev != dev || from_ifb) &&
		entered_before(a, dev, data, length);
	a->skb = (__u64)skb;
	a->dev = dev;
	a->data = data;
	/* Some drivers leave all headers in pages: there stands what was there
	 * before. */
	if (linear >= HEADERS_BYTES)
		front_at(data, &front);
	a->mark = front_mark(&front);
	a->identification = identification(&front);
	a->length = length;
	if (!again) {
		a->t_ns = bpf_ktime_get_ns();
		a->flags = 0;
		a->sender_netns = 0;
	} else if (from_ifb) {
		a->flags = RECORD_ENTRY_QUEUED;
	}
	if (is_tcp(&front, &header, &total)) {
		if (options.tcp)
			segment_note(a, header, total);
	} else if (options.udp) {
		if (!again)
			a->sender_netns = sender_netns(skb);
		entered_note((__u64)skb);
	}
}

/* Instead of a time: others were added to the packet since it entered. */
#define ARRIVAL_OF_A_PART 1

/* The arrival of this packet, NULL unknown. */
static __always_inline struct arrival *arrival_at(const struct sk_buff *skb)
{
	struct arrival *a = arrival_of((__u64)skb);

	return a && a->t_ns >= options.since_ns ? a : NULL;
}

static __always_inline bool is_own(const struct arrival *a,
				   const struct sock *sk)
{
	return net_of(a->dev) == (__u64)sk->__sk_common.skc_net.net;
}

/* When it entered; 0 unknown. `network` is its IP header and `length` what
 * follows from there. Where the header is not where it was, an older packet had
 * this address. */
static __always_inline __u64 arrival_take(const struct sk_buff *skb,
					  __u64 network, __u32 length,
					  __u32 *flags)
{
	struct arrival *a = arrival_at(skb);

	*flags = 0;
	if (!a || a->data != network)
		return 0;
	a->skb = 0;
	*flags = a->flags;
	return length > a->length ? ARRIVAL_OF_A_PART : a->t_ns;
}

#endif
