/*
 * datagram.bpf.h - UDP: the state of a watched socket, and one entry per
 * datagram. While it waits for its driver it is keyed by its packet's address,
 * since nothing replaces the packet then; while it waits for its reader by its
 * number in the socket's queue, since that is a FIFO and no hook of the read
 * has the packet.
 *
 * Nothing on the wire numbers a datagram, so the two halves are joined by flow
 * and a fingerprint of what a translator (NAT) leaves as it is: length, first
 * payload bytes, identification. Does not distinguish two datagrams of one flow
 * with the same length, the same first 32 bytes and, on IPv4, the same
 * identification; the agent takes those in order.
 */
#ifndef LATPROF_DATAGRAM_H
#define LATPROF_DATAGRAM_H

#include "half.bpf.h"
#include "head.bpf.h"
#include "packet.bpf.h"
#include "reader.bpf.h"

#define DATAGRAMS 65536
#ifndef UNREAD_DATAGRAMS /* that have rows when their socket is closed */
#define UNREAD_DATAGRAMS DATAGRAMS
#endif
#define FINGERPRINT_BYTES 32
#define MORE_FRAGMENTS 0x2000
#define FRAGMENT_OFFSET 0x1fff
#define EEXIST 17
#define WAITING 2 /* a power of two */
/* In the entry of a datagram that was read before its readiness was reported:
 * `second_ns` is when. Apart from enum record_flag. */
#define DATAGRAM_READ 0x8000

struct datagram_key {
	__u64 address; /* of the packet, or of the receiving socket */
	__u64 number; /* 0, or its number in the socket's queue */
};

struct datagram {
	struct datagram_key at;
	__u64 flow;
	__u64 key;
	__u64 number; /* receiving, histograms: of the flow that answers */
	__u64 first_ns; /* sending: the call began; receiving: arrival */
	__u64 second_ns; /* sending: queued; receiving: ready */
	__u32 size_bytes;
	__u32 packets; /* sending */
	__u32 pid;
	__u32 queue_bytes;
	__u32 run_delay; /* receiving: of the reader, see reader.bpf.h */
	__u32 device; /* sending: the one below that it waits for; 0 the first
		       */
	__u16 flags;
	__u8 ttl;
	__u8 reader;
	struct head head;
};

struct left_datagram {
	__u64 address; /* of its packet */
	__u64 flow;
	__u64 key;
	__u64 number;
};

/* The state of a socket: its own counts, and the datagram that IP is cutting
 * into fragments. */
struct datagram_socket {
	__u64 socket; /* its address */
	__u64 flow_out; /* announced last */
	__u64 flow_in;
	__u64 number;
	__u64 fragment_key;
	__u64 fragment_flow;
	__u64 fragment_send_ns;
	__u32 fragment_id;
	__u32 fragment_size;
	__u32 fragment_packets;
	__u32 sender_pid; /* announced */
	__u32 reader_pid;
	__u32 verdict; /* its number, see watch.bpf.h; 0: ask again */
	__u32 fragment_device;
	__u32 segmented; /* what is on its way is of UDP_SEGMENT */
	__u32 device; /* that packets were handed to first, announced ... */
	__u8 stacked; /* ... and whether there are others below */
	__u8 queue_seen; /* what is queued, on_queue has seen */
	__u16 window; /* of time, that it is followed in, the low bits */
	__u32 lower_announced; /* those that were announced, as bits */
	__u32 tail; /* receiving: datagrams that were queued ... */
	__u32 head; /* ... and read */
	struct reader reader;
	struct datagram departing; /* the one that was queued last ... */
	/* ... and the one that left a stacked device last, for those below */
	struct left_datagram left;
	/* receiving: two that wait for their reader; free where number is 0 */
	struct datagram waiting[WAITING];
	__u32 early_reads; /* notes in the map, see datagram_read_early() */
	__u16 group; /* 0: not decided */
	__u8 role;
	__u8 grouped; /* that is decided */
};

_Static_assert(sizeof(struct datagram_socket) <= 440, "512 bytes at most");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DATAGRAMS);
	__type(key, struct datagram_key);
	__type(value, struct datagram);
} datagrams SEC(".maps");

SOCKET_STORAGE(datagram_sockets, struct datagram_socket);

/* Where a packet stands in its datagram, by its IP header. */
struct fragment {
	struct five_tuple tuple;
	__u32 id;
	__u32 key_id; /* the part of it that survives reassembly */
	__u16 ttl;
	bool more;
	bool first;
};

static __always_inline void fragment_of_ipv4(const struct ipv4_header *ip,
					     struct fragment *ret)
{
	__u16 field = bpf_ntohs(ip->fragment);

	map_ipv4(ret->tuple.source, ip->source);
	map_ipv4(ret->tuple.destination, ip->destination);
	ret->id = ret->key_id = ip->id;
	ret->more = field & MORE_FRAGMENTS;
	ret->first = !(field & FRAGMENT_OFFSET);
	ret->ttl = ip->ttl;
}

