/*
 * send.bpf.c - when a send call entered the transport, and which bytes it gave.
 *
 *   tcp_sendmsg_locked:  [write_seq, write_seq + what is left)  ->  send FIFO
 *   sys_enter:           a send call on a UDP socket  ->  task storage
 *   sock_send_length:    UDP: the next of a sendmmsg  ->  task storage
 *
 * A call that gave less than it wanted (no room and no waiting, an error)
 * leaves a range that is too long. It is cut where the next call begins, or
 * where the connection is closed: a hook on each return would cost every call.
 * So its message is written then, and not at all if neither comes.
 *
 * TCP Fast Open: the first bytes go with the SYN, and no hook of a send call
 * sees them. Their message is found where the SYN leaves (qdisc.bpf.c); its
 * `send` is when TCP began to connect, a few microseconds behind the call, and
 * what the SYN has no room for is a message of its own.
 *
 * Does not see the call behind bytes that were written before we began to
 * watch, nor distinguish two threads that write to one TCP socket while its
 * buffer is full (their ranges are cut where the other begins). A UDP datagram
 * sent through io_uring or splice has no send call of its own: its `send` is
 * missing (counted). Of a corked datagram it is that of the last call.
 */
#include "datagram.bpf.h"
#include "held.bpf.h"
#include "send_call.bpf.h"
#include "stream.bpf.h"
#include <asm/unistd.h>
#include <bpf/bpf_tracing.h>

/* The FIFO is full. Neighbours that have not been handed on become one, whose
 * end stays exact; one place is kept for that. */
static __noinline void send_merge(struct sock *sk, struct stream *s, __u64 end,
				  __u32 size_bytes)
{
	struct pending_send *m = NULL;

	if (s->tail != s->queued)
		m = send_at(sk, s, s->tail - 1, false);
	if (!m) {
		count(unrecorded_sends);
		return;
	}
	m->end = end;
	m->size_bytes += size_bytes;
	m->merged++;
	s->worked = 0; /* the answer may be in it */
	if (histograms)
		ends_note(s->flow_out, end);
	count(merged_sends);
}

static __always_inline void send_append(struct sock *sk, struct stream *s,
					__u64 end, __u32 size_bytes, __u64 now,
					__u32 pid, const struct head *head)
{
	__u64 pending = s->tail - s->head;
	struct pending_send *m;

	if (!pending)
		s->base = s->tail;
	m = pending < DEEP_SENDS ? send_at(sk, s, s->tail, true) : NULL;
	if (!m || (pending >= DEEP_SENDS - 1 && s->tail != s->queued)) {
		send_merge(sk, s, end, size_bytes);
		return;
	}
	m->end = end;
	m->send_ns = now;
	m->queue_ns = 0;
	m->size_bytes = size_bytes;
	m->packets = 0;
	m->pid = pid;
	m->merged = 0;
	m->head = head->kind;
	m->head_id = head->id;
	s->tail++;
	if (!histograms)
		return;
	if (head->kind == HEAD_INTERIM)
		ends_note_interim(s->flow_out, end);
	ends_note(s->flow_out, end);
}

/* The hook comes once for each piece that a call copies. Whether this is a
 * later piece of the call whose range was appended last and ends here, too. */
static __noinline bool same_call(struct sock *sk, struct stream *s,
				 const struct msghdr *msg, __u64 start)
{
	const struct pending_send *m;
	__u32 moved;

	if (msg->msg_iter.iov_offset)
		return true;
	if (s->tail == s->head)
		return false;
	m = send_at(sk, s, s->tail - 1, false);
	if (m && start == m->end - m->size_bytes)
		return !(msg->msg_flags & MSG_DONTWAIT); /* waits for room */
	/* between two buffers of one call, as many further as fewer are left */
	moved = ((__u32)(__u64)buffers_of(&msg->msg_iter) - s->buffers) /
		sizeof(struct iovec);
	return moved && moved == s->buffer_count - msg->msg_iter.nr_segs;
}

/* Who sends is likely to read the answer. */
static __noinline void sender_task(struct stream *s, __u32 pid, __u64 now)
{
	if (task_announce(pid, now))
		s->sender_pid = pid;
	if (!s->reader.task)
		reader_set(&s->reader, (__u64)bpf_get_current_task_btf(),
			   bpf_get_current_pid_tgid());
}

/* The first send behind a server's read. */
static __noinline void answer_begin(struct stream *s, __u64 now)
{
	s->asked = 0;
	s->worked = work_end(&s->reader, now, &s->work);
	if (!histograms)
		s->answer = s->tail;
}

