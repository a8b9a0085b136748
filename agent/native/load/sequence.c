/* sequence.c - what became of numbered datagrams, as their receiver sees it. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sequence.h"

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

int sequence_open(struct sequence *a)
{
	*a = (struct sequence){ .datagrams_per_drop = 1 };
	/* One more: a gap may be split before there is room for two. */
	a->gaps = calloc(SEQUENCE_GAPS_MAX + 1, sizeof(*a->gaps));
	a->runs = calloc(SEQUENCE_RUNS_MAX, sizeof(*a->runs));
	if (a->gaps && a->runs)
		return 0;
	sequence_close(a);
	return -ENOMEM;
}

void sequence_close(struct sequence *a)
{
	free(a->gaps);
	free(a->runs);
	a->gaps = NULL;
	a->runs = NULL;
}

/* Nothing of this gap comes any more. */
static void settle(struct sequence *a, const struct gap *g)
{
	struct loss_run run = { g->first, g->end - g->first, g->t_ns,
				g->in_socket };

	a->lost += run.length;
	a->in_socket += run.in_socket;
	a->lengths[63 - __builtin_clzll(run.length)]++;
	a->run_count++;
	if (a->runs_kept < SEQUENCE_RUNS_MAX)
		a->runs[a->runs_kept++] = run;
}

/* Half of them at once, so that the rest moves seldom. */
static void settle_oldest(struct sequence *a, size_t count)
{
	for (size_t i = 0; i < count; i++)
		settle(a, &a->gaps[i]);
	if (count)
		a->stale_below = a->gaps[count - 1].end;
	a->gap_count -= count;
	memmove(a->gaps, a->gaps + count, a->gap_count * sizeof(*a->gaps));
}

static void make_room(struct sequence *a)
{
	if (a->gap_count >= SEQUENCE_GAPS_MAX)
		settle_oldest(a, SEQUENCE_GAPS_MAX / 2);
}

/* Numbers from `next` up to `end` were passed over. What the socket dropped
 * since the last gap lies in this one. */
static void open_gap(struct sequence *a, uint64_t end, uint64_t t_ns,
		     uint32_t socket_drops)
{
	uint32_t drops = socket_drops - a->socket_drops;

	make_room(a);
	a->gaps[a->gap_count++] = (struct gap){
		.first = a->next,
		.end = end,
		.t_ns = t_ns,
		.in_socket =
			smaller(end - a->next, drops * a->datagrams_per_drop),
		.opened_at = a->received,
	};
	a->socket_drops = socket_drops;
}

/* The gap that holds this number, or NULL. Late ones are mostly just late. */
static struct gap *find_gap(struct sequence *a, uint64_t number)
{
	size_t low = 0, high = a->gap_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (a->gaps[middle].end <= number)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == a->gap_count || a->gaps[low].first > number)
		return NULL;
	return &a->gaps[low];
}

static void insert_after(struct sequence *a, struct gap *g,
			 const struct gap *added)
{
	size_t behind = a->gap_count - (size_t)(g + 1 - a->gaps);

	memmove(g + 2, g + 1, behind * sizeof(*g));
	g[1] = *added;
	a->gap_count++;
}

static void remove_gap(struct sequence *a, struct gap *g)
{
	size_t behind = a->gap_count - (size_t)(g + 1 - a->gaps);

	memmove(g, g + 1, behind * sizeof(*g));
	a->gap_count--;
}

/* Take one number out: what is left are none, one or two gaps. */
static void fill(struct sequence *a, struct gap *g, uint64_t number)
{
	struct gap above = *g;

	g->end = number;
	g->in_socket = smaller(g->in_socket, g->end - g->first);
	above.first = number + 1;
	above.in_socket = smaller(above.in_socket - g->in_socket,
				  above.end - above.first);
	if (above.first < above.end)
		insert_after(a, g, &above);
	if (g->first == g->end)
		remove_gap(a, g);
	make_room(a);
}

static void add_late(struct sequence *a, uint64_t number)
{
	struct gap *g = find_gap(a, number);
	uint64_t extent;

	if (!g) {
		if (number < a->stale_below)
			a->stale++;
		else
			a->duplicates++;
		return;
	}
	extent = a->received - g->opened_at;
	a->received++;
	a->reordered++;
	a->extent_sum += extent;
	if (extent > a->extent_max)
		a->extent_max = extent;
	fill(a, g, number);
}

void sequence_add_out_of_turn(struct sequence *a, uint64_t number,
			      uint64_t t_ns, uint32_t socket_drops)
{
	if (number < a->next) {
		add_late(a, number);
		return;
	}
	open_gap(a, number, t_ns, socket_drops);
	a->next = number + 1;
	a->received++;
}

void sequence_end(struct sequence *a, uint64_t sent, uint64_t t_ns,
		  uint32_t socket_drops)
{
	if (sent > a->next) {
		open_gap(a, sent, t_ns, socket_drops);
		a->next = sent;
	}
	settle_oldest(a, a->gap_count);
}