static __always_inline void fragment_of_ipv6(const struct ipv6_header *ip,
					     const struct ipv6_fragment *cut,
					     struct fragment *ret)
{
	__builtin_memcpy(ret->tuple.source, ip->source, 16);
	__builtin_memcpy(ret->tuple.destination, ip->destination, 16);
	ret->id = ret->key_id = 0;
	ret->more = false;
	ret->first = true;
	ret->ttl = ip->hop_limit;
	if (ip->next_header != 44 /* fragment header */)
		return;
	ret->id = cut->id;
	ret->more = cut->offset_more & bpf_htons(1);
	ret->first = !(cut->offset_more & bpf_htons(0xfff8));
}

/* IPv6, and kernels on which a header cannot be read in place. */
static __noinline void fragment_of_copy(unsigned char *network,
					struct fragment *ret)
{
	struct {
		struct ipv6_header ip;
		struct ipv6_fragment cut;
	} header;

	bpf_probe_read_kernel(&header, sizeof(header), network);
	if (*(__u8 *)&header >> 4 == 4)
		fragment_of_ipv4((struct ipv4_header *)&header, ret);
	else
		fragment_of_ipv6(&header.ip, &header.cut, ret);
}

static __always_inline void fragment_of(unsigned char *network,
					struct fragment *ret)
{
	ret->tuple.protocol = IPPROTO_UDP;
	ret->tuple.pad = 0;
	if (bpf_rdonly_cast &&
	    *(const __u8 *)VIEW(struct iphdr, network) >> 4 == 4)
		fragment_of_ipv4(VIEW(struct iphdr, network), ret);
	else
		fragment_of_copy(network, ret);
}

/* The lowest addressed bytes of a word, 1 to 7. */
static __always_inline __u64 bytes_mask(__u32 bytes)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (1ULL << (bytes * 8)) - 1;
#else
	return ~(~0ULL >> (bytes * 8));
#endif
}

/* The first bytes of a payload, zero behind its end. */
static __always_inline void payload_at(unsigned char *from, __u32 bytes,
				       __u64 ret[FINGERPRINT_BYTES / 8])
{
	const void *words;

	if (!bpf_rdonly_cast) {
		/* one register: Linux 6.1 does not see that a copy has its
		 * bounds */
		barrier_var(bytes);
		if (bytes > FINGERPRINT_BYTES)
			bytes = FINGERPRINT_BYTES;
		if (bytes)
			bpf_probe_read_kernel(ret, bytes, from);
		return;
	}
	words = VIEW(struct ipv6hdr, from);
	for (__u32 i = 0; i < FINGERPRINT_BYTES / 8; i++) {
		if (bytes >= 8 * i + 8)
			ret[i] = *(const __u64 *)(words + 8 * i);
		else if (bytes > 8 * i)
			ret[i] = *(const __u64 *)(words + 8 * i) &
				 bytes_mask(bytes - 8 * i);
	}
}

/* By a type that all kernels have in their BTF; some have no udphdr. */
static __always_inline void udp_header_at(unsigned char *transport,
					  struct udp_header *ret)
{
	if (bpf_rdonly_cast)
		*ret = *(const struct udp_header *)VIEW(struct tcphdr,
							transport);
	else
		bpf_probe_read_kernel(ret, sizeof(*ret), transport);
}

/* Flow, key and length from the UDP header and the first payload bytes; `id`
 * is 0 where the packet carries none, as on IPv6 without fragments. */
static __always_inline __u32 fingerprint(unsigned char *transport, __u32 id,
					 __u32 readable, __u64 sender_netns,
					 struct five_tuple *tuple, __u64 *flow,
					 __u64 *key, struct head *head)
{
	__u64 payload[FINGERPRINT_BYTES / 8] = {};
	struct udp_header udp;
	__u32 size;
	__u64 hash;

	udp_header_at(transport, &udp);
	tuple->source_port = udp.source;
	tuple->destination_port = udp.destination;
	*flow = flow_number(tuple, sender_netns);
	size = bpf_ntohs(udp.length) - sizeof(udp);
	payload_at(transport + sizeof(udp), size < readable ? size : readable,
		   payload);
	hash = mix(1, (__u64)size << 32 | id);
	for (int i = 0; i < FINGERPRINT_BYTES / 8; i++)
		hash = mix(hash, payload[i]);
	*key = hash;
	datagram_head((const __u8 *)payload, size,
		      udp.source == bpf_htons(QUIC_PORT) ||
			      udp.destination == bpf_htons(QUIC_PORT),
		      head);
	return size;
}

static __always_inline void datagram_keep(const struct datagram *datagram)
{
	if (bpf_map_update_elem(&datagrams, &datagram->at, datagram, BPF_ANY))
		count(failed_inserts);
}

