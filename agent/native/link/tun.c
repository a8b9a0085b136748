// SPDX-License-Identifier: GPL-2.0-only
/*
 * tun.c - a TUN device in another network namespace.
 */
#include "tun.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * The kernel drops silently, for us, what does not fit in its queue towards
 * this process; 500 packets, the default, are less than one large UDP burst.
 */
#define TUN_QUEUE_PACKETS 16384

static void close_fd(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
#define AUTO_CLOSE __attribute__((cleanup(close_fd)))

static int netns_open(const char *netns)
{
	char path[4096];
	int length, fd;

	length = snprintf(path, sizeof(path), "%s%s",
			  strchr(netns, '/') ? "" : "/run/netns/", netns);
	if (length >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void request_init(struct ifreq *request, const char *name)
{
	*request = (struct ifreq){ 0 };
	/* The caller has checked that it fits in IFNAMSIZ. */
	strncpy(request->ifr_name, name, IFNAMSIZ - 1);
}

static int tun_set(const char *name, uint32_t mtu_bytes)
{
	int sock AUTO_CLOSE = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request;

	request_init(&request, name);
	request.ifr_mtu = (int)mtu_bytes;
	if (sock < 0 || ioctl(sock, SIOCSIFMTU, &request))
		return -errno;
	request_init(&request, name);
	request.ifr_qlen = TUN_QUEUE_PACKETS;
	return ioctl(sock, SIOCSIFTXQLEN, &request) ? -errno : 0;
}

/* In the namespace of the device. */
static int tun_create(const char *name, uint32_t mtu_bytes,
		      enum tun_step *ret_step)
{
	struct ifreq request;
	int fd, err;

	*ret_step = TUN_CLONE;
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_step = TUN_CREATE;
	request_init(&request, name);
	request.ifr_flags = IFF_TUN | IFF_NO_PI | (short)IFF_TUN_EXCL;
	err = ioctl(fd, TUNSETIFF, &request) ? -errno : 0;
	if (!err) {
		*ret_step = TUN_SET;
		err = tun_set(name, mtu_bytes);
	}
	if (err)
		close(fd);
	return err ? err : fd;
}

int tun_open(const char *netns, const char *name, uint32_t mtu_bytes,
	     enum tun_step *ret_step)
{
	int own AUTO_CLOSE = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int target AUTO_CLOSE = -1;
	int fd;

	*ret_step = TUN_NETNS;
	if (own < 0)
		return -errno;
	target = netns_open(netns);
	if (target < 0)
		return target;
	if (setns(target, CLONE_NEWNET))
		return -errno;
	fd = tun_create(name, mtu_bytes, ret_step);
	if (setns(own, CLONE_NEWNET)) {
		int err = -errno;

		close_fd(&fd);
		return err;
	}
	return fd;
}
