/*
 * flight.bpf.h - rings of each CPU that are written over all the time: of a
 * flight recorder, which is read only where a message was slow.
 *
 * Nothing is lost by a full ring: the oldest goes. User space copies a ring
 * while it is written, and leaves out what may have changed meanwhile. The
 * first field of a record is its time, of a span that of its end.
 */
#ifndef LATPROF_FLIGHT_H
#define LATPROF_FLIGHT_H

#include "ring.bpf.h"

#define NOT_KNOWN 0xffffffffu

/* What bytes waited for is not written of shorter spans; 0: there is no
 * recorder.
 */
const volatile __u32 held_ns SEC(".rodata.held_ns") = 0;

/* As RING() in ring.bpf.h, without a reader that it waits for. */
#define FLIGHT(name, record) \
	SLOTS(name, record); \
	struct record *name##_flight __attribute__((unused))

static __always_inline void *flight_next(void *ring)
{
	__u32 at = bpf_get_smp_processor_id();
	struct ring_control *control = bpf_map_lookup_elem(ring, &at);
	__u64 n, *slot;

	if (!control || !control->mask || !ring_take(control, &n))
		return NULL;
	at = control->first + (n & control->mask);
	slot = bpf_map_lookup_elem(ring, &at);
	if (!slot)
		return NULL;
	/* Until it is whole; and no reader may see it new with the old number,
	 * see ring_submit(). */
#if defined(__TARGET_ARCH_x86)
	*(volatile __u64 *)slot = n;
	barrier();
#else
	__sync_lock_test_and_set(slot, n);
#endif
	return slot + 1;
}

/* Of a stack that a helper has written. */
static __always_inline __u8 frames_of(long bytes)
{
	return bytes > 0 ? bytes / sizeof(__u64) : 0;
}

#endif
