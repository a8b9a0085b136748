/*
 * loss.bpf.c - segments that TCP sent again.
 *
 *   tcp_retransmit_skb:      the segment's range, time and cause: a record;
 *                            where messages are counted its cause is, and of
 *                            what is sampled there is a record, too
 *   tcp_retransmit_synack:   counted
 *
 * The range usually belongs to a message whose sender's half was written when
 * it first left, so the agent joins the two. Does not see a segment sent again
 * before we began to watch its socket.
 */
#include "loss.bpf.h"
#include <bpf/bpf_tracing.h>

#define SENDING_NS 1000000

RING(retransmits, retransmit);
LABELS(resent_by);

/* Why, from what TCP is about: a probe is sent while nothing is known to be
 * lost, by the timer that is still set then. */
static __noinline enum resent_by resent_by(const struct tcp_sock *tp,
					   __u8 tcp_state)
{
	const struct inet_connection_sock *icsk = &tp->inet_conn;
	__u8 state = BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state);

	if (tcp_state == TCP_SYN_SENT || tcp_state == TCP_SYN_RECV)
		return RESENT_HANDSHAKE;
	if (state == TCP_CA_LOSS)
		return RESENT_TIMEOUT;
	if (state != TCP_CA_RECOVERY &&
	    BPF_CORE_READ(icsk, icsk_pending) == ICSK_TIME_LOSS_PROBE)
		return RESENT_PROBE;
	return RESENT_FAST;
}

static __always_inline void resent_add(__u32 group, enum resent_by by, __u32 n)
{
	if (by == RESENT_HANDSHAKE)
		segments_add(group, handshake, n);
	else if (by == RESENT_TIMEOUT)
		segments_add(group, timeout, n);
	else if (by == RESENT_PROBE)
		segments_add(group, probe, n);
	else
		segments_add(group, fast, n);
}

static __noinline int resent_count(struct sock *sk, const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (const void *)skb->cb;
	struct tcp_sock *tp = tcp_of(sk);
	__u32 group, n, *counted;

	if (!tp || !is_watched(sk))
		return 0;
	group = group_of_stream(sk);
	n = BPF_CORE_READ(cb, tcp_gso_segs);
	resent_add(group, resent_by(tp, sk->__sk_common.skc_state), n ?: 1);
	if (sk->__sk_common.skc_state != TCP_SYN_SENT &&
	    !BPF_CORE_READ_BITFIELD_PROBED(tp, rx_opt.sack_ok))
		segments_add(group, unproven, n ?: 1);
	counted = bpf_sk_storage_get(&spurious_known, sk, 0, 0);
	if (counted)
		return 0;
	counted = bpf_sk_storage_get(&spurious_known, sk, 0,
				     BPF_SK_STORAGE_GET_F_CREATE);
	if (counted)
		*counted = tp->dsack_dups;
	else
		count(failed_storage);
	return 0;
}

/* The hook is called once it is sent, and on one host it may have arrived by
 * then. TCP looks at its clock before that, for what it sends on; longer ago
 * it was for something else. */
static __always_inline __u64 resent_ns(const struct tcp_sock *tp)
{
	__u64 now = bpf_ktime_get_ns(), looked = tp->tcp_clock_cache;

	return looked < now && now - looked < SENDING_NS ? looked : now;
}

static __always_inline int segment_resent(struct sock *sk,
					  const struct sk_buff *skb)
{
	struct stream *s = stream_known(sk);
	struct tcp_sock *tp = tcp_of(sk);
	struct retransmit *record;
	struct tcp_skb_cb cb = {};
	__u64 start, end;

	if (!s || !tp)
		return 0; /* not watched, or nothing of it was seen sent */
	bpf_probe_read_kernel(&cb, sizeof(cb), skb->cb);
	start = offset_near(s->xmit_end, s->out_zero, cb.seq);
	end = offset_near(s->xmit_end, s->out_zero, cb.end_seq);
	if (histograms && !is_range_sampled(s->flow_out, start, end))
		return 0;
	record = RESERVE(retransmits);
	if (!record)
		return 0;
	record->flow = s->flow_out;
	record->start = start;
	record->end = end;
	record->t_ns = resent_ns(tp);
	record->packet_bytes = segment_size(skb);
	record->cause = resent_by(tp, sk->__sk_common.skc_state);
	SUBMIT(record);
	return 0;
}

/* Newer kernels report attempts that failed, too: those sent nothing, unless
 * it was a qdisc that dropped it (a positive error). */
SEC("?tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit_attempt, const struct sock *sk,
	     const struct sk_buff *skb, int error)
{
	if (error < 0)
		return 0;
	if (histograms)
		resent_count((struct sock *)sk, skb);
	return error ? 0 : segment_resent((struct sock *)sk, skb);
}

SEC("?tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit, const struct sock *sk, const struct sk_buff *skb)
{
	if (histograms)
		resent_count((struct sock *)sk, skb);
	return segment_resent((struct sock *)sk, skb);
}

SEC("?tp_btf/tcp_retransmit_synack")
int BPF_PROG(on_retransmit_synack, const struct sock *listener)
{
	struct sock *sk = (struct sock *)listener;

	if (is_watched(sk))
		segments_add(group_of_stream(sk), handshake, 1);
	return 0;
}
