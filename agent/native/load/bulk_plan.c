/* bulk_plan.c - what one channel of a bulk run does, as both ends know it. */
#include "bulk_plan.h"
#include "clock.h"

bool bulk_plan_is_sound(const struct bulk_plan *p, enum protocol transport)
{
	bool udp = transport == PROTOCOL_UDP;

	return p->channels >= 1 && p->channels <= BULK_CHANNELS_MAX &&
	       p->channel < p->channels && p->direction <= BULK_BOTH &&
	       p->unit_bytes >= BULK_HEADER_BYTES &&
	       p->unit_bytes <=
		       (udp ? DATAGRAM_BYTES_MAX : BULK_STREAM_UNIT_MAX) &&
	       (p->units || p->duration_ns) &&
	       p->units <= BULK_VOLUME_BYTES_MAX &&
	       p->duration_ns <= BULK_DURATION_NS_MAX &&
	       (!p->rate_bps || p->rate_bps >= BULK_RATE_BPS_MIN) &&
	       p->rate_bps <= BULK_RATE_BPS_MAX && p->slot_ns >= NS_PER_MS &&
	       p->slot_ns <= BULK_SLOT_NS_MAX &&
	       p->receive_buffer_bytes <= BULK_RECEIVE_BUFFER_MAX &&
	       p->send_way <= SEND_WAY_GSO &&
	       p->receive_way <= RECEIVE_WAY_GRO && p->spin <= 1;
}

bool bulk_client_sends(const struct bulk_plan *plan)
{
	return plan->direction != BULK_DOWN;
}

bool bulk_server_sends(const struct bulk_plan *plan)
{
	return plan->direction != BULK_UP;
}
