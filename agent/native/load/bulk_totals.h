/*
 * bulk_totals.h - what the two ends of one direction of a bulk channel counted,
 * and how that crosses the control connection: as big-endian u64s.
 *
 *   sender     its totals, u64 slot_ns, u64 count, slots
 *   receiver   the same, then 64 counts of loss runs by length, u64 count,
 *              loss runs of four u64
 */
#ifndef LATPROF_LOAD_BULK_TOTALS_H
#define LATPROF_LOAD_BULK_TOTALS_H

#include "sequence.h"
#include "slots.h"

/*
 * sent              units that the kernel took
 * bytes             in them: payload of datagrams, or of the stream
 * calls             send calls that sent something
 * would_block       sends that found the send buffer full, and waited
 * no_buffers        sends that the kernel had no memory for, and were repeated
 * start_ns          of its slots: when the peer asked it to begin
 * first_ns, last_ns around the first and the last send call
 * stopped           1: before the plan was fulfilled
 * error             errno that ended it; 0: none
 * way               UDP: the enum send_way that was used
 *
 * TCP only, of TCP_INFO at its end; 0 where an older kernel has none:
 * retransmits (segments), congestion_window (segments), srtt_ns, rttvar_ns,
 * min_rtt_ns, delivery_rate_bps, busy_ns, receive_window_limited_ns,
 * send_buffer_limited_ns.
 */
#define BULK_SENT_FIELDS(FIELD) \
	FIELD(sent)             \
	FIELD(bytes)            \
	FIELD(calls)            \
	FIELD(would_block)      \
	FIELD(no_buffers)       \
	FIELD(start_ns)         \
	FIELD(first_ns)         \
	FIELD(last_ns)

#define BULK_SENT_TCP_FIELDS(FIELD)      \
	FIELD(retransmits)               \
	FIELD(congestion_window)         \
	FIELD(srtt_ns)                   \
	FIELD(rttvar_ns)                 \
	FIELD(min_rtt_ns)                \
	FIELD(delivery_rate_bps)         \
	FIELD(busy_ns)                   \
	FIELD(receive_window_limited_ns) \
	FIELD(send_buffer_limited_ns)

/*
 * received, bytes   units, each once, and what was in them; over TCP units are
 *                   DATA frames
 * calls             receive calls that returned something
 * start_ns, first_ns, last_ns  as the sender's, on the receiver's clock
 *
 * UDP only, else 0:
 * receive_buffer_bytes  SO_RCVBUF as the kernel granted it
 * lost, lost_in_socket, loss_runs, duplicates, reordered, extent_max,
 * extent_sum, stale     as sequence.h says
 * socket_drops      packets that the kernel dropped at the full receive buffer;
 *                   one packet may be many datagrams where `way` is GRO
 * strays            datagrams that are none of this run's
 * way               the enum receive_way that was used
 */
#define BULK_RECEIVED_FIELDS(FIELD) \
	FIELD(received)             \
	FIELD(bytes)                \
	FIELD(calls)                \
	FIELD(start_ns)             \
	FIELD(first_ns)             \
	FIELD(last_ns)

#define BULK_RECEIVED_UDP_FIELDS(FIELD) \
	FIELD(receive_buffer_bytes)     \
	FIELD(lost)                     \
	FIELD(lost_in_socket)           \
	FIELD(loss_runs)                \
	FIELD(duplicates)               \
	FIELD(reordered)                \
	FIELD(extent_max)               \
	FIELD(extent_sum)               \
	FIELD(stale)                    \
	FIELD(socket_drops)             \
	FIELD(strays)

#define BULK_TOTALS_MEMBER(name) uint64_t name;

struct bulk_sent {
	struct {
		BULK_SENT_FIELDS(BULK_TOTALS_MEMBER)
		BULK_SENT_TCP_FIELDS(BULK_TOTALS_MEMBER)
		uint64_t stopped, error, way;
	} totals;
	struct slots slots;
};

struct bulk_received {
	struct {
		BULK_RECEIVED_FIELDS(BULK_TOTALS_MEMBER)
		BULK_RECEIVED_UDP_FIELDS(BULK_TOTALS_MEMBER)
		uint64_t way;
	} totals;
	struct slots slots;
	uint64_t lengths[SEQUENCE_LENGTHS];
	struct loss_run *runs;
	size_t runs_kept;
};

/* Both are begun before and ended after; ending an all-zero one is allowed.
 * -ENOMEM. */
int bulk_sent_open(struct bulk_sent *s, uint64_t start_ns, uint64_t slot_ns);
void bulk_sent_close(struct bulk_sent *s);
int bulk_received_open(struct bulk_received *r, uint64_t start_ns,
		       uint64_t slot_ns);
void bulk_received_close(struct bulk_received *r);

/* Room that any of them needs as the body of a frame. */
enum {
	BULK_TOTALS_BYTES_MAX = (128 + SLOTS_MAX + 4 * SEQUENCE_RUNS_MAX) * 8,
};

/* Write the body of a frame; how many bytes it is. */
size_t bulk_sent_write(const struct bulk_sent *s, uint8_t *to);
size_t bulk_received_write(const struct bulk_received *r, uint8_t *to);
/* Read one into an opened *ret. -EPROTO: it is none. */
int bulk_sent_read(struct bulk_sent *ret, const uint8_t *from, size_t size);
int bulk_received_read(struct bulk_received *ret, const uint8_t *from,
		       size_t size);

#endif
