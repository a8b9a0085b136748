// SPDX-License-Identifier: GPL-2.0-only
/*
 * path.c - one direction of the link.
 *
 *   listed?  ->  lost?  ->  room in the queue?  ->  serialised  ->  delayed
 *
 *   departure = max(now, departure of the one before) + bytes * 8 / rate
 *   due       = departure + delay (+ reorder delay where listed)
 *
 * A packet that is dropped takes no time on the link. A packet waits in the
 * queue, and counts against its bound, until its last bit has departed.
 */
#include "path.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

/* An infinite rate has no queue to bound what a long delay holds. */
#define FLIGHT_BYTES_MAX (512ull << 20)

struct flight {
	struct flight *next_departing;
	struct flight *next_due;
	uint64_t sequence;
	uint64_t departure_ns;
	uint64_t due_ns;
	size_t bytes;
	unsigned char packet[];
};

void path_init(struct path *path, const struct path_options *options,
	       uint64_t seed)
{
	*path = (struct path){ .options = options };
	path->departing.last = &path->departing.first;
	path->due.last = &path->due.first;
	path->due_late.last = &path->due_late.first;
	loss_model_init(&path->loss, &options->loss, seed);
}

static void flight_list_free(struct flight_list *list)
{
	struct flight *flight;

	while ((flight = list->first)) {
		list->first = flight->next_due;
		free(flight);
	}
}

void path_deinit(struct path *path)
{
	flight_list_free(&path->due);
	flight_list_free(&path->due_late);
}

/* Packets whose last bit has left make room in the queue. */
static void path_depart(struct path *path, uint64_t now_ns)
{
	struct flight *flight;

	while ((flight = path->departing.first) &&
	       flight->departure_ns <= now_ns) {
		path->queued_bytes -= flight->bytes;
		path->departing.first = flight->next_departing;
	}
	if (!path->departing.first)
		path->departing.last = &path->departing.first;
}

static uint64_t path_departure_ns(struct path *path, size_t bytes,
				  uint64_t now_ns)
{
	uint64_t rate_bps = path->options->rate_bps, numerator;

	if (!rate_bps)
		return now_ns;
	if (path->busy_until_ns < now_ns) {
		path->busy_until_ns = now_ns;
		path->bit_remainder = 0;
	}
	/* What is below 1 ns stays for the next, else a long train drifts. */
	numerator = bytes * 8 * NS_PER_SECOND + path->bit_remainder;
	path->busy_until_ns += numerator / rate_bps;
	path->bit_remainder = numerator % rate_bps;
	return path->busy_until_ns;
}

static void path_hold(struct path *path, struct flight *flight, bool late,
		      uint64_t now_ns)
{
	struct path_counters *counters = &path->counters;
	struct flight_list *due = late ? &path->due_late : &path->due;

	flight->sequence = counters->packets_in;
	flight->departure_ns = path_departure_ns(path, flight->bytes, now_ns);
	flight->due_ns = flight->departure_ns + path->options->delay_ns;
	if (late)
		flight->due_ns += path->options->reorder_delay_ns;

	*path->departing.last = flight;
	path->departing.last = &flight->next_departing;
	*due->last = flight;
	due->last = &flight->next_due;

	counters->in_flight++;
	path->flight_bytes += flight->bytes;
	path->queued_bytes += flight->bytes;
	if (path->queued_bytes > counters->max_queue_bytes)
		counters->max_queue_bytes = path->queued_bytes;
}

static struct flight *flight_new(struct path *path, const void *packet,
				 size_t bytes)
{
	struct flight *flight;

	/* With an infinite rate nothing waits. */
	if (path->options->rate_bps &&
	    path->queued_bytes + bytes > path->options->queue_bytes)
		return NULL;
	if (path->flight_bytes + bytes > FLIGHT_BYTES_MAX)
		return NULL;
	flight = malloc(sizeof(*flight) + bytes);
	if (!flight)
		return NULL;
	*flight = (struct flight){ .bytes = bytes };
	memcpy(flight->packet, packet, bytes);
	return flight;
}

static bool transport_carries_payload(int protocol, const void *header,
				      size_t bytes)
{
	const struct tcphdr *tcp = header;

	if (protocol == IPPROTO_UDP)
		return bytes > sizeof(struct udphdr);
	if (protocol != IPPROTO_TCP || bytes < sizeof(*tcp))
		return false;
	return bytes > tcp->doff * 4u;
}

