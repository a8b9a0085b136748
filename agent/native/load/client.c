/* client.c - what the exchanges with several peers share. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client.h"
#include "clock.h"
#include "exchange.h"

static const uint64_t upkeep_gap_ns = 250 * NS_PER_MS;

int client_fail_memory(const struct client *c)
{
	return fail(c->failure, ENOMEM,
		    "cannot prepare %zu peers: out of memory; give fewer",
		    c->options->peers.count);
}

int client_reserve(struct client *c)
{
	size_t count = c->options->peers.count;

	c->exchanges = calloc(count, sizeof(*c->exchanges));
	if (!c->exchanges)
		return client_fail_memory(c);
	for (size_t i = 0; i < count; i++)
		c->exchanges[i] = (struct exchange){
			.options = c->options,
			.stop = c->stop,
			.failure = c->failure,
			.client = c,
			.peer = &c->options->peers.values[i],
			.index = i,
			.fd = -1,
			.link = { .control = -1, .data = -1 },
		};
	return 0;
}

void client_release(struct client *c)
{
	free(c->exchanges);
	c->exchanges = NULL;
}

/* When schedules begin. -ETIME with a line when it is over. */
static int choose_start(const struct client *c, uint64_t *ret)
{
	uint64_t now = clock_ns(), wanted = c->options->start_ns;

	/* A millisecond ahead: the first message is on time as well. */
	*ret = wanted ? wanted : now + NS_PER_MS;
	if (now < *ret)
		return 0;
	return fail(c->failure, ETIME,
		    "cannot start at %" PRIu64 ": that was %" PRIu64
		    " ns ago; give --start-at more time",
		    wanted, now - wanted);
}

int client_open(struct client *c)
{
	int error = records_open(&c->records, c->options->output, c->failure);
	uint64_t start_ns;

	for (size_t i = 0; !error && i < c->options->peers.count; i++)
		error = exchange_open(&c->exchanges[i]);
	if (!error)
		error = choose_start(c, &start_ns);
	for (size_t i = 0; !error && i < c->options->peers.count; i++)
		error = exchange_schedule(&c->exchanges[i], start_ns);
	c->upkept_ns = clock_ns();
	return error;
}

uint64_t client_measured_ns(const struct client *c)
{
	uint64_t first = CLOCK_NEVER;

	for (size_t i = 0; i < c->options->peers.count; i++) {
		uint64_t ns = c->exchanges[i].schedule.measured_ns;

		if (ns && ns < first)
			first = ns;
	}
	return first == CLOCK_NEVER ? 0 : first;
}

static void show_progress(const struct client *c, uint64_t now_ns)
{
	uint64_t done = 0, total = 0, measured_ns = client_measured_ns(c);

	if (c->options->progress_fd < 0)
		return;
	for (size_t i = 0; i < c->options->peers.count; i++) {
		const struct exchange *x = &c->exchanges[i];

		done += x->totals.messages.received + x->totals.messages.lost;
		total += schedule_total(&x->schedule);
	}
	if (!total) {
		total = c->options->duration_ns / NS_PER_MS;
		done = measured_ns && now_ns > measured_ns ?
			       (now_ns - measured_ns) / NS_PER_MS :
			       0;
	}
	/* Whoever watched may have gone; the run goes on. */
	dprintf((int)c->options->progress_fd, "%" PRIu64 " %" PRIu64 "\n", done,
		total);
}

int client_close(struct client *c)
{
	int error = records_close(&c->records, c->failure);

	show_progress(c, clock_ns());
	for (size_t i = 0; i < c->options->peers.count; i++)
		exchange_close(&c->exchanges[i]);
	return error;
}

int client_upkeep(struct client *c, uint64_t now_ns)
{
	int error = 0;

	if ((int64_t)(now_ns - c->upkept_ns) < (int64_t)upkeep_gap_ns)
		return 0;
	c->upkept_ns = now_ns;
	for (size_t i = 0; !error && i < c->options->peers.count; i++)
		error = exchange_check_session(&c->exchanges[i]);
	if (error)
		return error;
	show_progress(c, now_ns);
	return records_write(&c->records, SIZE_MAX, c->failure);
}
