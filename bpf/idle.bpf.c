/*
 * idle.bpf.c - exchanges that are over, though nobody has said so: their client
 * has read a reply, and then nothing more for a while.
 *
 *   iter/bpf_sk_storage_map:  the turns of TCP sockets
 *   iter/bpf_map_elem:        those of datagrams
 *
 * A reply that goes on after so long a pause is told without what follows it.
 */
#include "datagram_count.bpf.h"
#include "stream.bpf.h"

static __always_inline void exchange_flush(struct exchange *x, __u64 now)
{
	/* it may just have gone on, on another CPU */
	if (x->role == ROLE_CLIENT && x->turn == TURN_ANSWERED &&
	    (__s64)(now - x->end_ns) >= (__s64)options.idle_ns)
		exchange_end(x, false);
}

SEC("?iter/bpf_sk_storage_map")
int on_stream_idle(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct stream *s = ctx->value;

	if (s && s->window == options.window)
		exchange_flush(&s->exchange, bpf_ktime_get_ns());
	return 0;
}

SEC("?iter/bpf_map_elem")
int on_datagram_idle(struct bpf_iter__bpf_map_elem *ctx)
{
	struct exchange *x = ctx->value;

	if (x)
		exchange_flush(x, bpf_ktime_get_ns());
	return 0;
}
