#include "histograms.h"
#include "../../bpf/records.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EACH (BLOCK_GROUPS * QUANTITIES) /* histograms of a block */

/* What is mapped counts as this process' memory, so a block is while it is read
 * only: that takes 0.1 ms, to copy what may have changed in it ten times that.
 */
struct block {
	int map; /* -1: there is none */
	const struct histogram *now; /* while it is mapped */
	struct histogram *last; /* as it was read last */
};

struct histograms {
	int blocks_map;
	/* of the object: before Linux 6.4 a map with types is of another kind
	 * than one without, and the object's own example of a block has them */
	uint32_t btf, key_type, value_type;
	uint32_t block_count;
	struct block blocks[];
};

int histograms_open(const struct bpf_object *object,
		    const struct bpf_map *blocks, struct histograms **ret)
{
	uint32_t count = bpf_map__max_entries(blocks);
	const struct btf *btf = bpf_object__btf(object);
	int key = btf__find_by_name_kind(btf, "unsigned int", BTF_KIND_INT);
	int value = btf__find_by_name_kind(btf, "histogram", BTF_KIND_STRUCT);
	struct histograms *h;

	if (key < 0 || value < 0)
		return -EINVAL;
	h = calloc(1, sizeof(*h) + count * sizeof(h->blocks[0]));
	if (!h)
		return -ENOMEM;
	h->blocks_map = bpf_map__fd(blocks);
	h->btf = bpf_object__btf_fd(object);
	h->key_type = key;
	h->value_type = value;
	h->block_count = count;
	for (uint32_t i = 0; i < count; i++)
		h->blocks[i].map = -1;
	*ret = h;
	return 0;
}

void histograms_close(struct histograms *h)
{
	if (!h)
		return;
	for (uint32_t i = 0; i < h->block_count; i++) {
		if (h->blocks[i].map >= 0)
			close(h->blocks[i].map);
		free(h->blocks[i].last);
	}
	free(h);
}

int histograms_grow(struct histograms *h, uint32_t block)
{
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE,
		    .btf_fd = h->btf, .btf_key_type_id = h->key_type,
		    .btf_value_type_id = h->value_type);
	struct block *b;
	int error, map;

	if (block >= h->block_count)
		return -EINVAL;
	b = &h->blocks[block];
	if (b->map >= 0)
		return 0;
	map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "histograms", sizeof(__u32),
			     sizeof(struct histogram), EACH, &options);
	if (map < 0)
		return map;
	/* pages that stay empty take no memory */
	b->last = calloc(EACH, sizeof(*b->last));
	error = b->last ? bpf_map_update_elem(h->blocks_map, &block, &map,
					      BPF_ANY) :
			  -ENOMEM;
	if (error) {
		free(b->last);
		b->last = NULL;
		close(map);
		return error;
	}
	b->map = map;
	return 0;
}

static void *grown(void *area, size_t *room, size_t each)
{
	size_t more = *room ? 2 * *room : 256;
	void *found = realloc(area, more * each);

	if (found)
		*room = more;
	return found;
}

static int add_bucket(struct changes *c, uint32_t histogram, uint32_t bucket,
		      uint32_t count)
{
	if (c->bucket_count == c->bucket_room) {
		void *area =
			grown(c->buckets, &c->bucket_room, sizeof(*c->buckets));

		if (!area)
			return -ENOMEM;
		c->buckets = area;
	}
	c->buckets[c->bucket_count++] =
		(struct bucket_change){ histogram, bucket, count };
	return 0;
}

static int add_sum(struct changes *c, uint32_t histogram, uint64_t sum_ns)
{
	if (c->sum_count == c->sum_room) {
		void *area = grown(c->sums, &c->sum_room, sizeof(*c->sums));

		if (!area)
			return -ENOMEM;
		c->sums = area;
	}
	c->sums[c->sum_count++] = (struct sum_change){ histogram, sum_ns };
	return 0;
}

/* Counts and sums wrap; their differences do not mind. The programs go on
 * counting: each number is read once. */
static int compare(struct changes *c, uint32_t number,
		   const volatile struct histogram *now, struct histogram *last)
{
	uint64_t sum_ns = now->sum_ns;
	int error = add_sum(c, number, sum_ns - last->sum_ns);

	last->sum_ns = sum_ns;
	for (uint32_t i = 0; !error && i < HISTOGRAM_BUCKETS; i++) {
		uint32_t count = now->counts[i];

		if (count == last->counts[i])
			continue;
		error = add_bucket(c, number, i, count - last->counts[i]);
		last->counts[i] = count;
	}
	return error;
}

static const struct histogram *map_block(const struct block *b)
{
	void *area = mmap(NULL, EACH * sizeof(*b->now), PROT_READ, MAP_SHARED,
			  b->map, 0);

	return area == MAP_FAILED ? NULL : area;
}

static int change_of(struct histograms *h, uint32_t number, struct changes *ret)
{
	uint32_t place = number % EACH;
	const struct histogram *now;
	struct histogram *last;
	struct block *b;

	if (number / EACH >= h->block_count)
		return 0;
	b = &h->blocks[number / EACH];
	if (b->map < 0)
		return 0;
	if (!b->now)
		b->now = map_block(b);
	if (!b->now)
		return -errno;
	now = &b->now[place];
	last = &b->last[place];
	/* what takes 0 ns adds nothing to the sum */
	if (now->sum_ns == last->sum_ns && now->counts[0] == last->counts[0])
		return 0;
	return compare(ret, number, now, last);
}

static void unmap_blocks(struct histograms *h)
{
	for (uint32_t i = 0; i < h->block_count; i++) {
		struct block *b = &h->blocks[i];

		if (b->now)
			munmap((void *)b->now, EACH * sizeof(*b->now));
		b->now = NULL;
	}
}

int histograms_changes(struct histograms *h, const uint32_t *first, size_t n,
		       uint32_t count, struct changes *ret)
{
	int error = 0;

	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; !error && i < n; i++)
		for (uint32_t k = 0; !error && k < count; k++)
			error = change_of(h, first[i] + k, ret);
	unmap_blocks(h);
	if (error)
		changes_free(ret);
	return error;
}

void changes_free(struct changes *changes)
{
	free(changes->buckets);
	free(changes->sums);
}
