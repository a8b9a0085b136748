/*
 * bulk.c - what a peer may send on a bulk channel: frames of any kind, cut
 * anywhere, datagrams with numbers in any order, and plans that no client
 * makes.
 */
#include <errno.h>
#include <string.h>

#include "bulk_frames.h"
#include "bulk_plan.h"
#include "bulk_totals.h"
#include "clock.h"
#include "pace.h"
#include "sequence.h"

enum { NUMBERS = 1 << 16 };

/* No channel lasts longer than a year. */
static const uint64_t longest_ns = 365 * 24 * NS_PER_HOUR;

/* The bytes of the input, in pieces as it says. */
ssize_t world_receive(void *ret, size_t size)
{
	size_t piece = (size_t)world_byte() * world_byte() + 1;

	if (!world.left)
		return 0;
	if (piece % 7 == 0) {
		errno = EAGAIN;
		return -1;
	}
	return (ssize_t)world_bytes(ret, piece < size ? piece : size);
}

ssize_t world_send(const void *bytes, size_t size)
{
	(void)bytes;
	return (ssize_t)size;
}

static void read_totals(const struct bulk_frame *frame)
{
	struct bulk_sent sent;
	struct bulk_received received;

	MUST(!bulk_sent_open(&sent, 0, 1));
	MUST(!bulk_received_open(&received, 0, 1));
	if (!bulk_sent_read(&sent, frame->body, frame->size))
		MUST(sent.slots.count <= SLOTS_MAX && sent.slots.slot_ns);
	if (!bulk_received_read(&received, frame->body, frame->size))
		MUST(received.runs_kept <= SEQUENCE_RUNS_MAX);
	bulk_sent_close(&sent);
	bulk_received_close(&received);
}

static void read_frames(void)
{
	struct bulk_frames frames;
	struct bulk_frame frame;
	int found;

	MUST(!bulk_frames_open(&frames, 0));
	while ((found = bulk_frames_next(&frames, &frame)) >= 0) {
		MUST(frames.start <= frames.end);
		if (found)
			read_totals(&frame);
	}
	bulk_frames_close(&frames);
}

/* The greatest number must not have come too early: what came, a bit each. */
static void hear_numbers(void)
{
	static bool came[NUMBERS];
	struct sequence s;
	uint64_t different = 0, doubled = 0, sent = 0, number = 0, missing = 0;

	memset(came, 0, sizeof(came));
	MUST(!sequence_open(&s));
	while (world.left) {
		uint8_t step = world_byte();

		number = step < 200 ? number + step % 5 :
				      world_number(NUMBERS - 1);
		number %= NUMBERS;
		different += !came[number];
		doubled += came[number];
		came[number] = true;
		if (number >= sent)
			sent = number + 1;
		sequence_add(&s, number, 1, 0);
		MUST(s.gap_count <= SEQUENCE_GAPS_MAX);
	}
	sent += world_number(9);
	for (uint64_t i = 0; i < sent; i++)
		missing += i >= NUMBERS || !came[i];
	sequence_end(&s, sent, 1, 0);
	/* Inputs are too short for more gaps than are remembered. */
	MUST(!s.stale && s.received == different && s.duplicates == doubled);
	MUST(s.lost == missing && !s.in_socket);
	sequence_close(&s);
}

/* Send what is due, now and then, as a plan says that is taken. */
static void follow(const struct bulk_plan *plan)
{
	uint64_t start_ns = clock_ns(), now = start_ns, sent = 0;
	struct pace pace = pace_of(plan, start_ns);
	struct slots slots;

	MUST(!slots_open(&slots, start_ns, plan->slot_ns));
	while (world.left && now - start_ns < longest_ns &&
	       !pace_is_over(&pace, sent, now)) {
		uint64_t due = pace_due(&pace, sent, now);

		MUST(due <= pace.units - sent);
		if (due) {
			MUST(pace_due_ns(&pace, sent) >= start_ns);
			sent += 1 + world_number(due < 64 ? due - 1 : 63);
			slots_add(&slots, now, plan->unit_bytes);
		}
		now += (uint64_t)world_number(UINT32_MAX) << world_byte() % 24;
	}
	MUST(slots.count <= SLOTS_MAX && slots.slot_ns >= plan->slot_ns);
	slots_close(&slots);
}

static void take_plan(void)
{
	enum protocol transport =
		world_byte() & 1 ? PROTOCOL_UDP : PROTOCOL_TCP;
	struct bulk_plan plan = { 0 };

	world_bytes(&plan, sizeof(plan));
	if (bulk_plan_is_sound(&plan, transport))
		follow(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	uint8_t mode;

	world_begin(input, size);
	mode = world_byte();
	if (mode & 1)
		hear_numbers();
	else if (mode & 2)
		take_plan();
	else
		read_frames();
	return 0;
}
