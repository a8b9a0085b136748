/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_TUN_H
#define LINK_TUN_H

#include <stdint.h>

/* What tun_open() was doing when it failed. */
enum tun_step {
	TUN_NETNS, /* opening or entering the namespace */
	TUN_CLONE, /* opening /dev/net/tun */
	TUN_CREATE, /* making the device, which must not exist yet */
	TUN_SET, /* its MTU and queue length */
};

/*
 * Make the TUN device `name` in a network namespace (a path, or a name in
 * /run/netns) and return its non-blocking file descriptor or -errno, with the
 * step that failed in *ret_step. The caller stays in its own namespace. The
 * device is down, has no address and dies with the descriptor.
 */
int tun_open(const char *netns, const char *name, uint32_t mtu_bytes,
	     enum tun_step *ret_step);

#endif
