/*
 * handshake.h - what a client and `latprof-load echo` send before a session:
 * its bytes, and the proofs that both know the secret.
 *
 *   client                                  echo
 *   HELLO      what it asks for      ->
 *                                    <-     CHALLENGE  refused, or a nonce
 *   PROOF      of the secret         ->
 *                                    <-     ACCEPT     token, limits, its proof
 *
 * All numbers are big endian.
 *
 *   HELLO      u8[4] "LPse", u16 version, u8 workload, u8 transport (0 TCP,
 *              1 UDP), u8[16] nonce, u32 reply bytes (0: echo in full), u32
 *              largest message, u64 think ns, u64 duration ns (0: not known),
 *              u64[8] of the workload's own
 *              A HELLO of workload 0 asks for no session but why the one was
 *              ended whose token stands in the workload's own: the CHALLENGE's
 *              status says it (WORKLOAD: not known), and there is no more.
 *   CHALLENGE  u8[4] "LPse", u16 version, u8 status, u8 secret needed, u32
 *              workloads (a bit each), u8[16] nonce, u64 bound: what the
 *              refused one may be at most
 *   PROOF      HMAC-SHA256(secret, "client" HELLO CHALLENGE); 0 where no
 *              secret is needed
 *   ACCEPT     u8 status, u8[16] token, u32 message bytes, u64 duration ns,
 *              u64 bytes per second (limits; 0: none), HMAC-SHA256(secret,
 *              "server" HELLO CHALLENGE and ACCEPT as far as here); 0 where
 *              refused, or no secret is needed
 *
 * The first 7 bytes of HELLO and CHALLENGE are the same in every version.
 * Datagrams: OPEN is u8[4] "LPop" and the token, OPENED "LPok" and the token.
 *
 * The proofs do not sign what follows: a secret keeps strangers out, not
 * those who can change packets on the way.
 */
#ifndef LATPROF_LOAD_HANDSHAKE_H
#define LATPROF_LOAD_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flags.h"
#include "secret.h"
#include "workload.h"

enum {
	HANDSHAKE_VERSION = 1,
	HANDSHAKE_PREFIX_BYTES = 7,
	HELLO_BYTES = 112,
	CHALLENGE_BYTES = 36,
	PROOF_BYTES = 32,
	ACCEPT_BYTES = 69,
	OPEN_BYTES = 20,
	NONCE_BYTES = 16,
	TOKEN_BYTES = 16,
	TERMS_OWN = 8,
	THINK_NS_MAX = 1000000000,
};

/* Why a session is refused, or was ended. On the wire, too. */
enum handshake_status {
	STATUS_OK,
	STATUS_VERSION,
	STATUS_WORKLOAD, /* not served here */
	STATUS_MESSAGE, /* too large */
	STATUS_DURATION, /* too long */
	STATUS_BUSY, /* as many sessions as there may be */
	STATUS_SECRET, /* the proof is wrong */
	STATUS_TERMS, /* a value that no client of this version sends */
	STATUS_MEMORY, /* as much as there may be */
	STATUS_HOST_SESSIONS, /* as many of this host */
	STATUS_HOST_MEMORY,
	STATUS_CPU, /* sessions take too much CPU time */
	STATUS_HOST_CPU, /* those of this host do */
	STATUS_IDLE, /* nothing moved in it */
	STATUS_OVERLONG, /* it took too long */
	STATUS_COUNT,
};

/* What a client asks for. */
struct terms {
	enum workload workload;
	enum protocol transport;
	uint32_t reply_bytes; /* 0: echo in full */
	uint32_t largest_bytes; /* of its messages */
	uint64_t think_ns; /* work of the responder before each answer */
	uint64_t duration_ns; /* 0: not known */
	uint64_t own[TERMS_OWN]; /* the workload says what they are */
};

/* What a responder bears; 0: as much as you like. */
struct limits {
	uint32_t message_bytes;
	uint64_t duration_ns;
	uint64_t bytes_per_second;
};

/* Both sides' state: what was said until now. */
struct handshake {
	const struct secret *secret;
	uint8_t hello[HELLO_BYTES];
	uint8_t challenge[CHALLENGE_BYTES];
	uint8_t proof[PROOF_BYTES];
	uint8_t accept[ACCEPT_BYTES];
};

/* Each writes one message into *h; it is complete then. -EIO: the kernel
 * gives no random bytes. */
int handshake_hello(struct handshake *h, const struct terms *terms);
int handshake_challenge(struct handshake *h, enum handshake_status status,
			uint32_t workloads, uint64_t bound);
void handshake_prove(struct handshake *h);
int handshake_accept(struct handshake *h, enum handshake_status status,
		     const struct limits *limits);

/* The responder's reading. -EPROTO: no HELLO at all. */
int handshake_read_hello(const struct handshake *h, struct terms *ret);
uint16_t handshake_version(const uint8_t prefix[HANDSHAKE_PREFIX_BYTES]);
/* Does the client know the secret? */
bool handshake_is_proven(const struct handshake *h);

/* The client's reading. -EPROTO: no CHALLENGE at all. */
struct challenge {
	enum handshake_status status;
	uint16_t version;
	bool secret_needed;
	uint32_t workloads;
	uint64_t bound;
};
int handshake_read_challenge(const struct handshake *h, struct challenge *ret);
/* -EPROTO: no ACCEPT. -EACCES: the responder does not show that it knows the
 * secret. */
int handshake_read_accept(const struct handshake *h, enum handshake_status *ret,
			  struct limits *limits);

/* The datagrams that tie a UDP socket to a session. */
const uint8_t *handshake_token(const struct handshake *h);
void open_write(uint8_t ret[OPEN_BYTES], const uint8_t token[TOKEN_BYTES],
		bool answer);
/* The token in a datagram, NULL where it is something else. */
const uint8_t *open_token(const uint8_t *datagram, size_t size, bool answer);
bool token_equals(const uint8_t a[TOKEN_BYTES], const uint8_t b[TOKEN_BYTES]);

#endif
