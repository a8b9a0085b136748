/*
 * head.bpf.h - what the first bytes of a message say of it, as far as that
 * decides which message answers which: TLS is known by the header of a record,
 * HTTP/2 by its preface, an interim answer of HTTP by its line, DNS by its
 * header, whose identification pairs answers with queries. No other protocol is
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

/* The header of a record: kind, version 3.x, length. */
static __always_inline __u16 tls_head(const __u8 *b)
{
	__u32 length = (__u32)b[3] << 8 | b[4];

	if (b[1] != 3 || b[2] > 4 || !length || length > TLS_LARGEST_RECORD)
		return HEAD_NONE;
	switch (b[0]) {
	case 20: /* change of cipher: a flight of the handshake begins so, too
		  */
	case 22:
		return HEAD_TLS_HANDSHAKE;
	case 21:
		return HEAD_TLS_ALERT;
	case 23:
		return HEAD_TLS_DATA;
	default:
		return HEAD_NONE;
	}
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

	ret->kind = tls_head(b);
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

/* The first bytes of a send call, from one buffer of the caller's or from two,
 * as a length may stand in one of its own; false: they are in none. */
static __always_inline bool first_given(const struct msghdr *msg, __u64 size,
					__u64 ret[2 * HEAD_BYTES / 8])
{
	__u32 wanted = size >= HEAD_BYTES ? HEAD_BYTES : size < 9 ? 6 : 9;
	const struct iov_iter *from = &msg->msg_iter;
	__u64 first, offset;
	__u8 kind;

	if (!bpf_core_field_exists(from->__iov) ||
	    !bpf_core_enum_value_exists(enum iter_type, ITER_UBUF))
		return false;
	kind = from->iter_type;
	offset = from->iov_offset;
	if (kind == bpf_core_enum_value(enum iter_type, ITER_UBUF))
		return !bpf_probe_read_user(ret, wanted, from->ubuf + offset);
	if (kind != bpf_core_enum_value(enum iter_type, ITER_IOVEC))
		return false;
	first = from->__iov->iov_len - offset;
	if (first >= wanted)
		return !bpf_probe_read_user(ret, wanted,
					    from->__iov->iov_base + offset);
	first &= HEAD_BYTES - 1;
	if (!first || from->nr_segs < 2 ||
	    bpf_probe_read_user(ret, first, from->__iov->iov_base + offset))
		return false;
	barrier_var(first);
	first &= HEAD_BYTES - 1;
	return !bpf_probe_read_user((__u8 *)ret + first, wanted - first,
				    from->__iov[1].iov_base);
}

/* Of a send call of so many bytes: what is not there is no head. */
static __noinline void call_head(const struct msghdr *msg, __u64 size,
				 bool first, struct head *ret)
{
	__u64 words[2 * HEAD_BYTES / 8] = {};

	/* a change of cipher takes 6 bytes: it may stand alone */
	if (size < 6 || !first_given(msg, size, words))
		return;
	stream_head((const __u8 *)words, size, first, ret);
}

#endif
