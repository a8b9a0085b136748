/*
 * basis.bpf.h - what the probes are built on, by one name each: the kernel's
 * storage of sockets and tasks, atomics that give a result, loops, and the
 * current task as a pointer that may be followed. old.bpf.h, which is included
 * before all others, has the same for kernels without them.
 */
#ifndef LATPROF_BASIS_H
#define LATPROF_BASIS_H

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#ifndef LATPROF_OLD_H

/* Kept with a socket, or a task, and freed with it. */
#define STORAGE(kind, name, held, flags)                      \
	struct {                                              \
		__uint(type, BPF_MAP_TYPE_##kind##_STORAGE);  \
		__uint(map_flags, BPF_F_NO_PREALLOC | flags); \
		__type(key, int);                             \
		__type(value, held);                          \
	} name SEC(".maps")

#define SOCKET_STORAGE(name, held) STORAGE(SK, name, held, 0)
/* What a connection that is accepted has of its listener. */
#define INHERITED_STORAGE(name, held) STORAGE(SK, name, held, BPF_F_CLONE)
#define TASK_STORAGE(name, held) STORAGE(TASK, name, held, 0)

/* A function that the verifier looks at once for all who call it. */
#define SHARED __noinline

/* A function that has a stack frame of its own where theirs hold more. */
#define APART static __always_inline

/* A field behind a pointer that a helper gave. */
#define FOLLOW(pointer, field) ((pointer)->field)

/* Each gives what was there before. */
#define atomic_add __sync_fetch_and_add
#define atomic_exchange __sync_lock_test_and_set
/* Whether it was there, and so was replaced. */
#define atomic_replace(place, was, new) \
	(__sync_val_compare_and_swap(place, was, new) == (was))

/* The number of the next record of this CPU's ring; false: there is none. */
#define ring_take(control, ret) \
	(*(ret) = __sync_fetch_and_add(&(control)->head, 1), true)

/* An iterator over what is kept of sockets. */
#define SOCKETS_PASSED "?iter/bpf_sk_storage_map"
#define SOCKETS_CONTEXT bpf_iter__bpf_sk_storage_map
#define socket_passed(ctx) ((ctx)->sk)

#endif

#endif
