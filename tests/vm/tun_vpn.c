/*
 * tun_vpn.c - one end of a VPN in user space: what a TUN device is given goes
 * to the other end in UDP, without a cipher, and back.
 *
 *   tun_vpn NAMESPACE DEVICE LOCAL REMOTE PORT
 *
 * Writes a line when the device is there, and runs until it is killed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void enter(const char *name)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "/run/netns/%s", name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		err(1, "%s", path);
	close(fd);
}

static int make_device(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR);
	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &request))
		err(1, "%s", name);
	return fd;
}

static struct sockaddr_in place(const char *address, const char *port)
{
	struct sockaddr_in there = { .sin_family = AF_INET };
	if (inet_pton(AF_INET, address, &there.sin_addr) != 1)
		errx(2, "no address: %s", address);
	there.sin_port = htons((in_port_t)strtoul(port, NULL, 10));
	return there;
}

static void forward(int from, int to)
{
	char packet[1 << 16];
	ssize_t size = read(from, packet, sizeof(packet));
	if (size > 0 && write(to, packet, (size_t)size) != size)
		warn("a packet of %zd bytes is lost", size);
}

int main(int argc, char **argv)
{
	if (argc != 6)
		errx(2, "see the head of tun_vpn.c");
	enter(argv[1]);
	int device = make_device(argv[2]),
	    peer = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in local = place(argv[3], argv[5]);
	struct sockaddr_in remote = place(argv[4], argv[5]);
	if (bind(peer, (void *)&local, sizeof(local)) ||
	    connect(peer, (void *)&remote, sizeof(remote)))
		err(1, "%s to %s", argv[3], argv[4]);
	puts("ready");
	fflush(stdout);
	struct pollfd both[] = { { device, POLLIN, 0 }, { peer, POLLIN, 0 } };
	while (poll(both, 2, -1) > 0) {
		if (both[0].revents)
			forward(device, peer);
		if (both[1].revents)
			forward(peer, device);
	}
	err(1, "poll");
}
