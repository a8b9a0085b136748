/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_PACKET_H
#define LINK_PACKET_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Does an IPv4 or IPv6 packet carry bytes of a TCP or UDP stream or datagram?
 * A fragment that is not the first does; a bare ACK, SYN or ICMP does not.
 */
bool packet_carries_payload(const void *packet, size_t bytes);

#endif
