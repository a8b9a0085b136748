// SPDX-License-Identifier: GPL-2.0-only
/*
 * emulator.c - the loop between the two TUN devices of each link.
 *
 *   deliver what is due  ->  wait  ->  take what came in, stamped as it comes
 *
 * The stamp of a packet is taken when it is read, not when its sender handed
 * it over: an idle link adds the time in which this process wakes up.
 */
#include "emulator.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "clock.h"
#include "pace.h"

/* Then the next direction gets its turn, and what is due leaves. */
#define BATCH_PACKETS 64

static int end_receive(struct link *link, int direction, unsigned char *buffer,
		       size_t mtu_bytes)
{
	ssize_t bytes;
	int i;

	for (i = 0; i < BATCH_PACKETS; i++) {
		bytes = read(link->tun[direction], buffer, mtu_bytes);
		if (bytes < 0) {
			if (errno == EAGAIN || errno == EINTR)
				return 0;
			return errno == EBADFD ? -ENODEV : -errno;
		}
		path_receive(&link->path[direction], buffer, (size_t)bytes,
			     clock_ns());
	}
	return 0;
}

/* Was the end asked for? */
static bool signals_handle(struct emulator *emulator)
{
	struct signalfd_siginfo info;

	while (read(emulator->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGUSR1)
			return true;
		emulator->report(emulator);
	}
	return false;
}

static uint64_t emulator_due_ns(struct emulator *emulator)
{
	uint64_t first_ns = CLOCK_NEVER, due_ns;

	for (size_t i = 0; i < emulator->count; i++) {
		for (int direction = AB; direction < DIRECTIONS; direction++) {
			due_ns = path_due_ns(
				&emulator->links[i].path[direction]);
			if (due_ns < first_ns)
				first_ns = due_ns;
		}
	}
	return first_ns;
}

static void emulator_deliver(struct emulator *emulator)
{
	for (size_t i = 0; i < emulator->count; i++) {
		struct link *link = &emulator->links[i];

		for (int direction = AB; direction < DIRECTIONS; direction++)
			path_deliver(&link->path[direction],
				     link->tun[!direction]);
	}
}

/* `fds`: the two ends of each link, as emulator_loop() has put them. */
static int emulator_receive(struct emulator *emulator, const struct pollfd *fds,
			    unsigned char *buffer)
{
	int err = 0;

	for (size_t i = 0; !err && i < emulator->count * DIRECTIONS; i++) {
		if (fds[i].revents)
			err = end_receive(&emulator->links[i / DIRECTIONS],
					  (int)(i % DIRECTIONS), buffer,
					  emulator->mtu_bytes);
	}
	return err;
}

static int emulator_wait(struct emulator *emulator, struct pace *pace,
			 struct pollfd *fds, nfds_t count)
{
	int64_t sleep_ns =
		pace_sleep_ns(pace, clock_ns(), emulator_due_ns(emulator));
	struct timespec timeout = { .tv_sec = sleep_ns / (int64_t)NS_PER_SECOND,
				    .tv_nsec =
					    sleep_ns % (int64_t)NS_PER_SECOND };

	if (ppoll(fds, count, sleep_ns < 0 ? NULL : &timeout, NULL) < 0)
		return errno == EINTR ? 0 : -errno;
	return 0;
}

static int emulator_loop(struct emulator *emulator, unsigned char *buffer)
{
	struct pollfd fds[LINKS_MAX * DIRECTIONS + 1];
	size_t ends = emulator->count * DIRECTIONS, i;
	struct pace pace;
	int err;

	for (i = 0; i < ends; i++)
		fds[i] = (struct pollfd){
			.fd = emulator->links[i / DIRECTIONS]
				      .tun[i % DIRECTIONS],
			.events = POLLIN,
		};
	fds[ends] =
		(struct pollfd){ .fd = emulator->signals, .events = POLLIN };
	pace_init(&pace);
	for (;;) {
		emulator_deliver(emulator);
		err = emulator_wait(emulator, &pace, fds, ends + 1);
		if (!err)
			err = emulator_receive(emulator, fds, buffer);
		if (err)
			return err;
		if (fds[ends].revents && signals_handle(emulator))
			return 0;
	}
}

int emulator_run(struct emulator *emulator)
{
	unsigned char *buffer = malloc(emulator->mtu_bytes);
	int err;

	if (!buffer)
		return -ENOMEM;
	err = emulator_loop(emulator, buffer);
	free(buffer);
	return err;
}
