/* handshake.c - the bytes before a session, and the proofs in them. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "big_endian.h"
#include "handshake.h"
#include "sha256.h"

enum { MAGIC_BYTES = 4, VERSION_AT = 4, STATUS_AT = 6 };
enum {
	WORKLOAD_AT = 6,
	TRANSPORT_AT = 7,
	HELLO_NONCE_AT = 8,
	REPLY_AT = 24,
	LARGEST_AT = 28,
	THINK_AT = 32,
	DURATION_AT = 40,
	OWN_AT = 48,
};
enum {
	SECRET_NEEDED_AT = 7,
	WORKLOADS_AT = 8,
	CHALLENGE_NONCE_AT = 12,
	BOUND_AT = 28,
};
enum {
	TOKEN_AT = 1,
	MESSAGE_LIMIT_AT = 17,
	DURATION_LIMIT_AT = 21,
	RATE_LIMIT_AT = 29,
	ACCEPT_PROOF_AT = 37,
};

static const uint8_t magic[MAGIC_BYTES] = { 'L', 'P', 's', 'e' };
static const uint8_t open_magic[MAGIC_BYTES] = { 'L', 'P', 'o', 'p' };
static const uint8_t opened_magic[MAGIC_BYTES] = { 'L', 'P', 'o', 'k' };

static void begin(uint8_t *message, size_t size)
{
	memset(message, 0, size);
	memcpy(message, magic, MAGIC_BYTES);
	put_u16(message + VERSION_AT, HANDSHAKE_VERSION);
}

/* So few bytes come at once. */
static int random_bytes(uint8_t *ret, size_t size)
{
	return getrandom(ret, size, 0) == (ssize_t)size ? 0 : -EIO;
}

/* HMAC-SHA256(secret, word HELLO CHALLENGE rest); zeros without a secret. */
static void prove(const struct handshake *h, const char word[static 6],
		  const uint8_t *rest, size_t rest_bytes,
		  uint8_t ret[PROOF_BYTES])
{
	uint8_t said[6 + HELLO_BYTES + CHALLENGE_BYTES + ACCEPT_PROOF_AT];
	uint8_t *at = said;

	memset(ret, 0, PROOF_BYTES);
	if (!h->secret->size)
		return;
	at = (uint8_t *)memcpy(at, word, 6) + 6;
	at = (uint8_t *)memcpy(at, h->hello, HELLO_BYTES) + HELLO_BYTES;
	at = (uint8_t *)memcpy(at, h->challenge, CHALLENGE_BYTES) +
	     CHALLENGE_BYTES;
	if (rest_bytes)
		at = (uint8_t *)memcpy(at, rest, rest_bytes) + rest_bytes;
	hmac_sha256(h->secret->bytes, h->secret->size, said,
		    (size_t)(at - said), ret);
}

/* In a time that says nothing of where they differ. */
static bool are_equal(const uint8_t *a, const uint8_t *b, size_t size)
{
	volatile uint8_t differing = 0;

	for (size_t i = 0; i < size; i++)
		differing |= a[i] ^ b[i];
	return !differing;
}

int handshake_hello(struct handshake *h, const struct terms *terms)
{
	uint8_t *to = h->hello;

	begin(to, HELLO_BYTES);
	to[WORKLOAD_AT] = (uint8_t)terms->workload;
	to[TRANSPORT_AT] = (uint8_t)terms->transport;
	put_u32(to + REPLY_AT, terms->reply_bytes);
	put_u32(to + LARGEST_AT, terms->largest_bytes);
	put_u64(to + THINK_AT, terms->think_ns);
	put_u64(to + DURATION_AT, terms->duration_ns);
	for (int i = 0; i < TERMS_OWN; i++)
		put_u64(to + OWN_AT + 8 * i, terms->own[i]);
	return random_bytes(to + HELLO_NONCE_AT, NONCE_BYTES);
}

uint16_t handshake_version(const uint8_t prefix[HANDSHAKE_PREFIX_BYTES])
{
	return get_u16(prefix + VERSION_AT);
}

