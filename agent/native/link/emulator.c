// SPDX-License-Identifier: GPL-2.0-only
/*
 * emulator.c - the loop between two TUN devices.
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

/* Then the other direction gets its turn, and what is due leaves. */
#define BATCH_PACKETS 64

static int end_receive(struct emulator *emulator, int direction,
		       unsigned char *buffer)
{
	ssize_t bytes;
	int i;

	for (i = 0; i < BATCH_PACKETS; i++) {
		bytes = read(emulator->tun[direction], buffer,
			     emulator->mtu_bytes);
		if (bytes < 0) {
			if (errno == EAGAIN || errno == EINTR)
				return 0;
			return errno == EBADFD ? -ENODEV : -errno;
		}
		path_receive(&emulator->path[direction], buffer, (size_t)bytes,
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
	uint64_t ab_ns = path_due_ns(&emulator->path[AB]);
	uint64_t ba_ns = path_due_ns(&emulator->path[BA]);

	return ab_ns < ba_ns ? ab_ns : ba_ns;
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
	struct pollfd fds[DIRECTIONS + 1] = {
		[AB] = { .fd = emulator->tun[AB], .events = POLLIN },
		[BA] = { .fd = emulator->tun[BA], .events = POLLIN },
		[DIRECTIONS] = { .fd = emulator->signals, .events = POLLIN },
	};
	struct pace pace;
	int direction, err;

	pace_init(&pace);
	for (;;) {
		for (direction = AB; direction < DIRECTIONS; direction++)
			path_deliver(&emulator->path[direction],
				     emulator->tun[!direction]);
		err = emulator_wait(emulator, &pace, fds, DIRECTIONS + 1);
		for (direction = AB; !err && direction < DIRECTIONS;
		     direction++) {
			if (fds[direction].revents)
				err = end_receive(emulator, direction, buffer);
		}
		if (err)
			return err;
		if (fds[DIRECTIONS].revents && signals_handle(emulator))
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