static bool ipv4_carries_payload(const struct iphdr *ip, size_t bytes)
{
	size_t header;

	if (bytes < sizeof(*ip))
		return false;
	header = ip->ihl * 4u;
	if (header > bytes)
		return false;
	if (ntohs(ip->frag_off) & IP_OFFMASK)
		return true;
	return transport_carries_payload(
		ip->protocol, (const char *)ip + header, bytes - header);
}

static bool ipv6_carries_payload(const struct ip6_hdr *ip, size_t bytes)
{
	const unsigned char *at = (const void *)(ip + 1);
	size_t left, header;
	int protocol;

	if (bytes < sizeof(*ip))
		return false;
	left = bytes - sizeof(*ip);
	for (protocol = ip->ip6_nxt; left >= 8;
	     protocol = at[0], at += header, left -= header) {
		if (protocol == IPPROTO_FRAGMENT) {
			if ((at[2] << 8 | at[3]) & 0xfff8)
				return true;
			header = sizeof(struct ip6_frag);
		} else if (protocol == IPPROTO_HOPOPTS ||
			   protocol == IPPROTO_DSTOPTS) {
			header = (at[1] + 1) * 8u;
		} else {
			break;
		}
		if (header > left)
			return false;
	}
	return transport_carries_payload(protocol, at, left);
}

/*
 * Does an IPv4 or IPv6 packet carry bytes of a TCP or UDP stream or datagram?
 * A fragment that is not the first does; a bare ACK, SYN or ICMP does not.
 * Does not look through extension headers other than hop-by-hop, destination
 * options and fragment: behind any other, a packet counts as one without.
 */
static bool packet_carries_payload(const void *packet, size_t bytes)
{
	const struct iphdr *ip = packet;

	if (bytes && ip->version == 4)
		return ipv4_carries_payload(ip, bytes);
	if (bytes && ip->version == 6)
		return ipv6_carries_payload(packet, bytes);
	return false;
}

/* A list that a person wrote is short: no need of an order in it. */
static bool list_has(const struct arg_list *list, uint64_t number)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->values[i] == number)
			return true;
	return false;
}

void path_receive(struct path *path, const void *packet, size_t bytes,
		  uint64_t now_ns)
{
	const struct path_options *options = path->options;
	bool listed = false, late = false;
	struct flight *flight;

	path->counters.packets_in++;
	path->counters.bytes_in += bytes;
	if (packet_carries_payload(packet, bytes)) {
		path->payloads_in++;
		listed = list_has(&options->drops, path->payloads_in);
		late = list_has(&options->reorders, path->payloads_in);
	}
	if (listed) {
		path->counters.dropped_listed++;
		return;
	}
	if (loss_model_drops(&path->loss)) {
		path->counters.dropped_loss++;
		return;
	}
	path_depart(path, now_ns);
	flight = flight_new(path, packet, bytes);
	if (flight)
		path_hold(path, flight, late, now_ns);
	else
		path->counters.dropped_queue++;
}

static struct flight_list *path_next(struct path *path)
{
	const struct flight *a = path->due.first, *b = path->due_late.first;

	return b && (!a || b->due_ns < a->due_ns) ? &path->due_late :
						    &path->due;
}

uint64_t path_due_ns(struct path *path)
{
	const struct flight *flight = path_next(path)->first;

	return flight ? flight->due_ns : CLOCK_NEVER;
}

static void path_write(struct path *path, const struct flight *flight, int fd,
		       uint64_t lateness_ns)
{
	struct path_counters *counters = &path->counters;

	counters->in_flight--;
	path->flight_bytes -= flight->bytes;
	counters->lateness_sum_ns += lateness_ns;
	if (lateness_ns > counters->lateness_max_ns)
		counters->lateness_max_ns = lateness_ns;
	if (write(fd, flight->packet, flight->bytes) < 0) {
		counters->dropped_write++;
		return;
	}
	counters->packets_out++;
	counters->bytes_out += flight->bytes;
	if (flight->sequence < path->next_in_order)
		counters->reordered++;
	else
		path->next_in_order = flight->sequence + 1;
}

void path_deliver(struct path *path, int fd)
{
	struct flight_list *list;
	struct flight *flight;
	uint64_t now_ns;

	for (;;) {
		list = path_next(path);
		flight = list->first;
		if (!flight)
			return;
		now_ns = clock_ns();
		if (flight->due_ns > now_ns)
			return;
		/* It may be the front of the departing ones as well. */
		path_depart(path, now_ns);
		list->first = flight->next_due;
		if (!list->first)
			list->last = &list->first;
		path_write(path, flight, fd, now_ns - flight->due_ns);
		free(flight);
	}
}
