/*
 * handshake.c - what anyone may say before a session, to either side. An input
 * of zeros is a peer that does all as it should; other bytes change, cut and
 * delay what it says, or are a Ctrl-C meanwhile.
 *
 * What is decided must be what a plain second reading of the same bytes says,
 * with proofs by libcrypto over what was said.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "arrival.h"
#include "endpoint.h"
#include "interrupts.h"
#include "session.h"

enum {
	SAID_MAX = 2048,
	SECRET_BYTES = 32,
	/* No descriptors: to close them does nothing. */
	CONTROL = 100000,
	DATA,
};

enum { WITH_SECRET = 1, OVER_UDP = 2 };

static const uint8_t secret[SECRET_BYTES] = "0123456789abcdef0123456789abcde";
static const uint8_t none[PROOF_BYTES];

/* Both directions of the control connection; from here, ours. */
static struct {
	uint8_t ours[SAID_MAX], theirs[SAID_MAX];
	size_t ours_bytes, given, theirs_bytes;
	int flags;
	bool client; /* what is tested; else the responder's side */
	bool disturbed; /* late, cut, or gone: then it may fail */
	bool opened; /* the right datagram was given */
	uint8_t nonce;
} peer;

int world_random(unsigned char *ret, int size)
{
	memset(ret, ++peer.nonce, (size_t)size);
	return 1;
}

int world_poll(struct pollfd *fds, nfds_t count, int limit_ms)
{
	uint8_t turn = world_byte();

	world.now_ns += 1000000;
	fds[0].revents = POLLIN;
	if (count > 1)
		fds[1].revents = turn == 255 ? POLLIN : 0;
	if (count > 1 && turn == 255)
		peer.disturbed = true;
	if (turn == 253) {
		interrupts = 1;
		peer.disturbed = true;
		errno = EINTR;
		return -1;
	}
	if (turn == 254 && limit_ms > 0) {
		world.now_ns += (uint64_t)limit_ms * 1000000;
		peer.disturbed = true;
		return 0;
	}
	return limit_ms ? 1 : 0;
}

/* HMAC-SHA256(secret, word HELLO CHALLENGE rest), or zeros. */
static void prove(const char *word, const uint8_t *hello,
		  const uint8_t *challenge, const uint8_t *accept,
		  uint8_t ret[PROOF_BYTES])
{
	uint8_t said[512];
	size_t size = 6 + 112 + 36;

	memset(ret, 0, PROOF_BYTES);
	if (!(peer.flags & WITH_SECRET))
		return;
	memcpy(said, word, 6);
	memcpy(said + 6, hello, 112);
	memcpy(said + 6 + 112, challenge, 36);
	if (accept)
		memcpy(said + size, accept, 37);
	size += accept ? 37 : 0;
	HMAC(EVP_sha256(), secret, SECRET_BYTES, said, size, ret, NULL);
}

/* Say it as it is, or with some bytes changed, or without its end. */
static void say(const uint8_t *message, size_t size)
{
	uint8_t *to = peer.ours + peer.ours_bytes;

	MUST(peer.ours_bytes + size <= SAID_MAX);
	memcpy(to, message, size);
	for (uint32_t left = world_byte() % 4; left; left--) {
		size_t at = world_number((uint32_t)size - 1);

		to[at] = world_byte();
	}
	if (world_byte() == 255) {
		size = world_number((uint32_t)size);
		peer.disturbed = true;
	}
	peer.ours_bytes += size;
}

static void say_challenge(void)
{
	uint8_t challenge[36] = { 'L', 'P', 's', 'e', 0, 1 };

	challenge[7] = peer.flags & WITH_SECRET;
	say(challenge, sizeof(challenge));
}

static void say_accept(void)
{
	uint8_t accept[69] = { 0, 't', 'o', 'k', 'e', 'n' };

	accept[20] = 77; /* of the limits */
	prove("server", peer.theirs, peer.ours, accept, accept + 37);
	say(accept, sizeof(accept));
}

ssize_t world_send(const void *bytes, size_t size)
{
	size_t before = peer.theirs_bytes;

	MUST(before + size <= SAID_MAX);
	if (size != OPEN_BYTES && world_byte() == 255)
		size = size / 2 + 1; /* the kernel took half of it */
	memcpy(peer.theirs + before, bytes, size);
	peer.theirs_bytes += size;
	if (before < 112 && peer.theirs_bytes >= 112)
		say_challenge();
	if (before < 144 && peer.theirs_bytes >= 144)
		say_accept();
	return (ssize_t)size;
}

