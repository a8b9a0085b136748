/*
 * listener.bpf.h - connections that a listener refused because its queue was
 * full: the kernel frees their SYNs as if they had served, and counts them at
 * the listener.
 */
#ifndef LATPROF_LISTENER_H
#define LATPROF_LISTENER_H

#include "loss.bpf.h"

/* of its drops that are counted */
SOCKET_STORAGE(listeners, __u32);

static __always_inline void listener_count(struct sock *sk, __u32 *counted)
{
	__u32 n = sk->sk_drops.counter - *counted;
	struct drop drop = { .place = DROP_REFUSED, .protocol = IPPROTO_TCP };
	struct dropped dropped = { .packets = n, .buffers = n };

	if (!n)
		return;
	*counted += n;
	drop.group = group_of_stream(sk);
	drop_count(&drop, &dropped);
}

static __noinline void listener_begin(struct sock *sk)
{
	__u32 *counted;

	stream_note(sk);
	counted = bpf_sk_storage_get(&listeners, sk, 0, 0);
	if (counted)
		return;
	counted = storage_made(&listeners, sk);
	if (counted)
		*counted = sk->sk_drops.counter;
	else
		count(failed_storage);
}

static __noinline void listener_end(struct sock *sk)
{
	__u32 *counted = bpf_sk_storage_get(&listeners, sk, 0, 0);

	if (counted)
		listener_count(sk, counted);
}

#endif
