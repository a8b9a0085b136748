/*
 * send_call.bpf.h - the send call that the current task is in, for UDP, whose
 * packets do not show when they were asked for.
 */
#ifndef LATPROF_SEND_CALL_H
#define LATPROF_SEND_CALL_H

#include "watch.bpf.h"

struct send_call {
	__u64 t_ns;
	__u64 socket; /* address of the struct sock, for comparison only */
};

TASK_STORAGE(send_calls, struct send_call);

static __always_inline void send_call_note(const struct sock *sk)
{
	struct send_call *call =
		bpf_task_storage_get(&send_calls, bpf_get_current_task_btf(), 0,
				     BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!call) {
		count(failed_storage);
		return;
	}
	call->socket = (__u64)sk;
	call->t_ns = bpf_ktime_get_ns();
}

/* The task asks for something else that may send: what was noted is not it. */
static __always_inline void send_call_forget(void)
{
	struct send_call *call = bpf_task_storage_get(
		&send_calls, bpf_get_current_task_btf(), 0, 0);

	if (call)
		call->socket = 0;
}

/* When the current task's send call on this socket began; 0 unknown. */
static __always_inline __u64 send_call_start(const struct sock *sk)
{
	struct send_call *call = bpf_task_storage_get(
		&send_calls, bpf_get_current_task_btf(), 0, 0);

	return call && call->socket == (__u64)sk &&
			       call->t_ns >= options.since_ns ?
		       call->t_ns :
		       0;
}

#endif
