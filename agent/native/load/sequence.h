/*
 * sequence.h - what became of numbered datagrams, as their receiver sees it.
 *
 * Numbers come from 0 on. Kept are only the gaps: runs of numbers that were
 * passed over and may still come. A stream without loss needs no memory, and
 * one with losses has every lost number counted exactly, once nothing can
 * come any more. Where there are more gaps than fit, the oldest are taken as
 * lost; a datagram that comes from before them is `stale`: late or doubled,
 * which is not known.
 *
 * Reordered and its extent: RFC 4737. A datagram is reordered when a greater
 * number has come before; its extent is how many arrivals lie between it and
 * the first of those with a greater number. Duplicates are no arrivals.
 */
#ifndef LATPROF_LOAD_SEQUENCE_H
#define LATPROF_LOAD_SEQUENCE_H

#include <stddef.h>
#include <stdint.h>

enum {
	SEQUENCE_GAPS_MAX = 1 << 14,
	SEQUENCE_RUNS_MAX = 1 << 12, /* the first so many are listed */
	SEQUENCE_LENGTHS = 64,
};

/* Numbers in a row that were lost. */
struct loss_run {
	uint64_t first;
	uint64_t length;
	uint64_t t_ns; /* when the first one behind it came */
	uint64_t in_socket; /* of them, dropped at the full receive buffer */
};

struct gap {
	uint64_t first, end; /* numbers, `end` is not in it */
	uint64_t t_ns;
	uint64_t in_socket;
	uint64_t opened_at; /* how many had arrived before what opened it */
};

struct sequence {
	uint64_t next; /* above the greatest number that came */
	uint64_t stale_below; /* nothing is known of numbers below */
	uint64_t received; /* each number once */
	uint64_t duplicates, reordered, extent_max, extent_sum, stale;
	uint64_t lost, in_socket, run_count;
	uint32_t socket_drops; /* of the kernel's count: those given to a gap */
	/* At most: what travels as one packet is dropped as one. The owner
	 * raises it when it sees longer ones. */
	uint64_t datagrams_per_drop;
	uint64_t lengths[SEQUENCE_LENGTHS]; /* [k]: runs of 2^k to 2^(k+1)-1 */
	struct gap *gaps; /* by number */
	size_t gap_count;
	struct loss_run *runs;
	size_t runs_kept;
};

/* -ENOMEM. */
int sequence_open(struct sequence *a);
void sequence_close(struct sequence *a);
/* For sequence_add(). */
void sequence_add_out_of_turn(struct sequence *a, uint64_t number,
			      uint64_t t_ns, uint32_t socket_drops);
/* Nothing comes any more, and this many were sent. */
void sequence_end(struct sequence *a, uint64_t sent, uint64_t t_ns,
		  uint32_t socket_drops);

/* A datagram came; socket_drops is what the kernel had dropped at the socket
 * before it (SO_RXQ_OVFL), all in all, mod 2^32. */
static inline void sequence_add(struct sequence *a, uint64_t number,
				uint64_t t_ns, uint32_t socket_drops)
{
	if (number == a->next) {
		a->next++;
		a->received++;
		return;
	}
	sequence_add_out_of_turn(a, number, t_ns, socket_drops);
}

#endif
