/*
 * owner.bpf.h - whose a socket is: what the terms of processes ask of it, kept
 * as its mark.
 */
#ifndef LATPROF_OWNER_H
#define LATPROF_OWNER_H

#include "listener.bpf.h"

#define PROCESSES 65536
#define ACCEPT_QUEUE 128 /* connections in it; more are not marked */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PROCESSES);
	__type(key, __u32);
	__type(value, struct followed);
} pids SEC(".maps");

struct named {
	__u64 own[2]; /* a thread may have a name of its own */
	__u64 leaders[2];
	__u32 facts;
};

#ifndef THREADS
#define THREADS 4096 /* of a process whose names are compared */
#endif

struct threads {
	const struct list_head *at;
	const struct list_head *head;
	struct named named;
};

static long name_ask(__u32 index, struct named *n)
{
	const struct term *term;
	const __u64 *name;

	if (index >= MOST_TERMS)
		return 1;
	term = &options.terms[index];
	name = term->value;
	if (term->kind == TERM_COMM &&
	    ((name[0] == n->own[0] && name[1] == n->own[1]) ||
	     (name[0] == n->leaders[0] && name[1] == n->leaders[1])))
		n->facts |= term->mask[0];
	return term->kind == TERM_NONE;
}

static __always_inline const struct followed *followed_of(__u32 pid)
{
	const struct followed *f = bpf_map_lookup_elem(&pids, &pid);

	return f && f->notes == options.notes ? f : NULL;
}

/* What the terms of processes ask, as bits. */
static __noinline __u32 facts_of(const struct task_struct *task)
{
	const struct followed *f = followed_of(FOLLOW(task, tgid));
	const struct task_struct *leader = FOLLOW(task, group_leader);
	struct named n = { .facts = f ? f->facts : options.zero };

	bpf_core_read(n.own, sizeof(n.own), &task->comm);
	bpf_core_read(n.leaders, sizeof(n.leaders), &leader->comm);
	bpf_loop(MOST_TERMS, name_ask, &n, 0);
	return n.facts;
}

static long thread_ask(__u32 index, struct threads *t)
{
	const struct list_head *at = t->at;
	const struct task_struct *thread;

	if (!at || at == t->head)
		return 1;
	thread = (void *)at -
		 bpf_core_field_offset(struct task_struct, thread_node);
	bpf_core_read(t->named.own, sizeof(t->named.own), &thread->comm);
	bpf_loop(MOST_TERMS, name_ask, &t->named, 0);
	t->at = BPF_CORE_READ(at, next);
	return 0;
}

/* The same by the names of all its threads, which have the same files: a pass
 * over open files comes to the first one only. */
static __noinline __u32 facts_of_threads(const struct task_struct *task)
{
	const struct signal_struct *signal = task->signal;
	struct threads t = { .named.facts = options.zero };

	if (!signal)
		return 0;
	t.head = &signal->thread_head;
	t.at = BPF_CORE_READ(signal, thread_head.next);
	bpf_loop(THREADS, thread_ask, &t, 0);
	return t.named.facts;
}

struct {
	__u32 pid;
	__u32 notes;
	__u32 facts;
} asked_last; /* of the process whose files are passed */

static __always_inline __u32 facts_of_owner(const struct task_struct *task)
{
	__u32 pid = task->tgid;

	if (asked_last.pid != pid || asked_last.notes != options.notes) {
		asked_last.facts = facts_of_threads(task);
		asked_last.pid = pid;
		asked_last.notes = options.notes;
	}
	return facts_of(task) | asked_last.facts;
}

static __always_inline void mark_note(struct mark *m, __u32 facts)
{
	if (!m) {
		count(failed_storage);
		return;
	}
	m->facts = m->notes == options.notes ? m->facts | facts : facts;
	m->notes = options.notes;
}

/* For each type that the kernel has of sockets. */
#define mark(sk, facts)                                            \
	mark_note(bpf_sk_storage_get(&marked, sk, 0,               \
				     BPF_SK_STORAGE_GET_F_CREATE), \
		  facts)

struct waiting {
	struct request_sock *request;
	__u32 facts;
	bool wanted;
};

static long waiting_mark(__u32 index, struct waiting *w)
{
	struct request_sock *request = w->request;
	struct sock *sk = request ? request->sk : NULL;

	if (!sk)
		return 1;
	if (w->facts)
		mark(sk, w->facts);
	if (w->wanted)
		stream_note(sk);
	w->request = request->dl_next;
	return 0;
}

/* A connection that nobody has accepted is of no process: it belongs to its
 * listener's. */
static __noinline void listener_mark(struct sock *listener, __u32 facts,
				     bool wanted)
{
	struct waiting w = { .facts = facts, .wanted = wanted };
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(listener);

	if (!tp)
		return;
	w.request = tp->inet_conn.icsk_accept_queue.rskq_accept_head;
	bpf_loop(ACCEPT_QUEUE, waiting_mark, &w, 0);
}

/* A socket that is open: note what follows from that, and write its address if
 * it is watched. */
static __always_inline int open_socket_look(struct sock *sk, __u32 facts,
					    struct bpf_iter_meta *meta)
{
	__u64 address = (__u64)sk;
	bool wanted;

	if (facts)
		mark(sk, facts);
	wanted = wants_socket(sk);
	if (sk->__sk_common.skc_state == TCP_LISTEN)
		listener_mark(sk, facts, wanted);
	else if (wanted && sk->sk_protocol == IPPROTO_TCP)
		stream_note(sk);
	if (!wanted)
		return 0;
	if (sk->sk_protocol == IPPROTO_UDP)
		end_note(sk, socket_number(sk), GROUP_UNDECIDED);
	else if (sk->__sk_common.skc_state == TCP_LISTEN)
		listener_begin(sk);
	bpf_seq_write(meta->seq, &address, sizeof(address));
	return 0;
}

#endif
