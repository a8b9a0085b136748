/*
 * old.bpf.h - the basis of the probes on kernels without socket and task
 * storage for tracing (5.11), fetching atomics (5.12) and bpf_loop (5.17):
 * Linux 5.10. The compiler includes it before latprof.bpf.c, for
 * latprof-old.bpf.o.
 *
 * Storage is a hash by address. The kernel's own storage says when it ends:
 * each socket that is freed passes bpf_sk_storage_free(), each that is made of
 * a listener bpf_sk_storage_clone(), each task sched_process_free (old.bpf.c),
 * so that an address which is used again finds nothing.
 *
 * Programs of a CPU interrupt each other there, but never take turns: what runs
 * them has preemption off. So a ring needs no fetching atomic: who comes
 * between another one's look at `head` and its move has no record, which is
 * counted as lost. Of what two CPUs may claim, a hash has an entry meanwhile:
 * to insert one where none is is the kernel's own test-and-set. An interrupt
 * that comes upon its own CPU's claim has lost it.
 *
 * Loops are unrolled by the verifier. What they pass over is bounded by the
 * sizes below, and who needs more is merged or counted as with larger ones.
 */
#ifndef LATPROF_OLD_H
#define LATPROF_OLD_H

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* What counts in the kernel (watch, agent) is more than its verifier follows.
 */
#define histograms 0

#define MOST_TERMS 16
#define THREADS 128
#define DEEP_SENDS 32
#define DEEP_RANGES 32
#define ENDS 32
#define PARTS 16
#define UNREAD_DATAGRAMS 16

#define SOCKETS 65536
#define TASKS 16384

/* What new entries are made of; as large as any value. */
const char old_zero[1024];

#define STORAGE(name, held, room)                        \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_HASH);         \
		__uint(map_flags, BPF_F_NO_PREALLOC);    \
		__uint(max_entries, room);               \
		__type(key, __u64);                      \
		__type(value, held);                     \
	} name SEC(".maps");                             \
	_Static_assert(sizeof(held) <= sizeof(old_zero), \
		       "a new entry is zeroes")

#define SOCKET_STORAGE(name, held) STORAGE(name, held, SOCKETS)
#define INHERITED_STORAGE(name, held) STORAGE(name, held, SOCKETS)
#define TASK_STORAGE(name, held) STORAGE(name, held, TASKS)

#define storage_get(map, owner, flags)                              \
	({                                                          \
		__u64 owner_ = (__u64)(owner);                      \
		void *kept_ = bpf_map_lookup_elem(map, &owner_);    \
                                                                    \
		if (!kept_ && (flags)) {                            \
			bpf_map_update_elem(map, &owner_, old_zero, \
					    BPF_NOEXIST);           \
			kept_ = bpf_map_lookup_elem(map, &owner_);  \
		}                                                   \
		kept_;                                              \
	})
#define bpf_sk_storage_get(map, sk, init, flags) storage_get(map, sk, flags)
#define bpf_task_storage_get(map, task, init, flags) \
	storage_get(map, task, flags)
#define bpf_sk_storage_delete(map, sk)             \
	({                                         \
		__u64 owner_ = (__u64)(sk);        \
                                                   \
		bpf_map_delete_elem(map, &owner_); \
	})

#define SHARED static __noinline
#define APART static __noinline

#define bpf_get_current_task_btf() \
	((struct task_struct *)bpf_get_current_task())
#define FOLLOW(pointer, field) BPF_CORE_READ(pointer, field)

#define bpf_loop(most, act, context, flags)           \
	({                                            \
		for (__u32 i_ = 0; i_ < (most); i_++) \
			if (act(i_, context))         \
				break;                \
		0L;                                   \
	})

/* What lacks; its programs are not loaded. */
#define bpf_rdonly_cast ((void *(*)(const void *, __u32))0)
#define bpf_task_pt_regs(task) ((void)(task), 0L)

#define ring_take(control, ret)                               \
	({                                                    \
		volatile struct ring_control *c_ = (control); \
		bool free_ = !c_->taking;                     \
                                                              \
		if (free_) {                                  \
			c_->taking = 1;                       \
			*(ret) = c_->head;                    \
			c_->head = *(ret) + 1;                \
			c_->taking = 0;                       \
		}                                             \
		free_;                                        \
	})

#define CLAIMS 4096
#define CLAIM_TRIES 8 /* another CPU has it for 100 ns */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CLAIMS);
	__type(key, __u64);
	__type(value, __u8);
} claims SEC(".maps");

/* Until claim_end() nobody else has what is at this address. */
static __always_inline bool claim_begin(__u64 address)
{
	__u8 any = 0;

	for (int i = 0; i < CLAIM_TRIES; i++)
		if (!bpf_map_update_elem(&claims, &address, &any, BPF_NOEXIST))
			return true;
	return false;
}

static __always_inline void claim_end(__u64 address)
{
	bpf_map_delete_elem(&claims, &address);
}

/* A claim that fails is a replacement that another one has made. */
#define atomic_replace(place, was, new)                                  \
	({                                                               \
		volatile __typeof__(*(place)) *at_ = (place);            \
		bool replaced_ = false;                                  \
                                                                         \
		if (claim_begin((__u64)at_)) {                           \
			replaced_ = *at_ == (__typeof__(*(place)))(was); \
			if (replaced_)                                   \
				*at_ = (new);                            \
			claim_end((__u64)at_);                           \
		}                                                        \
		replaced_;                                               \
	})

#define old_change(place, change)                             \
	({                                                    \
		bool claimed_ = claim_begin((__u64)(place));  \
		volatile __typeof__(*(place)) *at_ = (place); \
		__typeof__(*(place)) was_ = *at_;             \
                                                              \
		*at_ = (change);                              \
		if (claimed_)                                 \
			claim_end((__u64)(place));            \
		was_;                                         \
	})
#define atomic_exchange(place, new) old_change(place, new)
#define atomic_add(place, n) old_change(place, was_ + (n))

/* The socket of an entry is an address there, not one to be followed. */
#define SOCKETS_PASSED "?iter/bpf_map_elem"
#define SOCKETS_CONTEXT bpf_iter__bpf_map_elem
#define socket_passed(ctx) ((struct sock *)0)

#endif