static ssize_t opened(uint8_t *ret, size_t size)
{
	uint8_t turn = world_byte() % 4;

	MUST(size > OPEN_BYTES);
	if (turn == 3) {
		peer.disturbed = true;
		errno = ECONNREFUSED;
		return -1;
	}
	if (turn == 2)
		return (ssize_t)world_bytes(ret, size);
	if (turn == 1) {
		errno = EAGAIN;
		return -1;
	}
	memcpy(ret, "LPok", 4);
	memcpy(ret + 4, peer.ours + 36 + 1, 16);
	peer.opened = true;
	return OPEN_BYTES;
}

ssize_t world_receive(void *ret, size_t size)
{
	size_t left = peer.ours_bytes - peer.given;
	uint8_t turn = world_byte();

	if (peer.client && peer.given == 36 + 69)
		return opened(ret, size);
	if (turn == 255) {
		errno = EAGAIN;
		return -1;
	}
	if (turn)
		size = (turn - 1) % size + 1;
	size = size < left ? size : left;
	memcpy(ret, peer.ours + peer.given, size);
	peer.given += size;
	return (ssize_t)size;
}

int endpoint_connect(const struct options *options, enum protocol protocol,
		     const char *address, uint64_t port, int *ret,
		     struct failure *failure)
{
	(void)options, (void)address, (void)port, (void)failure;
	*ret = protocol == PROTOCOL_UDP ? DATA : CONTROL;
	return 0;
}

static void must_be_a_line(const struct failure *failure)
{
	size_t length = strnlen(failure->text, sizeof(failure->text));

	MUST(length && length < sizeof(failure->text));
	for (size_t i = 0; i < length; i++)
		MUST((unsigned char)failure->text[i] >= ' ');
}

/* Would a client go on behind this CHALLENGE? */
static bool is_challenge(const uint8_t *said)
{
	return !memcmp(said, "LPse\0\1\0", 7) &&
	       !said[7] == !(peer.flags & WITH_SECRET);
}

static bool is_accept(const uint8_t *said)
{
	uint8_t proof[PROOF_BYTES];

	prove("server", peer.theirs, peer.ours, said, proof);
	return !said[0] && !memcmp(said + 37, proof, PROOF_BYTES);
}

static void check_open(const struct session_link *link)
{
	const uint8_t *accept = peer.ours + 36, *at = peer.theirs + 144;
	bool udp = peer.flags & OVER_UDP;
	uint64_t opens = udp ? link->sent_before : 0;
	uint8_t proof[PROOF_BYTES];

	MUST(is_challenge(peer.ours) && is_accept(accept));
	prove("client", peer.theirs, peer.ours, NULL, proof);
	MUST(!memcmp(peer.theirs + 112, proof, PROOF_BYTES));
	MUST(link->control == CONTROL && link->data == (udp ? DATA : CONTROL));
	MUST(link->limits.message_bytes ==
	     ((uint32_t)accept[17] << 24 | (uint32_t)accept[18] << 16 |
	      (uint32_t)accept[19] << 8 | accept[20]));
	MUST(peer.theirs_bytes == 144 + opens * 20 + (udp ? 5 : 0));
	MUST(peer.opened || !udp);
	for (uint64_t i = 0; i < opens; i++, at += 20)
		MUST(!memcmp(at, "LPop", 4) && !memcmp(at + 4, accept + 1, 16));
	MUST(!udp || !memcmp(at, "\1\0\0\0\0", 5));
}

/* The secret, or none. */
static struct secret known(void)
{
	struct secret found = { 0 };

	if (peer.flags & WITH_SECRET) {
		memcpy(found.bytes, secret, SECRET_BYTES);
		found.size = SECRET_BYTES;
	}
	return found;
}

static void try_client(void)
{
	struct options options = { .secret = known() };
	struct terms terms = {
		.workload = WORKLOAD_PINGPONG,
		.transport =
			peer.flags & OVER_UDP ? PROTOCOL_UDP : PROTOCOL_TCP,
		.largest_bytes = 64,
	};
	struct failure failure = { 0 };
	struct session_link link;
	int error;

	peer.client = true;
	interrupts = 0;
	error = session_open(&options, "host", 1, &terms, &link, &failure);
	MUST((error == -ECANCELED) == (interrupts != 0));
	if (!error) {
		check_open(&link);
		return;
	}
	must_be_a_line(&failure);
	MUST(link.control == -1 && link.data == -1);
	if (!is_challenge(peer.ours)) /* nothing to try secrets on */
		MUST(peer.theirs_bytes == 112);
	else if (!(peer.flags & OVER_UDP) && !peer.disturbed)
		MUST(!is_accept(peer.ours + 36));
}

/* Who is asked twice, and what it said. */
static struct {
	int calls;
	enum handshake_status said[2];
} doors;

