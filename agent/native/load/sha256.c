/* sha256.c - SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104). */
#include <string.h>

#include "big_endian.h"
#include "sha256.h"

enum {
	BLOCK_BYTES = 64,
	LENGTH_AT = 56, /* of the message, in bits, in its last block */
	STATE_WORDS = 8,
	ROUNDS = 64,
};

struct hash {
	uint32_t state[STATE_WORDS];
	uint8_t block[BLOCK_BYTES];
	uint64_t size; /* bytes until now; those of the block are size % 64 */
};

/* The first 32 bits of the fractions of the square roots of 2 to 19, and of the
 * cube roots of the first 64 primes. */
static const uint32_t first_state[STATE_WORDS] = {
	0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
	0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};
static const uint32_t constants[ROUNDS] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
	0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
	0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
	0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
	0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
	0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
	0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotated(uint32_t word, int by)
{
	return word >> by | word << (32 - by);
}

/* The names are those of the standard's section 6.2.2. */
static void add_block(uint32_t state[static STATE_WORDS],
		      const uint8_t block[static BLOCK_BYTES])
{
	uint32_t w[ROUNDS], s[STATE_WORDS];

	for (int t = 0; t < 16; t++)
		w[t] = get_u32(block + (ptrdiff_t)4 * t);
	for (int t = 16; t < ROUNDS; t++) {
		uint32_t x = w[t - 15], y = w[t - 2];

		w[t] = w[t - 16] + w[t - 7] +
		       (rotated(x, 7) ^ rotated(x, 18) ^ x >> 3) +
		       (rotated(y, 17) ^ rotated(y, 19) ^ y >> 10);
	}
	memcpy(s, state, sizeof(s));
	for (int t = 0; t < ROUNDS; t++) {
		uint32_t a = s[0], b = s[1], c = s[2];
		uint32_t e = s[4], f = s[5], g = s[6];
		uint32_t t1 =
			s[7] +
			(rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
			((e & f) ^ (~e & g)) + constants[t] + w[t];
		uint32_t t2 =
			(rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) +
			((a & b) ^ (a & c) ^ (b & c));

		memmove(s + 1, s, sizeof(s) - sizeof(*s));
		s[4] += t1;
		s[0] = t1 + t2;
	}
	for (int i = 0; i < STATE_WORDS; i++)
		state[i] += s[i];
}

static void begin(struct hash *h)
{
	memcpy(h->state, first_state, sizeof(h->state));
	h->size = 0;
}

static void add(struct hash *h, const void *data, size_t size)
{
	const uint8_t *from = data;

	while (size) {
		size_t at = h->size % BLOCK_BYTES;
		size_t n = BLOCK_BYTES - at;

		if (n > size)
			n = size;
		memcpy(h->block + at, from, n);
		h->size += n;
		from += n;
		size -= n;
		if (at + n == BLOCK_BYTES)
			add_block(h->state, h->block);
	}
}

static void end(struct hash *h, uint8_t ret[static SHA256_BYTES])
{
	static const uint8_t padding[BLOCK_BYTES] = { 0x80 };
	size_t at = h->size % BLOCK_BYTES;
	uint8_t bits[8];

	put_u64(bits, h->size * 8);
	add(h, padding,
	    (at < LENGTH_AT ? LENGTH_AT : LENGTH_AT + BLOCK_BYTES) - at);
	add(h, bits, sizeof(bits));
	for (int i = 0; i < STATE_WORDS; i++)
		put_u32(ret + (ptrdiff_t)4 * i, h->state[i]);
}

void sha256(const void *data, size_t size, uint8_t ret[SHA256_BYTES])
{
	struct hash h;

	begin(&h);
	add(&h, data, size);
	end(&h, ret);
}

void hmac_sha256(const void *key, size_t key_size, const void *data,
		 size_t size, uint8_t ret[SHA256_BYTES])
{
	uint8_t inner[BLOCK_BYTES] = { 0 }, outer[BLOCK_BYTES];
	struct hash h;

	if (key_size > BLOCK_BYTES)
		sha256(key, key_size, inner);
	else if (key_size)
		memcpy(inner, key, key_size);
	for (int i = 0; i < BLOCK_BYTES; i++) {
		outer[i] = inner[i] ^ 0x5c;
		inner[i] ^= 0x36;
	}
	begin(&h);
	add(&h, inner, sizeof(inner));
	add(&h, data, size);
	end(&h, ret);
	begin(&h);
	add(&h, outer, sizeof(outer));
	add(&h, ret, SHA256_BYTES);
	end(&h, ret);
	explicit_bzero(inner, sizeof(inner));
	explicit_bzero(outer, sizeof(outer));
	explicit_bzero(&h, sizeof(h));
}