/* False where an entry is there already. */
static __always_inline bool datagram_enter(const struct datagram *datagram)
{
	long error = bpf_map_update_elem(&datagrams, &datagram->at, datagram,
					 BPF_NOEXIST);

	if (error && error != -EEXIST)
		count(failed_inserts);
	return error != -EEXIST;
}

/* What came and went since it was watched last was not seen. */
static __noinline void datagrams_restart(struct datagram_socket *s)
{
	s->window = options.window;
	s->tail = s->head = 0;
	s->departing.at.address = s->left.address = 0;
	s->fragment_packets = 0;
	s->queue_seen = 0;
	s->early_reads = 0;
	for (int i = 0; i < WAITING; i++)
		s->waiting[i].at.number = 0;
}

static __always_inline bool datagrams_followed(const struct datagram_socket *s)
{
	return !histograms || s->window == (__u16)options.window;
}

static __always_inline struct datagram_socket *
datagrams_now(struct datagram_socket *s)
{
	if (!datagrams_followed(s))
		datagrams_restart(s);
	return s;
}

/* `remote`: the port that its datagram goes to, 0: that of the socket, if any.
 */
static __noinline struct datagram_socket *datagram_decide(struct sock *sk,
							  __u16 remote)
{
	struct datagram_socket *s =
		bpf_sk_storage_get(&datagram_sockets, sk, 0, 0);
	__u32 verdict = verdict_number(sk);
	enum wanted wanted = wants_socket_to(sk, remote);

	if (!wanted) {
		if (s)
			bpf_sk_storage_delete(&datagram_sockets, sk);
		unwatched_note(sk, verdict);
		return NULL;
	}
	s = storage_made(&datagram_sockets, sk);
	if (!s) {
		count(failed_storage);
		return NULL;
	}
	if (!s->reader.task)
		reader_guess(&s->reader, sk->__sk_common.skc_num);
	s->socket = (__u64)sk;
	if (s->verdict && s->verdict != verdict)
		s->grouped = 0; /* until it is, it counts where it did */
	datagrams_now(s);
	s->verdict = wanted == WANTED_SO_FAR ? 0 : verdict;
	return s;
}

/* What is known of a socket; NULL nothing, or nothing of this window. (A macro:
 * programs of cgroups have another type of socket.) */
#define datagram_known(sk)                                               \
	({                                                               \
		struct datagram_socket *known =                          \
			bpf_sk_storage_get(&datagram_sockets, sk, 0, 0); \
                                                                         \
		known &&datagrams_followed(known) ? known : NULL;        \
	})

/* The state of a watched socket; NULL: it is not watched. */
static __always_inline struct datagram_socket *datagram_watch(struct sock *sk)
{
	struct datagram_socket *s =
		bpf_sk_storage_get(&datagram_sockets, sk, 0, 0);

	if (s && s->verdict == verdict_number(sk))
		return datagrams_now(s);
	return is_unwatched(sk) ? NULL : datagram_decide(sk, 0);
}

static __always_inline bool is_port_asked(__u16 port)
{
	return options.remote_ports[port >> 6 & 3] >> (port & 63) & 1;
}

/* The same for the sender of a datagram: one without a remote end is asked with
 * the port that it sends to. */
static __always_inline struct datagram_socket *
datagram_watch_sender(struct sock *sk, const struct sk_buff *skb)
{
	struct datagram_socket *s = datagram_watch(sk);
	struct udp_header udp;
	__u16 port;

	if (s || !options.remote_asked || sk->__sk_common.skc_dport)
		return s;
	udp_header_at(skb->head + skb->transport_header, &udp);
	port = bpf_ntohs(udp.destination);
	if (udp.source != bpf_htons(sk->__sk_common.skc_num) ||
	    !is_port_asked(port))
		return NULL;
	return datagram_decide(sk, port);
}

/* The same for its reader, who may be faster than the hook of its first
 * datagram, or than what that does; NULL also where it is not followed now. */
static __always_inline struct datagram_socket *
datagram_watch_reader(struct sock *sk)
{
	struct datagram_socket *s =
		bpf_sk_storage_get(&datagram_sockets, sk, 0, 0);

	if (s && s->verdict)
		return datagrams_followed(s) ? s : NULL;
	return is_unwatched(sk) ? NULL : datagram_decide(sk, 0);
}

static __noinline void datagram_announce(struct datagram_socket *s,
					 const struct five_tuple *tuple,
					 const struct sock *sk, __u16 side,
					 __u64 sender_netns)
{
	__u64 flow = flow_number(tuple, sender_netns);
	struct first_bytes none = {};

	if (!flow_announce(flow, tuple, sk, side, s->group, none, sender_netns))
		return;
	if (side == SIDE_SENDER)
		s->flow_out = flow;
	else
		s->flow_in = flow;
}

#endif