static enum handshake_status admit(void *context, const struct terms *terms,
				   uint64_t *bound)
{
	uint8_t said = world_byte();

	MUST(context == &doors && doors.calls < 2);
	MUST(terms->largest_bytes ==
	     ((uint32_t)peer.ours[28] << 24 | (uint32_t)peer.ours[29] << 16 |
	      (uint32_t)peer.ours[30] << 8 | peer.ours[31]));
	*bound = 5;
	doors.said[doors.calls] = said < STATUS_COUNT ? said : STATUS_OK;
	return doors.said[doors.calls++];
}

static void say_for(enum arrival_stage stage)
{
	uint8_t hello[112] = { 'L', 'P', 's', 'e', 0, 1, WORKLOAD_PINGPONG };
	uint8_t proof[PROOF_BYTES];

	peer.given = peer.ours_bytes;
	switch (stage) {
	case ARRIVAL_HELLO:
		hello[7] = peer.flags & OVER_UDP ? 1 : 0;
		say(hello, sizeof(hello));
		break;
	case ARRIVAL_PROOF:
		prove("client", peer.ours, peer.theirs, NULL, proof);
		say(proof, sizeof(proof));
		break;
	case ARRIVAL_BEGIN:
		say((const uint8_t *)"\1\0\0\0\0", 5);
		break;
	default:
		say(none, sizeof(none));
	}
}

static void check_answer(const struct arrival *a, const struct answer *answer)
{
	const uint8_t *to = peer.theirs + peer.theirs_bytes;
	uint8_t proof[PROOF_BYTES];

	if (!answer->size)
		return;
	memcpy(peer.theirs + peer.theirs_bytes, answer->bytes, answer->size);
	peer.theirs_bytes += answer->size;
	if (answer->size == 36) {
		MUST(!memcmp(to, "LPse\0\1", 6) && to[6] == a->refused);
		MUST(!to[7] == !(peer.flags & WITH_SECRET));
		return;
	}
	MUST(answer->size == 69 && to[0] == a->refused);
	if (a->refused) {
		for (size_t i = 1; i < 69; i++)
			MUST(!to[i]);
		return;
	}
	prove("server", peer.ours, peer.theirs, to, proof);
	MUST(!memcmp(to + 37, proof, PROOF_BYTES));
}

static void check_done(void)
{
	uint8_t proof[PROOF_BYTES];

	MUST(!memcmp(peer.ours, "LPse\0\1", 6));
	MUST(doors.calls == 2 && !doors.said[0] && !doors.said[1]);
	prove("client", peer.ours, peer.theirs, NULL, proof);
	MUST(!memcmp(peer.ours + 112, proof, PROOF_BYTES));
	if (peer.ours[7] == 1)
		MUST(!memcmp(peer.ours + 144, "\1\0\0\0\0", 5));
}

/* 0, or why it ends. */
static int hear(struct arrival *a, const struct admission *admission)
{
	size_t left = peer.ours_bytes - peer.given, count;
	const uint8_t *inside = (const uint8_t *)a;
	struct answer answer;
	uint8_t *at;
	size_t room = arrival_room(a, &at);
	int error;

	MUST(room && at >= inside && at + room <= inside + sizeof(*a));
	count = room < left ? room : left;
	if (!count)
		return -ECONNRESET;
	count -= world_byte() % count;
	memcpy(at, peer.ours + peer.given, count);
	peer.given += count;
	error = arrival_take(a, count, admission, &answer);
	MUST(!error || error == -EPROTO);
	if (!error)
		check_answer(a, &answer);
	return error;
}

static void try_responder(void)
{
	const struct secret theirs = known();
	struct admission admission = { .admit = admit, .context = &doors };
	enum arrival_stage stage = ARRIVAL_LEAVING;
	struct arrival a;

	memset(&doors, 0, sizeof(doors));
	arrival_begin(&a, &theirs);
	while (a.stage != ARRIVAL_DONE && a.stage != ARRIVAL_LEAVING) {
		if (a.stage == ARRIVAL_OPEN && world_byte() < 200)
			arrival_opened(&a);
		if (a.stage != stage)
			say_for(a.stage);
		stage = a.stage;
		if (hear(&a, &admission))
			return;
	}
	if (a.stage == ARRIVAL_DONE)
		check_done();
	else
		MUST(a.refused);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	uint8_t mode;

	world_begin(input, size);
	memset(&peer, 0, sizeof(peer));
	mode = world_byte();
	peer.flags = mode >> 2 & (WITH_SECRET | OVER_UDP);
	if (mode & 1)
		try_responder();
	else
		try_client();
	return 0;
}