int handshake_read_hello(const struct handshake *h, struct terms *ret)
{
	const uint8_t *from = h->hello;

	if (memcmp(from, magic, MAGIC_BYTES))
		return -EPROTO;
	*ret = (struct terms){
		.workload = from[WORKLOAD_AT],
		.transport = from[TRANSPORT_AT],
		.reply_bytes = get_u32(from + REPLY_AT),
		.largest_bytes = get_u32(from + LARGEST_AT),
		.think_ns = get_u64(from + THINK_AT),
		.duration_ns = get_u64(from + DURATION_AT),
	};
	for (int i = 0; i < TERMS_OWN; i++)
		ret->own[i] = get_u64(from + OWN_AT + 8 * i);
	return 0;
}

int handshake_challenge(struct handshake *h, enum handshake_status status,
			uint32_t workloads, uint64_t bound)
{
	uint8_t *to = h->challenge;

	begin(to, CHALLENGE_BYTES);
	to[STATUS_AT] = (uint8_t)status;
	to[SECRET_NEEDED_AT] = h->secret->size > 0;
	put_u32(to + WORKLOADS_AT, workloads);
	put_u64(to + BOUND_AT, bound);
	return random_bytes(to + CHALLENGE_NONCE_AT, NONCE_BYTES);
}

int handshake_read_challenge(const struct handshake *h, struct challenge *ret)
{
	const uint8_t *from = h->challenge;

	if (memcmp(from, magic, MAGIC_BYTES))
		return -EPROTO;
	*ret = (struct challenge){
		.status = from[STATUS_AT],
		.version = handshake_version(from),
		.secret_needed = from[SECRET_NEEDED_AT],
		.workloads = get_u32(from + WORKLOADS_AT),
		.bound = get_u64(from + BOUND_AT),
	};
	return 0;
}

void handshake_prove(struct handshake *h)
{
	prove(h, "client", NULL, 0, h->proof);
}

bool handshake_is_proven(const struct handshake *h)
{
	uint8_t expected[PROOF_BYTES];

	prove(h, "client", NULL, 0, expected);
	return are_equal(expected, h->proof, PROOF_BYTES);
}

int handshake_accept(struct handshake *h, enum handshake_status status,
		     const struct limits *limits)
{
	uint8_t *to = h->accept;

	memset(to, 0, ACCEPT_BYTES);
	to[0] = (uint8_t)status;
	/* A proof for someone who has given none could be tried for secrets. */
	if (status != STATUS_OK)
		return 0;
	put_u32(to + MESSAGE_LIMIT_AT, limits->message_bytes);
	put_u64(to + DURATION_LIMIT_AT, limits->duration_ns);
	put_u64(to + RATE_LIMIT_AT, limits->bytes_per_second);
	if (random_bytes(to + TOKEN_AT, TOKEN_BYTES))
		return -EIO;
	prove(h, "server", to, ACCEPT_PROOF_AT, to + ACCEPT_PROOF_AT);
	return 0;
}

int handshake_read_accept(const struct handshake *h, enum handshake_status *ret,
			  struct limits *limits)
{
	const uint8_t *from = h->accept;
	uint8_t expected[PROOF_BYTES];

	*ret = from[0];
	if (*ret >= STATUS_COUNT)
		return -EPROTO;
	if (*ret != STATUS_OK)
		return 0;
	limits->message_bytes = get_u32(from + MESSAGE_LIMIT_AT);
	limits->duration_ns = get_u64(from + DURATION_LIMIT_AT);
	limits->bytes_per_second = get_u64(from + RATE_LIMIT_AT);
	prove(h, "server", from, ACCEPT_PROOF_AT, expected);
	return are_equal(expected, from + ACCEPT_PROOF_AT, PROOF_BYTES) ?
		       0 :
		       -EACCES;
}

const uint8_t *handshake_token(const struct handshake *h)
{
	return h->accept + TOKEN_AT;
}

void open_write(uint8_t ret[OPEN_BYTES], const uint8_t token[TOKEN_BYTES],
		bool answer)
{
	memcpy(ret, answer ? opened_magic : open_magic, MAGIC_BYTES);
	memcpy(ret + MAGIC_BYTES, token, TOKEN_BYTES);
}

const uint8_t *open_token(const uint8_t *datagram, size_t size, bool answer)
{
	if (size != OPEN_BYTES ||
	    memcmp(datagram, answer ? opened_magic : open_magic, MAGIC_BYTES))
		return NULL;
	return datagram + MAGIC_BYTES;
}

bool token_equals(const uint8_t a[TOKEN_BYTES], const uint8_t b[TOKEN_BYTES])
{
	return are_equal(a, b, TOKEN_BYTES);
}
