/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_EMULATOR_H
#define LINK_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#include "path.h"

/* Directions, and the end that each comes from. */
enum { AB, BA, DIRECTIONS };

#define LINKS_MAX 64

struct link {
	int tun[DIRECTIONS]; /* of the ends a, b; non-blocking; not ours */
	struct path path[DIRECTIONS];
};

struct emulator {
	struct link links[LINKS_MAX];
	size_t count; /* of links; at least one */
	int signals; /* a signalfd, non-blocking; not ours */
	size_t mtu_bytes;
	void (*report)(const struct emulator *emulator);
};

/*
 * Carry packets until SIGTERM or SIGINT comes in on `signals`; call `report`
 * on SIGUSR1. 0 or -errno; -ENODEV when a device went away.
 */
int emulator_run(struct emulator *emulator);

#endif
