/* bulk_report.c - what a bulk run measured, as one JSON object. */
#include <arpa/inet.h>

#include "bulk_report.h"
#include "clock.h"
#include "json.h"
#include "report.h"

/* One direction of a channel; NULL where that end's account is not known. */
struct half {
	const struct bulk_sent *sent;
	const struct bulk_received *received;
};

static struct half half_of(const struct bulk_channel *c, bool up)
{
	if (up)
		return (struct half){
			c->sends ? &c->sent : NULL,
			c->peer_has_received ? &c->peer_received : NULL,
		};
	return (struct half){
		c->peer_has_sent ? &c->peer_sent : NULL,
		c->receives ? &c->received : NULL,
	};
}

static void show_slots(FILE *to, const struct slots *s)
{
	number(to, "slot_ns", s->slot_ns);
	fputs("\"slot_bytes\": [", to);
	for (size_t i = 0; i < s->count; i++)
		fprintf(to, "%s%" PRIu64, i ? ", " : "", s->bytes[i]);
	fputs("]", to);
}

#define SHOW_SENT(name) number(to, #name, s->totals.name);

static void show_sent(FILE *to, const struct bulk_sent *s, bool udp)
{
	static const char *const ways[] = { "auto", "send", "sendmmsg", "gso" };

	fputs("\"sender\": ", to);
	if (!s) {
		fputs("null, ", to);
		return;
	}
	fputs("{", to);
	BULK_SENT_FIELDS(SHOW_SENT)
	if (udp)
		text(to, "way", ways[s->totals.way & 3]);
	else {
		BULK_SENT_TCP_FIELDS(SHOW_SENT)
	}
	number(to, "error", s->totals.error);
	truth(to, "stopped", s->totals.stopped);
	show_slots(to, &s->slots);
	fputs("}, ", to);
}

static void show_losses(FILE *to, const struct bulk_received *r)
{
	size_t lengths = SEQUENCE_LENGTHS;

	while (lengths && !r->lengths[lengths - 1])
		lengths--;
	/* Item k: runs of 2^k to 2^(k+1)-1 numbers. */
	fputs("\"loss_run_lengths\": [", to);
	for (size_t i = 0; i < lengths; i++)
		fprintf(to, "%s%" PRIu64, i ? ", " : "", r->lengths[i]);
	/* First number, length, when, how many of them in the socket. */
	fputs("], \"loss_run_list\": [", to);
	for (size_t i = 0; i < r->runs_kept; i++)
		fprintf(to,
			"%s[%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
			"]",
			i ? ", " : "", r->runs[i].first, r->runs[i].length,
			r->runs[i].t_ns, r->runs[i].in_socket);
	fputs("], ", to);
}

#define SHOW_RECEIVED(name) number(to, #name, r->totals.name);

static void show_received(FILE *to, const struct bulk_received *r, bool udp)
{
	static const char *const ways[] = { "auto", "recv", "recvmmsg", "gro" };

	fputs("\"receiver\": ", to);
	if (!r) {
		fputs("null", to);
		return;
	}
	fputs("{", to);
	BULK_RECEIVED_FIELDS(SHOW_RECEIVED)
	if (udp) {
		BULK_RECEIVED_UDP_FIELDS(SHOW_RECEIVED)
		text(to, "way", ways[r->totals.way & 3]);
		show_losses(to, r);
	}
	show_slots(to, &r->slots);
	fputs("}", to);
}

/* Sums over the channels of one direction, where every channel has reported. */
struct sums {
	bool sent_known, received_known;
	uint64_t sent, sent_bytes, sent_first_ns, sent_last_ns;
	uint64_t received, received_bytes, received_first_ns, received_last_ns;
	uint64_t lost, lost_in_socket, socket_drops, duplicates, reordered;
	uint64_t retransmits;
};

static void widen(uint64_t *first_ns, uint64_t *last_ns, uint64_t from_ns,
		  uint64_t until_ns)
{
	if (from_ns && (!*first_ns || from_ns < *first_ns))
		*first_ns = from_ns;
	if (until_ns > *last_ns)
		*last_ns = until_ns;
}

static void add_half(struct sums *to, const struct half *h)
{
	to->sent_known &= h->sent != NULL;
	to->received_known &= h->received != NULL;
	if (h->sent) {
		to->sent += h->sent->totals.sent;
		to->sent_bytes += h->sent->totals.bytes;
		to->retransmits += h->sent->totals.retransmits;
		widen(&to->sent_first_ns, &to->sent_last_ns,
		      h->sent->totals.first_ns, h->sent->totals.last_ns);
	}
	if (h->received) {
		to->received += h->received->totals.received;
		to->received_bytes += h->received->totals.bytes;
		to->lost += h->received->totals.lost;
		to->lost_in_socket += h->received->totals.lost_in_socket;
		to->socket_drops += h->received->totals.socket_drops;
		to->duplicates += h->received->totals.duplicates;
		to->reordered += h->received->totals.reordered;
		widen(&to->received_first_ns, &to->received_last_ns,
		      h->received->totals.first_ns,
		      h->received->totals.last_ns);
	}
}

