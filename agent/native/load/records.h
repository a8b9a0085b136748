/*
 * records.h - one record per message, and the file they go to.
 *
 * The file: one line of text with the names of the fields, separated by
 * spaces; then the records, each field a little-endian u64 in that order.
 * Records are kept in memory and written between messages, so that a run which
 * is killed leaves a readable file.
 */
#ifndef LATPROF_LOAD_RECORDS_H
#define LATPROF_LOAD_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#include "failure.h"

/*
 * sequence          number of the message, from 1
 * size_bytes        of the request, reply_bytes of the reply (if lost: of the
 *                   reply that was expected)
 * intended_ns       when it was due
 * created_ns        as in its header
 * sent_ns           just before the send call
 * received_ns       just after the call that returned the reply's last byte;
 *                   0 if lost
 * reply_created_ns  the responder's, from the reply's header; 0 if lost and in
 *                   the clear wire, which does not carry it
 * request_end       TCP: offset of the last byte in its direction, from 1;
 *                   UDP: number of the datagram, from 1, 0 if it never left
 * reply_end         the same of the reply; 0 for UDP: the client cannot know
 * flags             enum record_flag
 * peer              which responder, from 0 in the order of --peer; sequence,
 *                   request_end and reply_end count for each of them
 * send_returned_ns  just after the send call, where one call took the whole
 *                   message; else, and in a closed loop without trains, 0
 * train             number of the train it is part of, 0: it went alone
 * train_messages    how many messages its train has; 1 alone
 * train_gap_ns      from one send of the train to the next; 0: back to back
 */
#define RECORD_FIELDS(FIELD)    \
	FIELD(sequence)         \
	FIELD(size_bytes)       \
	FIELD(reply_bytes)      \
	FIELD(intended_ns)      \
	FIELD(created_ns)       \
	FIELD(sent_ns)          \
	FIELD(received_ns)      \
	FIELD(reply_created_ns) \
	FIELD(request_end)      \
	FIELD(reply_end)        \
	FIELD(flags)            \
	FIELD(peer)             \
	FIELD(send_returned_ns) \
	FIELD(train)            \
	FIELD(train_messages)   \
	FIELD(train_gap_ns)

#define RECORD_MEMBER(name) uint64_t name;
struct record {
	RECORD_FIELDS(RECORD_MEMBER)
};

enum record_flag {
	RECORD_WARMUP = 1 << 0,
	RECORD_LOST = 1 << 1,
	RECORD_CORRUPT = 1 << 2,
	RECORD_HEARTBEAT = 1 << 3,
};

struct records {
	int fd; /* -1: nobody wants them */
	const char *path;
	struct record *kept;
	size_t first; /* of those kept and not yet written */
	size_t end;
};

/* Path NULL: records are counted by nobody and go nowhere. */
int records_open(struct records *r, const char *path, struct failure *failure);
/* Write what is kept, then close. */
int records_close(struct records *r, struct failure *failure);
/* Keep one; writes all of them when the memory for them is full. */
int records_add(struct records *r, const struct record *record,
		struct failure *failure);
/* Write at most `limit` of the kept records, the oldest first. */
int records_write(struct records *r, size_t limit, struct failure *failure);
size_t records_kept(const struct records *r);

#endif
