/*
 * loss.bpf.c - segments that TCP sent again.
 *
 *   tcp_retransmit_skb:  the segment's range and time  ->  one record
 *
 * The range usually belongs to a message whose sender's half was written when
 * it first left, so the agent joins the two. Does not see a segment sent again
 * before we began to watch its socket.
 */
#include "stream.bpf.h"
#include <bpf/bpf_tracing.h>

RING(retransmits, retransmit);

static __always_inline int segment_resent(struct sock *sk,
					  const struct sk_buff *skb)
{
	struct retransmit *record;
	struct tcp_skb_cb cb = {};
	struct stream *s = stream_of(sk);

	if (!s)
		return 0; /* not watched, or nothing of it was seen sent */
	bpf_probe_read_kernel(&cb, sizeof(cb), skb->cb);
	record = RESERVE(retransmits);
	if (!record)
		return 0;
	record->flow = s->flow_out;
	record->start = offset_near(s->xmit_end, s->out_zero, cb.seq);
	record->end = offset_near(s->xmit_end, s->out_zero, cb.end_seq);
	record->t_ns = bpf_ktime_get_ns();
	record->packet_bytes = segment_size(skb);
	record->pad = 0;
	SUBMIT(record);
	return 0;
}

/* Newer kernels tell of attempts that failed, too: those sent nothing. */
SEC("?tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit_attempt, const struct sock *sk,
	     const struct sk_buff *skb, int error)
{
	return error ? 0 : segment_resent((struct sock *)sk, skb);
}

SEC("?tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit, const struct sock *sk, const struct sk_buff *skb)
{
	return segment_resent((struct sock *)sk, skb);
}