static uint64_t rate_bps(uint64_t bytes, uint64_t first_ns, uint64_t last_ns)
{
	double seconds = (double)(last_ns - first_ns) / NS_PER_SECOND;

	return last_ns > first_ns ? (uint64_t)((double)bytes * 8 / seconds) : 0;
}

static void number_if(FILE *to, bool known, const char *name, uint64_t value)
{
	if (known)
		number(to, name, value);
	else
		fprintf(to, "\"%s\": null, ", name);
}

static void show_sums(FILE *to, const struct sums *s, bool udp)
{
	bool sent = s->sent_known, received = s->received_known;

	number_if(to, sent, "sent", s->sent);
	number_if(to, sent, "sent_bytes", s->sent_bytes);
	number_if(to, sent, "sent_bps",
		  rate_bps(s->sent_bytes, s->sent_first_ns, s->sent_last_ns));
	number_if(to, received, "received", s->received);
	number_if(to, received, "received_bytes", s->received_bytes);
	number_if(to, received, "received_bps",
		  rate_bps(s->received_bytes, s->received_first_ns,
			   s->received_last_ns));
	if (!udp) {
		number_if(to, sent, "retransmits", s->retransmits);
		return;
	}
	number_if(to, received, "lost", s->lost);
	number_if(to, received, "lost_in_socket", s->lost_in_socket);
	number_if(to, received, "socket_drops", s->socket_drops);
	number_if(to, received, "duplicates", s->duplicates);
	number_if(to, received, "reordered", s->reordered);
}

static void show_place(FILE *to, const struct sockaddr_in6 *local)
{
	char name[INET6_ADDRSTRLEN] = "";

	if (local->sin6_family == AF_INET)
		inet_ntop(AF_INET,
			  &((const struct sockaddr_in *)local)->sin_addr, name,
			  sizeof(name));
	else
		inet_ntop(AF_INET6, &local->sin6_addr, name, sizeof(name));
	text(to, "local_address", name);
	number(to, "local_port", ntohs(local->sin6_port));
}

static void show_worker(FILE *to, const struct bulk_worker *w, bool up)
{
	bool udp = w->channel.transport == PROTOCOL_UDP;
	struct half half = half_of(&w->channel, up);

	fputs("{", to);
	number(to, "channel", w->channel.plan.channel);
	show_place(to, &w->local);
	text(to, "congestion", w->facts.congestion);
	number(to, "mss_bytes", (uint64_t)w->facts.mss_bytes);
	number(to, "path_mtu_bytes", (uint64_t)w->facts.path_mtu_bytes);
	show_sent(to, half.sent, udp);
	show_received(to, half.received, udp);
	fputs("}", to);
}

static void show_direction(FILE *to, const struct bulk *b, bool up)
{
	struct sums sums = { .sent_known = true, .received_known = true };

	fprintf(to, "\"%s\": ", up ? "up" : "down");
	if (b->options->direction == (up ? BULK_DOWN : BULK_UP)) {
		fputs("null, ", to);
		return;
	}
	for (size_t i = 0; i < b->count; i++) {
		struct half half = half_of(&b->workers[i].channel, up);

		add_half(&sums, &half);
	}
	fputs("{", to);
	show_sums(to, &sums, b->options->protocol == PROTOCOL_UDP);
	fputs("\"channels\": [", to);
	for (size_t i = 0; i < b->count; i++) {
		fputs(i ? ", " : "", to);
		show_worker(to, &b->workers[i], up);
	}
	fputs("]}, ", to);
}

static uint64_t max_rate(const struct bulk *b)
{
	uint64_t found = 0;

	for (size_t i = 0; i < b->count; i++)
		found = session_lower_rate(
			found, b->workers[i].link.limits.bytes_per_second);
	return found;
}

void bulk_report(FILE *to, const struct bulk *b)
{
	static const char *const directions[] = { "up", "down", "both" };
	const struct options *o = b->options;

	fputs("{", to);
	text(to, "command", "bulk");
	text(to, "protocol", o->protocol == PROTOCOL_UDP ? "udp" : "tcp");
	text(to, "direction", directions[o->direction]);
	number(to, "channels", o->channels);
	number(to, "size_bytes", o->unit_bytes);
	number(to, "bytes", o->volume_bytes);
	number(to, "duration_ns", o->duration_ns);
	number(to, "rate_bps", o->rate_bps);
	number(to, "receive_buffer_bytes", o->receive_buffer_bytes);
	truth(to, "spin", o->spin);
	truth(to, "stopped", b->stopped);
	number(to, "max_rate_bytes", max_rate(b));
	show_direction(to, b, true);
	show_direction(to, b, false);
	report_common(to, o, o->address, o->port);
	fputs("}\n", to);
}
