/*
 * histograms.h - the probes' histograms, in blocks that are made as they are
 * needed, and what they have counted since they were read last.
 *
 * Functions return 0 or -errno. Used by one thread at a time.
 */
#ifndef LATPROF_HISTOGRAMS_H
#define LATPROF_HISTOGRAMS_H

#include <stddef.h>
#include <stdint.h>

struct bpf_map;
struct bpf_object;
struct histograms;

/* A bucket that has counted; `histogram` is a number over all blocks. */
struct bucket_change {
	uint32_t histogram;
	uint32_t bucket;
	uint32_t count;
};

struct sum_change {
	uint64_t histogram;
	uint64_t sum_ns;
};

/* To be freed with changes_free(). */
struct changes {
	struct bucket_change *buckets;
	size_t bucket_count, bucket_room;
	struct sum_change *sums;
	size_t sum_count, sum_room;
};

/* Of a loaded map of maps. Close with histograms_close(). */
int histograms_open(const struct bpf_object *object,
		    const struct bpf_map *blocks, struct histograms **ret);
void histograms_close(struct histograms *h);

/* Makes a block, whose histograms are empty; one that is there stays. */
int histograms_grow(struct histograms *h, uint32_t block);

/* What each of `count` histograms from each of `first` on has counted since the
 * last time; none where there is no block. */
int histograms_changes(struct histograms *h, const uint32_t *first, size_t n,
		       uint32_t count, struct changes *ret);
void changes_free(struct changes *changes);

#endif
