/*
 * head.bpf.h - what the first bytes of a message say of it, as far as that
 * decides which message answers which: TLS is known by the header of a record,
 * HTTP/2 by its preface, an interim answer of HTTP by its line, DNS by its
 * header, whose identification pairs answers with queries, QUIC by the version
 * that the packets of its handshake name, and at its port. No other protocol is
 * read.
 *
 * Does not see the first bytes of what is sent from files (sendfile, splice)
 * and from the kernel's own TLS.
 */
#ifndef LATPROF_HEAD_H
#define LATPROF_HEAD_H

#include "kernel.h"
#include "records.h"
#include "ring.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

LABELS(head_kind);
LABELS(ending);

#define HEAD_BYTES 16

struct head {
	__u16 kind; /* enum head_kind */
	__u16 id; /* DNS: its identification */
};

#define TLS_LARGEST_RECORD (16384 + 2048)
#define DNS_HEADER_BYTES 12
#define CONTINUE_BYTES 25 /* "HTTP/1.1 100 Continue", and an empty line */

#define CHANGE_BYTES 6 /* a change of cipher, which may stand alone */
#define TLS_HEADER_BYTES 5
#define CLIENT_HELLO 1
#define SERVER_HELLO 2

/* Whether a record of a handshake begins with a hello; what is encrypted looks
 * like one in 1 of 128. */
static __always_inline bool is_hello(const __u8 *b)
{
	return b[0] == 22 && !b[6] &&
	       (b[5] == CLIENT_HELLO || b[5] == SERVER_HELLO);
}

/* The header of a record: kind, version 3.x, length. */
static __always_inline __u16 tls_head(const __u8 *b, __u64 size)
{
	__u32 length = (__u32)b[3] << 8 | b[4];

	if (b[1] != 3 || b[2] > 4 || !length || length > TLS_LARGEST_RECORD)
		return HEAD_NONE;
	switch (b[0]) {
	case 20: /* a flight of the handshake begins so, too */
		return is_hello(b + CHANGE_BYTES) ? HEAD_TLS_HELLO :
						    HEAD_TLS_CHANGE;
	case 22:
		if (!is_hello(b))
			return HEAD_TLS_HANDSHAKE;
		return b[5] == CLIENT_HELLO && size > TLS_HEADER_BYTES +
							       length +
							       CHANGE_BYTES ?
			       HEAD_TLS_EARLY :
			       HEAD_TLS_HELLO;
	case 21:
		return HEAD_TLS_ALERT;
	case 23:
		return HEAD_TLS_DATA;
	default:
		return HEAD_NONE;
	}
}

/* Whether it is more than a hello, and so a request where nobody has answered
 * that. */
static __always_inline bool is_early(const struct head *head, __u64 size)
{
	return head->kind == HEAD_TLS_DATA ||
	       (head->kind == HEAD_TLS_CHANGE && size > CHANGE_BYTES);
}

/* A standard query, and one question in it; who answers repeats it. */
static __always_inline __u16 dns_head(const __u8 *b)
{
	bool one_question = !b[4] && b[5] == 1;

	if (!one_question || b[2] & 0x78)
		return HEAD_NONE;
	if (b[2] & 0x80)
		return b[6] ? HEAD_NONE : HEAD_DNS_ANSWER;
	if (b[3] & 0xcf || b[6] || b[7] || b[8] || b[9] || b[10])
		return HEAD_NONE;
	return HEAD_DNS_QUERY;
}

static __always_inline void dns_head_at(const __u8 *b, __u64 size,
					struct head *ret)
{
	if (size < DNS_HEADER_BYTES + 5)
		return;
	ret->kind = dns_head(b);
	if (ret->kind)
		ret->id = (__u16)b[0] << 8 | b[1];
}

#define QUIC_PORT 443

/* Versions 1 and 2, and drafts. Later packets have a bit that is set. */
static __always_inline bool is_quic(const __u8 *b, __u64 size, bool at_port)
{
	__u32 version = (__u32)b[1] << 24 | b[2] << 16 | b[3] << 8 | b[4];

	if (at_port && size > 20 && b[0] & 0x40)
		return true;
	return size > 20 && (b[0] & 0xc0) == 0xc0 && b[5] <= 20 &&
	       (version == 1 || version == 0x6b3343cf ||
		version >> 8 == 0xff0000);
}