/* A message begins a turn, or goes on with it. `msg`: NULL, it is not seen. */
static __always_inline void turn_send(struct sock *sk, struct stream *s,
				      const struct tcp_sock *tp, __u64 now,
				      const struct msghdr *msg,
				      const struct head *head, __u64 bytes)
{
	__u8 end = TLS_END_UNKNOWN;

	if (!s->grouped)
		stream_group(sk, s);
	if (s->exchange.role == ROLE_SERVER) {
		if (msg && head->kind == HEAD_TLS_HELLO)
			end = hello_end(msg, bytes);
	} else if (exchange_end(&s->exchange, unread_bytes(sk, tp), &s->held)) {
		client_turn_write(sk, s);
		floor_count(s, tp, now);
	}
	/* its server has closed its half: nobody will answer */
	if (s->exchange.role == ROLE_CLIENT &&
	    sk->__sk_common.skc_state == TCP_CLOSE_WAIT)
		return;
	if (!takes_turn(&s->exchange, head, bytes, now, end, &s->handshake)) {
		if (s->exchange.state & TAKES_NO_TURNS)
			no_turns_count(&s->exchange);
		return;
	}
	if (s->exchange.role == ROLE_SERVER) {
		if (!exchange_answer(&s->exchange, now, unread_bytes(sk, tp),
				     bytes, &s->held))
			return;
		if (s->worked)
			work_count(s);
		s->exchange.due =
			turn_flags(s, s->flow_in, s->read_end) / RECORD_SAMPLED;
		s->answering_thread = bpf_get_current_pid_tgid();
		return;
	}
	exchange_ask(&s->exchange, now, all_is_heard(s, tp));
}

/* `pieces` where the hook comes once for each piece of a call. */
static __always_inline int send_begin(const struct sock *const_sk,
				      const struct msghdr *given, __u64 left,
				      bool pieces)
{
	const struct msghdr *msg = pieces ? given : NULL;
	struct sock *sk = (struct sock *)const_sk;
	struct head head = {};
	__u64 start, end, now;
	struct tcp_sock *tp;
	struct stream *s;
	bool older;
	__u32 pid;

	s = stream_watch(sk);
	if (!s)
		return 0;
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	older = !s->flow_out && msg && msg->msg_iter.iov_offset;
	if (!sender_begun(s))
		sender_begin(sk, s, tp);
	/* a later piece of a call that began before we watched: no message of
	 * ours; new sockets may begin so, too (io_uring's buffers) */
	older = older && s->given_end;
	start = offset_near(s->given_end, s->out_zero, tp->write_seq);
	end = start + left;
	if (msg) {
		if (end == s->given_end && same_call(sk, s, msg, start))
			return 0;
		s->buffers = (__u32)(__u64)buffers_of(&msg->msg_iter);
		s->buffer_count = msg->msg_iter.nr_segs;
	}
	if (older) {
		s->given_end = end;
		return 0;
	}
	if (start != s->given_end)
		send_cut(sk, s, start);
	held_at_send(sk, s, tp);
	now = bpf_ktime_get_ns();
	call_head(given, left, !start, &head);
	if (is_early(&head, left) && !tp->bytes_received)
		head.kind = HEAD_TLS_EARLY;
	if (s->asked)
		answer_begin(s, now);
	if (histograms)
		turn_send(sk, s, tp, now, given, &head, left);
	else if (has_recorder && s->exchange.begin_ns)
		answer_notice(s, now);
	if (options.closing) {
		s->given_end = end;
		return 0;
	}
	pid = bpf_get_current_pid_tgid() >> 32;
	if (s->sender_pid != pid)
		sender_task(s, pid, now);
	send_append(sk, s, end, left, now, pid, &head);
	held_after_send(sk, tp, msg);
	s->given_end = end;
	return 0;
}

/* A SYN leaves that carries data: the first message of its connection. It is
 * announced when the connection is established, as it has two first sequence
 * numbers then. Where it has waited for a link address nobody is at work. */
