/* sha256.h - SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104).
 *
 * Our own, so that a package of latprof carries no cryptographic library that
 * has to be renewed with each of its advisories. It hashes a few hundred bytes
 * for each session: simple, not fast. */
#ifndef LATPROF_LOAD_SHA256_H
#define LATPROF_LOAD_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

void sha256(const void *data, size_t size, uint8_t ret[SHA256_BYTES]);
void hmac_sha256(const void *key, size_t key_size, const void *data,
		 size_t size, uint8_t ret[SHA256_BYTES]);

#endif