static __always_inline void datagram_head(const __u8 *b, __u64 size,
					  bool at_port, struct head *ret)
{
	dns_head_at(b, size, ret);
	if (!ret->kind && is_quic(b, size, at_port))
		ret->kind = HEAD_QUIC;
}

/* What a server says first: frame of 6 n bytes, kind 4, of no stream. */
static __always_inline bool is_settings(const __u8 *b, __u64 size)
{
	return size >= 9 && !b[0] && !b[1] && b[2] % 6 == 0 && b[3] == 4 &&
	       !b[4] && !b[5] && !b[6] && !b[7] && !b[8];
}

/* Of a message of TCP; HTTP/2 is known by what a connection begins with. */
static __always_inline void stream_head(const __u8 b[HEAD_BYTES], __u64 size,
					bool first, struct head *ret)
{
	const __u64 *words = (const __u64 *)(const void *)b;

	ret->kind = tls_head(b, size);
	if (ret->kind || size < 9)
		return;
	if (first && is_settings(b, size))
		ret->kind = HEAD_HTTP2;
	if (size < HEAD_BYTES)
		return;
	if (first &&
	    words[0] == bpf_cpu_to_be64(0x505249202a204854) /* PRI * HT */ &&
	    words[1] == bpf_cpu_to_be64(0x54502f322e300d0a)) /* TP/2.0 */
		ret->kind = HEAD_HTTP2;
	else if (size == CONTINUE_BYTES &&
		 words[0] == bpf_cpu_to_be64(0x485454502f312e31) &&
		 words[1] == bpf_cpu_to_be64(0x2031303020436f6e)) /* 100 Con */
		ret->kind = HEAD_INTERIM;
	else if (((__u32)b[0] << 8 | b[1]) == size - 2)
		dns_head_at(b + 2, size - 2, ret);
}

static __always_inline const struct iovec *
buffers_of(const struct iov_iter *from)
{
	const struct iov_iter___before_6_4 *old = (const void *)from;

	return bpf_core_field_exists(from->__iov) ? from->__iov : old->iov;
}

/* A buffer of those that a send call was given; false: it was given no such.
 * They are read as memory: what is in a union some verifiers (6.12) take for a
 * number. */
static __always_inline bool buffer_at(const struct iov_iter *from, __u32 place,
				      struct iovec *ret)
{
	return from->nr_segs > place &&
	       !bpf_probe_read_kernel(ret, sizeof(*ret),
				      buffers_of(from) + place);
}

/* What a send call was given: one buffer, several, or none of the caller's. */
enum given {
	GIVEN_NONE,
	GIVEN_ONE,
	GIVEN_SEVERAL,
};

static __always_inline enum given what_is_given(const struct iov_iter *from)
{
	const struct iov_iter___before_5_14 *old = (const void *)from;
	__u32 kind;

	if (bpf_core_field_exists(from->iter_type))
		kind = from->iter_type;
	else if (bpf_core_field_exists(old->type))
		kind = old->type & ~ITER_DIRECTION;
	else
		return GIVEN_NONE;
	/* of Linux 6.0 */
	if (bpf_core_enum_value_exists(enum iter_type, ITER_UBUF) &&
	    kind == bpf_core_enum_value(enum iter_type, ITER_UBUF))
		return GIVEN_ONE;
	return kind == bpf_core_enum_value(enum iter_type, ITER_IOVEC) ?
		       GIVEN_SEVERAL :
		       GIVEN_NONE;
}

/* The one. Kernels before 6.4 take it for a pointer of their own, with which
 * one must not count. */
static __always_inline __u64 buffer_of(const struct iov_iter *from)
{
	__u64 found = 0;

	if (bpf_core_field_exists(from->__iov))
		return (__u64)from->ubuf;
	bpf_core_read(&found, sizeof(found), &from->ubuf);
	return found;
}

/* Where a send call's bytes are, if they are in one buffer of the caller's. */
static __always_inline const __u8 *buffer_given(const struct msghdr *msg,
						__u64 size)
{
	const struct iov_iter *from = &msg->msg_iter;
	enum given given = what_is_given(from);
	__u64 offset = from->iov_offset;
	struct iovec buffer;

	if (given == GIVEN_ONE)
		return (void *)(buffer_of(from) + offset);
	if (given == GIVEN_NONE || !buffer_at(from, 0, &buffer) ||
	    buffer.iov_len - offset < size)
		return NULL;
	return buffer.iov_base + offset;
}

