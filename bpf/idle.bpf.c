/*
 * idle.bpf.c - exchanges that are over, though nobody has said so: their client
 * has read a reply, and then nothing more for a while.
 *
 *   iter/bpf_sk_storage_map:  the turns of TCP sockets
 *   iter/bpf_map_elem:        those of datagrams
 *
 * A reply that goes on after so long a pause is counted up to the pause.
 * Of clients that wait for an answer when they are passed each is written. One
 * that never had any, and whose words were read, may say them to nobody: it is
 * none.
 */
#include "datagram_count.bpf.h"
#include "stream.bpf.h"

/* The agent reads the layout from its type. */
const struct waiting_request *waiting_layout __attribute__((unused));

static __always_inline void waiting_write(struct bpf_iter_meta *meta,
					  const struct exchange *x)
{
	struct waiting_request waiting = { x->begin_ns, x->group, 0 };

	if (x->role == ROLE_CLIENT && x->turn == TURN_ASKED)
		bpf_seq_write(meta->seq, &waiting, sizeof(waiting));
}

static __always_inline void exchange_flush(struct exchange *x, __u64 now)
{
	/* it may just have gone on, on another CPU */
	if (x->role == ROLE_CLIENT && x->turn == TURN_ANSWERED &&
	    (__s64)(now - x->end_ns) >= (__s64)options.idle_ns)
		exchange_end(x, false, NULL);
}

/* What is held counts, unless the next one is on its way: that may show that it
 * was none. */
static __always_inline void held_flush(struct stream *s, __u64 now)
{
	struct exchange *x = &s->exchange;
	bool asked = x->turn == TURN_ASKED;
	bool waits =
		asked && (__s64)(now - x->spoke_ns) >= (__s64)options.idle_ns;

	if (options.closing || x->role != ROLE_CLIENT || x->turn == TURN_NONE ||
	    waits)
		exchange_hold(x, &s->held, 0);
}

SEC(SOCKETS_PASSED)
int on_stream_idle(struct SOCKETS_CONTEXT *ctx)
{
	struct stream *s = ctx->value;
	__u64 now = bpf_ktime_get_ns();
	struct sock *sk = socket_passed(ctx);
	struct tcp_sock *tp;

	if (!s || s->window != (__u16)options.window)
		return 0;
	exchange_flush(&s->exchange, now);
	held_flush(s, now);
	barrier_var(sk); /* not read again, and so not checked (6.1) */
	tp = sk ? tcp_of(sk) : NULL;
	if (s->flow_in || (tp && !all_is_heard(s, tp)))
		waiting_write(ctx->meta, &s->exchange);
	return 0;
}

SEC("?iter/bpf_map_elem")
int on_datagram_idle(struct bpf_iter__bpf_map_elem *ctx)
{
	struct exchange *x = ctx->value;

	if (!x)
		return 0;
	exchange_flush(x, bpf_ktime_get_ns());
	if (x->state & WAS_ANSWERED)
		waiting_write(ctx->meta, x);
	return 0;
}
