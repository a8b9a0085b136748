/*
 * path.c - any packets, through a direction of latprof-link: none is lost from
 * its counters, and its queue is empty once all have left.
 */
#include "path.h"

#include <errno.h>
#include <string.h>

/* So that every byte is read. */
static volatile uint8_t sum;

enum { LISTED = 4, STEPS_MAX = 512 };

/* The device takes the packet, or is down. */
ssize_t world_send(const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		sum ^= ((const uint8_t *)bytes)[i];
	if (world_byte() == 255) {
		errno = EIO;
		return -1;
	}
	return (ssize_t)size;
}

static double probability(void)
{
	return world_byte() / 255.0;
}

static void choose(struct path_options *ret, uint64_t listed[2][LISTED])
{
	uint8_t mode = world_byte();

	*ret = (struct path_options){
		.queue_bytes = 1 + world_number(0xffff),
		.delay_ns = world_number(0xffffff),
		.reorder_delay_ns = world_number(0xffffff),
		.drops = { listed[0], LISTED },
		.reorders = { listed[1], LISTED },
	};
	for (int i = 0; i < LISTED; i++) {
		listed[0][i] = world_byte();
		listed[1][i] = world_byte();
	}
	if (mode & 1)
		ret->rate_bps = 1 + world_number(UINT32_MAX);
	if (mode & 2)
		ret->loss =
			(struct gilbert_elliott){ probability(), probability(),
						  probability(),
						  probability() };
}

static void packet_in(struct path *path)
{
	static const size_t longest = 2048;
	size_t size = world_number(0x1ff), count;
	/* As long as it is, so that a read behind it is found. */
	uint8_t *packet = malloc(longest);

	count = world_bytes(packet, size);
	packet = realloc(packet, count ? count : 1);
	path_receive(path, packet, count, world.now_ns);
	free(packet);
}

static void check(const struct path *path)
{
	const struct path_counters *c = &path->counters;

	MUST(c->packets_in == c->packets_out + c->dropped_queue +
				      c->dropped_loss + c->dropped_listed +
				      c->dropped_write + c->in_flight);
	MUST(!path->options->rate_bps ||
	     path->queued_bytes <= path->options->queue_bytes);
	MUST(c->reordered <= c->packets_out);
	MUST(c->bytes_out <= c->bytes_in);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	uint64_t listed[2][LISTED];
	struct path_options options;
	struct path path;

	world_begin(input, size);
	choose(&options, listed);
	path_init(&path, &options, world_byte());
	for (int step = 0; world.left && step < STEPS_MAX; step++) {
		world.now_ns += (uint64_t)world_byte() * world_byte() * 100;
		packet_in(&path);
		path_deliver(&path, 0);
		check(&path);
	}
	if (world_byte() & 1) { /* the end may come with packets held */
		path_deinit(&path);
		return 0;
	}
	world.now_ns = UINT64_MAX / 2;
	path_deliver(&path, 0);
	check(&path);
	MUST(!path.counters.in_flight && !path.flight_bytes);
	MUST(!path.queued_bytes && path_due_ns(&path) == UINT64_MAX);
	path_deinit(&path);
	return 0;
}