/* The first bytes of a send call, from one buffer of the caller's or from two,
 * as a length may stand in one of its own; false: they are in none. */
static __always_inline bool first_given(const struct msghdr *msg, __u64 size,
					__u64 ret[2 * HEAD_BYTES / 8])
{
	__u32 wanted = size >= HEAD_BYTES ? HEAD_BYTES : size < 9 ? 6 : 9;
	const struct iov_iter *from = &msg->msg_iter;
	enum given given = what_is_given(from);
	__u64 first, offset = from->iov_offset;
	struct iovec buffer;

	if (given == GIVEN_ONE)
		return !bpf_probe_read_user(ret, wanted,
					    (void *)(buffer_of(from) + offset));
	if (given == GIVEN_NONE || !buffer_at(from, 0, &buffer))
		return false;
	first = buffer.iov_len - offset;
	if (first >= wanted)
		return !bpf_probe_read_user(ret, wanted,
					    buffer.iov_base + offset);
	first &= HEAD_BYTES - 1;
	if (!first ||
	    bpf_probe_read_user(ret, first, buffer.iov_base + offset) ||
	    !buffer_at(from, 1, &buffer))
		return false;
	barrier_var(first);
	first &= HEAD_BYTES - 1;
	return !bpf_probe_read_user((__u8 *)ret + first, wanted - first,
				    buffer.iov_base);
}

/* Of a send call of so many bytes: what is not there is no head. */
static __noinline void call_head(const struct msghdr *msg, __u64 size,
				 bool first, struct head *ret)
{
	__u64 words[2 * HEAD_BYTES / 8] = {};

	if (size < CHANGE_BYTES || !first_given(msg, size, words))
		return;
	stream_head((const __u8 *)words, size, first, ret);
}

/* How a handshake of TLS ends, by the server's hello. */
enum tls_end {
	TLS_END_UNKNOWN,
	/* before TLS 1.3: with the server's last word */
	TLS_END_SERVER,
	/* with the client's, which has so many bytes: ... */
	TLS_END_13 = 58, /* of TLS 1.3, by the hash that its cipher has */
	TLS_END_13_LONG = 74,
	/* ... or, before, as many as the server's, of a session that is resumed
	 */
};

static __always_inline bool is_of_13(__u8 end)
{
	return end == TLS_END_13 || end == TLS_END_13_LONG;
}

#define HELLO_SESSION 43 /* the place of its length; the cipher follows */
#define RECORDS_OF_FLIGHT 8

/* Of a server that says its last word at once: what it says from its change of
 * cipher on is as long as what the client will. */
static __noinline __u8 resumed_end(const __u8 *from, __u64 size)
{
	__u8 header[CHANGE_BYTES + TLS_HEADER_BYTES];
	__u64 at = 0, length;

	for (int i = 0; i < RECORDS_OF_FLIGHT; i++) {
		if (at + sizeof(header) > size ||
		    bpf_probe_read_user(header, sizeof(header), from + at))
			break;
		length = (__u64)header[3] << 8 | header[4];
		if (header[0] == 20) {
			length = (__u64)header[CHANGE_BYTES + 3] << 8 |
				 header[CHANGE_BYTES + 4];
			length += sizeof(header);
			return length < 0xff ? length : TLS_END_UNKNOWN;
		}
		at += TLS_HEADER_BYTES + length;
	}
	return TLS_END_SERVER;
}

/* Of a server's hello: enum tls_end. */
static __noinline __u8 hello_end(const struct msghdr *msg, __u64 size)
{
	const __u8 *from = buffer_given(msg, size);
	__u8 session, cipher[2];

	if (!from || bpf_probe_read_user(&session, 1, from + HELLO_SESSION) ||
	    session > 32 ||
	    bpf_probe_read_user(cipher, 2, from + HELLO_SESSION + 1 + session))
		return TLS_END_UNKNOWN;
	if (cipher[0] != 0x13)
		return resumed_end(from, size);
	return cipher[1] == 2 /* SHA-384 */ ? TLS_END_13_LONG : TLS_END_13;
}

#endif
