/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_EMULATOR_H
#define LINK_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#include "path.h"

/* Directions, and the end that each comes from. */
enum { AB, BA, DIRECTIONS };

struct emulator {
	int tun[DIRECTIONS]; /* of the ends a, b; non-blocking; not ours */
	int signals; /* a signalfd, non-blocking; not ours */
	struct path path[DIRECTIONS];
	size_t mtu_bytes;
	void (*report)(const struct emulator *emulator);
};

/*
 * Carry packets until SIGTERM or SIGINT comes in on `signals`; call `report`
 * on SIGUSR1. 0 or -errno; -ENODEV when a device went away.
 */
int emulator_run(struct emulator *emulator);

#endif
