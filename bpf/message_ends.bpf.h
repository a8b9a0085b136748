/*
 * message_ends.bpf.h - where messages end, from a TCP sender to its receiver on
 * this host, so that a receiver counts messages and not readable ranges.
 *
 * A flow has a place in an array by its number, or none where both places of
 * that number are taken: then its receiver counts ranges. The sender notes the
 * end of each message; the receiver takes those that it has read. Where more
 * wait than there is room for, they are only counted: then each range that is
 * read stands for one, and the last for all that are left.
 *
 * The two are mostly at work on two CPUs, so neither writes for each message
 * what the other reads, but the end itself: that says by its number whether it
 * is there already.
 */
#ifndef LATPROF_MESSAGE_ENDS_H
#define LATPROF_MESSAGE_ENDS_H

#include "watch.bpf.h"

#define FLOW_ENDS_BITS 13 /* 18 MB */
#ifndef ENDS
#define ENDS 256 /* a power of two */
#endif
#define CACHE_LINE 64
/* Nobody has read for so long: the receiver is not on this host, or is gone. */
#define ENDS_KEEP_NS 10000000000ULL
#define ENDS_UNMET_NS 2000000000ULL

struct flow_ends {
	/* of both, and seldom written */
	__u64 flow;
	__u64 begun_ns;
	__u32 missed; /* counted only ... */
	__u32 missed_end; /* ... and where the last of them ends */
	__u32 interim_end; /* of the last answer that is none yet, low bits */
	__u8 met; /* the receiver is here */
	__u8 finished; /* nothing more is sent */
	__u16 window; /* of time, the low bits */
	/* the sender's */
	__u32 noted __attribute__((aligned(CACHE_LINE)));
	__u32 seen_taken; /* when there seemed to be no room */
	/* the receiver's */
	__u64 used_ns __attribute__((aligned(CACHE_LINE)));
	__u32 taken;
	/* an offset's low bits, and above them which one it is, from 1 */
	__u64 ends[ENDS] __attribute__((aligned(CACHE_LINE)));
};

/* Mapped by nobody: so it begins at a page, and lines are where they seem. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_ends);
} flows_ends SEC(".maps");

static __always_inline struct flow_ends *ends_place(__u64 flow, __u32 other)
{
	__u32 at = (flow ^ other) & ((1 << FLOW_ENDS_BITS) - 1);

	return bpf_map_lookup_elem(&flows_ends, &at);
}

static __always_inline struct flow_ends *ends_of(__u64 flow)
{
	struct flow_ends *e = ends_place(flow, 0);

	if (!e || e->flow != flow)
		e = ends_place(flow, 1);
	return e && e->flow == flow && e->window == (__u16)options.window ?
		       e :
		       NULL;
}

static __always_inline bool ends_free(const struct flow_ends *e, __u64 flow,
				      __u64 now)
{
	return !e->flow || e->flow == flow ||
	       (e->met ? now - e->used_ns > ENDS_KEEP_NS :
			 now - e->begun_ns > ENDS_UNMET_NS);
}

/* A sender begins. Numbers go on: those of the flow before are no new ones. */
static __noinline void ends_begin(__u64 flow, __u64 now)
{
	struct flow_ends *e = ends_place(flow, 0);

	if (e && !ends_free(e, flow, now))
		e = ends_place(flow, 1);
	if (!e || !ends_free(e, flow, now))
		return;
	e->flow = 0;
	e->taken = e->seen_taken = e->noted;
	e->missed = e->met = e->finished = 0;
	e->interim_end = 0;
	e->begun_ns = now;
	e->window = options.window;
	barrier();
	e->flow = flow;
}

/* Nothing of it will be sent any more; what was may still be read. */
static __always_inline void ends_finish(__u64 flow)
{
	struct flow_ends *e = ends_of(flow);

	if (!e)
		return;
	e->finished = 1;
	if (!e->met || (e->noted == e->taken && !e->missed))
		e->flow = 0;
}

/* The receiver is here. */
static __always_inline struct flow_ends *ends_meet(__u64 flow, __u64 now)
{
	struct flow_ends *e = ends_of(flow);

	if (e) {
		if (!e->met)
			e->met = 1;
		e->used_ns = now;
	}
	return e;
}

static __always_inline bool ends_have_room(struct flow_ends *e)
{
	if (e->noted - e->seen_taken < ENDS)
		return true;
	e->seen_taken = *(volatile __u32 *)&e->taken;
	return e->noted - e->seen_taken < ENDS;
}

static __always_inline void end_put(struct flow_ends *e, __u32 number,
				    __u64 end)
{
	volatile __u64 *slot = &e->ends[number & (ENDS - 1)];

	*slot = (__u64)number << 32 | (__u32)end;
}

static __always_inline void ends_note(__u64 flow, __u64 end)
{
	struct flow_ends *e = ends_of(flow);

	if (!e)
		return;
	if (e->missed || !ends_have_room(e)) {
		e->missed_end = end;
		__sync_fetch_and_add(&e->missed, 1);
		return;
	}
	end_put(e, ++e->noted, end);
}

/* What ends there is an interim answer. */
static __noinline void ends_note_interim(__u64 flow, __u64 end)
{
	struct flow_ends *e = ends_of(flow);

	if (e)
		e->interim_end = end;
}

/* The last message was cut. */
static __always_inline void ends_cut(__u64 flow, __u64 end)
{
	struct flow_ends *e = ends_of(flow);

	if (e && e->noted != e->taken && !e->missed)
		end_put(e, e->noted, end);
}

struct ends_taking {
	struct flow_ends *e;
	__u32 end;
	__u32 taken;
	bool empty;
};

/* Returns 1 where no further one was read. */
static long end_take(__u32 index, struct ends_taking *t)
{
	struct flow_ends *e = t->e;
	__u32 number = e->taken + 1;
	__u64 slot = *(volatile __u64 *)&e->ends[number & (ENDS - 1)];

	t->empty = slot >> 32 != number;
	if (t->empty || (__s32)((__u32)slot - t->end) > 0)
		return 1;
	e->taken = number;
	t->taken++;
	return 0;
}

/* One of those that are counted only, or all of them if none will follow. */
static __noinline __u32 ends_take_missed(struct flow_ends *e, __u64 end)
{
	__u32 n = (__s32)(e->missed_end - (__u32)end) > 0 ? 1 : e->missed;

	__sync_fetch_and_add(&e->missed, -n);
	count_more(unpaired_messages, n);
	return n;
}

/* How many messages end in what was read up to `end`. Not static, so that the
 * verifier looks at it once. */
SHARED int ends_take(struct flow_ends *e, __u64 end)
{
	struct ends_taking t = { .e = e, .end = end };

	if (!e)
		return 0;
	/* mostly there is one: the loop is a call */
	if (!end_take(0, &t) && !end_take(0, &t))
		bpf_loop(ENDS, end_take, &t, 0);
	if (e->missed && t.empty)
		t.taken += ends_take_missed(e, end);
	if (e->finished && t.empty && !e->missed)
		e->flow = 0;
	return t.taken;
}

#endif
