/*
 * bulk_plan.h - what one channel of a bulk run does, as both ends know it.
 *
 * A unit is what one send carries: a datagram, or over TCP a DATA frame with
 * its header. A datagram begins with 24 bytes, big endian:
 *
 *   u32 "LPbd", u32 channel, u64 number (from 0), u64 sent_ns
 *
 * sent_ns is the sender's CLOCK_MONOTONIC just before the call that sent the
 * datagram, together with others where one call sends many.
 */
#ifndef LATPROF_LOAD_BULK_PLAN_H
#define LATPROF_LOAD_BULK_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "flags.h"

#define BULK_MAGIC UINT32_C(0x4c506264) /* "LPbd" */

enum { BULK_CHANNEL_AT = 4, BULK_NUMBER_AT = 8, BULK_SENT_AT = 16 };

/* In one call at most; no kernel lets UDP_SEGMENT carry fewer. */
enum { BULK_BATCH_UNITS = 64 };

/*
 * channel, channels      this one's number from 0, and how many there are
 * direction              enum bulk_direction; up: from the client
 * unit_bytes             of a datagram, or of a DATA frame
 * units                  each sender sends; 0: until duration_ns is over
 * duration_ns            0: until units are sent
 * rate_bps               of all channels in a direction; 0: as fast as it goes
 * slot_ns                throughput is counted in slots of this length
 * receive_buffer_bytes   SO_RCVBUF; 0: the system's
 * send_way, receive_way  enums; UDP only
 * spin                   wait busily for a unit to be due
 */
#define BULK_PLAN_FIELDS(FIELD)     \
	FIELD(channel)              \
	FIELD(channels)             \
	FIELD(direction)            \
	FIELD(unit_bytes)           \
	FIELD(units)                \
	FIELD(duration_ns)          \
	FIELD(rate_bps)             \
	FIELD(slot_ns)              \
	FIELD(receive_buffer_bytes) \
	FIELD(send_way)             \
	FIELD(receive_way)          \
	FIELD(spin)

#define BULK_PLAN_MEMBER(name) uint64_t name;
struct bulk_plan {
	BULK_PLAN_FIELDS(BULK_PLAN_MEMBER)
};

enum {
	BULK_PLAN_WORDS = sizeof(struct bulk_plan) / sizeof(uint64_t),
};

/* Is this a plan that a client of this version makes? */
bool bulk_plan_is_sound(const struct bulk_plan *plan, enum protocol transport);
/* Who sends in it? */
bool bulk_client_sends(const struct bulk_plan *plan);
bool bulk_server_sends(const struct bulk_plan *plan);

#endif
