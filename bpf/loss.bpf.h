/*
 * loss.bpf.h - in which group a loss is counted: that of the socket, which may
 * not have sent or read anything yet.
 */
#ifndef LATPROF_LOSS_H
#define LATPROF_LOSS_H

#include "datagram.bpf.h"
#include "stream.bpf.h"

#define DROPS 4096 /* places; beyond them packets are counted together */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DROPS);
	__type(key, struct drop);
	__type(value, struct dropped);
} drops SEC(".maps");

/* By group; the agent sets how many there are before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct segments);
} group_segments SEC(".maps");

LABELS(drop_place);

/* DSACKs of a connection that are counted; made when it first sends again. */
SOCKET_STORAGE(spurious_known, __u32);

#define segments_add(number, field, n)                                  \
	({                                                              \
		__u32 at = number;                                      \
		struct segments *held =                                 \
			bpf_map_lookup_elem(&group_segments, &at);      \
                                                                        \
		if (held)                                               \
			__sync_fetch_and_add(&held->field, (__u64)(n)); \
	})

/* The group that is known of a socket whose state is of this window or not. */
static __always_inline __u32 known_group(struct sock *sk)
{
	struct datagram_socket *d;
	struct stream *s;

	if (sk->sk_protocol == IPPROTO_UDP) {
		d = bpf_sk_storage_get(&datagram_sockets, sk, 0, 0);
		return d ? d->group : GROUP_UNDECIDED;
	}
	s = stream_of(sk);
	return s ? s->exchange.group : GROUP_UNDECIDED;
}

/* `tuple`: as the socket sends. No process may be at work here, so where it is
 * asked for by name, the group is not known before the first send or read. */
static __noinline __u32 group_of_socket(struct sock *sk,
					const struct five_tuple *tuple)
{
	bool connected = sk->sk_protocol == IPPROTO_TCP;
	__u32 known = known_group(sk);

	if (known || options.by & BY_COMM)
		return known;
	return group_decide(sk, tuple,
			    role_of(sk, bpf_ntohs(tuple->source_port),
				    bpf_ntohs(tuple->destination_port),
				    connected));
}

/* Between windows, and of a socket that has no state, the verdict is found
 * anew: what is lost is rare. */
static __noinline bool is_watched(struct sock *sk)
{
	return !is_unwatched(sk) && (wants_socket(sk) || is_peer(sk));
}

static __noinline __u32 group_of_stream(struct sock *sk)
{
	struct five_tuple tuple;

	tuple_of_connection(sk, &tuple);
	return group_of_socket(sk, &tuple);
}

static __noinline void stream_note(struct sock *sk)
{
	__u32 group = histograms ? group_of_stream(sk) : GROUP_UNDECIDED;

	end_note(sk, stream_number(sk), group);
}

/* Count the duplicates that the peer has reported since the last time. */
static __noinline void spurious_count(struct sock *sk)
{
	__u32 *counted = bpf_sk_storage_get(&spurious_known, sk, 0, 0);
	const struct tcp_sock *tp = tcp_of(sk);
	__u32 n;

	if (!counted || !tp)
		return;
	n = tp->dsack_dups - *counted;
	if (!n)
		return;
	*counted += n;
	segments_add(known_group(sk), spurious, n);
}

static __noinline void drop_count(const struct drop *drop,
				  const struct dropped *counted)
{
	struct dropped *sum = bpf_map_lookup_elem(&drops, drop);

	if (!sum) {
		struct dropped none = {};

		__builtin_memcpy(none.device, counted->device, 16);
		bpf_map_update_elem(&drops, drop, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&drops, drop);
	}
	if (!sum) {
		count_more(uncounted_drops, counted->packets);
		return;
	}
	__sync_fetch_and_add(&sum->packets, counted->packets);
	__sync_fetch_and_add(&sum->buffers, counted->buffers);
	__sync_fetch_and_add(&sum->bytes, counted->bytes);
}

/* What nobody has read when its socket goes. */
static __noinline void unread_count(__u32 group, __u8 protocol, __u64 packets,
				    __u64 bytes)
{
	struct drop drop = {
		.group = group,
		.protocol = protocol,
		.place = DROP_UNREAD,
	};
	struct dropped dropped = {
		.packets = packets,
		.buffers = packets,
		.bytes = bytes,
	};

	drop_count(&drop, &dropped);
}

#endif
