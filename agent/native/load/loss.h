/* loss.h - when a datagram counts as lost, and which ones did. */
#ifndef LATPROF_LOAD_LOSS_H
#define LATPROF_LOAD_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct round_trip_estimate {
	uint64_t srtt_ns; /* 0: no sample yet */
	uint64_t rttvar_ns;
	uint64_t limit_ns;
};

struct loss {
	uint64_t fixed_ns; /* 0: the limit follows the round trips */
	struct round_trip_estimate *estimates; /* one per size */
	uint64_t *lost_keys; /* the recent ones, by hash */
};

/* -ENOMEM. */
int loss_open(struct loss *l, size_t size_count, uint64_t fixed_ns);
void loss_close(struct loss *l);
/* How long after its send a message of this size counts as lost: fixed, or
 * twice SRTT + 4 RTTVAR (RFC 6298) between 20 ms and 1 s, doubled at each
 * loss in a row; 1 s before the first sample. */
uint64_t loss_limit_ns(const struct loss *l, uint32_t size_index);
void loss_sample(struct loss *l, uint32_t size_index, uint64_t rtt_ns);
/* The message with this key in its header is lost. */
void loss_add(struct loss *l, uint32_t size_index, uint64_t key);
/* Was it counted as lost? Answers true once: the first reply is late, those
 * after it are duplicates. Forgets all but the last few thousand. */
bool loss_take(struct loss *l, uint64_t key);

#endif
