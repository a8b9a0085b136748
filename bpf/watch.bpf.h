/*
 * watch.bpf.h - which sockets are watched: one verdict for each socket, kept
 * with it.
 *
 * The verdict is found at the socket's first event, from the socket alone, and
 * costs a climb through its cgroups. Where processes are asked for, their
 * sockets were marked before (processes.bpf.c). A watched socket has a state
 * (stream.bpf.h, datagram.bpf.h), which is looked up at each event anyway;
 * another one has a note that it is not. Both carry the generation of the
 * filter they were found by: where the agent has changed the filter, they are
 * found again.
 */
#ifndef LATPROF_WATCH_H
#define LATPROF_WATCH_H

#include "filter.bpf.h"

/* Count in histograms instead of writing records. A constant, so that the
 * kernel leaves out what is not used. */
#ifndef histograms
const volatile __u32 histograms SEC(".rodata.histograms") = 0;
#endif

/* What the agent attaches some programs for. */
bool udp_sends; /* a watched socket did ... */
bool queues_used; /* ... its packets came to a device with a queue */

/* number of the verdict that said no */
SOCKET_STORAGE(unwatched, __u32);

/* Read before the terms: a verdict on terms that are just being changed has the
 * number of the filter before, and so is found again. */
static __always_inline __u32 generation_now(void)
{
	return *(volatile __u32 *)&options.generation;
}

/* Of the filter, and of the ends that the socket has: bind() and connect() give
 * it others. */
static __always_inline __u32 verdict_number(const struct sock *sk)
{
	const struct sock_common *ends = &sk->__sk_common;
	__u32 number = generation_now();

	number = number * 31 + ((__u32)ends->skc_dport << 16 | ends->skc_num);
	number = number * 31 + ends->skc_daddr;
	number = number * 31 + ends->skc_bound_dev_if;
	if (ends->skc_family == AF_INET6) {
		for (int i = 0; i < 4; i++)
			number = number * 31 +
				 ends->skc_v6_daddr.in6_u.u6_addr32[i];
	}
	return number | 1; /* 0 is none */
}

/* Whether the verdict on a socket is known, and is no. */
static __always_inline bool is_unwatched(struct sock *sk)
{
	const __u32 *no = bpf_sk_storage_get(&unwatched, sk, 0, 0);

	return no && *no == verdict_number(sk);
}

static __noinline void unwatched_note(struct sock *sk, __u32 verdict)
{
	__u32 *no = bpf_sk_storage_get(&unwatched, sk, 0,
				       BPF_SK_STORAGE_GET_F_CREATE);

	if (no)
		*no = verdict;
}

/* What is kept of a socket, made where it is not there; another CPU that makes
 * it at the same time lets the first try fail. (A macro: maps have their
 * types.) */
#define storage_made(map, sk)                                                 \
	({                                                                    \
		void *made = bpf_sk_storage_get(map, sk, 0,                   \
						BPF_SK_STORAGE_GET_F_CREATE); \
                                                                              \
		made ?: bpf_sk_storage_get(map, sk, 0, 0);                    \
	})

/* skb->sk may also be a request or a time-wait socket: no struct sock at all */
static __always_inline bool is_full_socket(const struct sock *sk)
{
	unsigned char state = sk->__sk_common.skc_state;

	return state != 6 /* TIME_WAIT */ && state != 12 /* NEW_SYN_RECV */;
}

#endif