static __noinline bool fastopen_begin(struct sock *sk,
				      const struct sk_buff *skb)
{
	unsigned char *transport = skb->head + skb->transport_header;
	__u32 pid = bpf_get_current_pid_tgid() >> 32, length;
	const struct unresolved *waited;
	struct tcp_header header;
	struct head none = {}; /* of a packet's payload nothing is read */
	struct five_tuple tuple;
	struct tcp_sock *tp;
	struct stream *s;
	__u64 now;

	tcp_header_at(transport, &header);
	length = skb->len - (__u32)(transport - skb->data) -
		 (header.offset >> 4) * 4;
	if (!length || !has_ports(&header, ports_of(sk)))
		return false;
	s = stream_watch(sk);
	tp = tcp_of(sk);
	if (!s || !tp || s->flow_out)
		return false;
	tuple_of_socket(sk, &tuple);
	s->out_zero = bpf_ntohl(header.sequence) + 1;
	s->flow_out = flow_number(&tuple, s->out_zero);
	s->given_end = s->queue_end = s->xmit_end = 0;
	now = tp->tcp_clock_cache;
	if (histograms) {
		ends_begin(s->flow_out, now);
		turn_send(sk, s, tp, now, NULL, &none, length);
	}
	if (!options.closing) {
		waited = unresolved_of((__u64)sk, (__u64)skb);
		if (waited) {
			pid = waited->sender.pid;
			if (task_announce_named(&waited->sender))
				s->sender_pid = pid;
		} else {
			sender_task(s, pid, now);
		}
		send_append(sk, s, length, length, now, pid, &none);
	}
	s->given_end = length;
	return true;
}

SEC("?tp_btf/tcp_sendmsg_locked")
int BPF_PROG(on_send, const struct sock *sk, const struct msghdr *msg)
{
	return send_begin(sk, msg, msg->msg_iter.count, true);
}

SEC("?fentry/tcp_sendmsg_locked")
int BPF_PROG(on_send_fentry, struct sock *sk, struct msghdr *msg, __u64 size)
{
	return send_begin(sk, msg, size, false);
}

bool sends_many; /* somebody has called sendmmsg on a UDP socket */

/* sendmmsg: the next datagram's call begins where this one's ended. */
SEC("?tp_btf/sock_send_length")
int BPF_PROG(on_send_return, struct sock *sk)
{
	struct send_call *call;

	if (!sends_many || sk->sk_protocol != IPPROTO_UDP)
		return 0;
	call = bpf_task_storage_get(&send_calls, bpf_get_current_task_btf(), 0,
				    0);
	if (call && call->socket == (__u64)sk)
		call->t_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline bool is_send_call(long number)
{
	switch (number) {
	case __NR_sendto:
	case __NR_sendmsg:
	case __NR_sendmmsg:
	case __NR_write:
	case __NR_writev:
	case __NR_sendfile:
		return true;
	default:
		return false;
	}
}

/* The socket behind a descriptor of the current task, or NULL. */
static __always_inline struct sock *socket_of_descriptor(__u32 descriptor)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table = FOLLOW(task, files)->fdt;
	struct file *file = NULL, **slot;
	struct socket *socket;
	struct inode *inode;

	if (descriptor >= table->max_fds)
		return NULL;
	slot = table->fd + descriptor;
	if (bpf_rdonly_cast)
		file = *(struct file **)VIEW(struct ipv6hdr, slot);
	else
		bpf_probe_read_kernel(&file, sizeof(file), slot);
	if (!file)
		return NULL;
	inode = SEE(struct file, file, f_inode);
	if ((SEE(struct inode, inode, i_mode) & S_IFMT) != S_IFSOCK)
		return NULL;
	socket = SEE(struct file, file, private_data);
	return SEE(struct socket, socket, sk);
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(on_syscall, struct pt_regs *regs, long number)
{
	struct sock *sk;
	struct net *net;

	if (number == __NR_io_uring_enter || number == __NR_splice)
		send_call_forget();
	if (!is_send_call(number))
		return 0;
	sk = socket_of_descriptor(FIRST_ARGUMENT(regs));
	if (!sk || SEE(struct sock, sk, sk_protocol) != IPPROTO_UDP)
		return 0;
	net = SEE(struct sock, sk, __sk_common.skc_net.net);
	if (!wants_netns(SEE(struct net, net, ns.inum)))
		return 0;
	if (number == __NR_sendmmsg && !sends_many)
		sends_many = true;
	send_call_note(sk);
	return 0;
}

SEC("?fentry/udp_sendmsg")
int BPF_PROG(on_udp_send, struct sock *sk)
{
	if (datagram_watch(sk))
		send_call_note(sk);
	return 0;
}

SEC("?fentry/udpv6_sendmsg")
int BPF_PROG(on_udpv6_send, struct sock *sk)
{
	if (datagram_watch(sk))
		send_call_note(sk);
	return 0;
}
