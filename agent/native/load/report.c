/* report.c - the line at the beginning, the summary at the end. */
#include <inttypes.h>
#include <sys/resource.h>

#include "clock.h"
#include "json.h"
#include "report.h"

static uint64_t timeval_ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_usec * 1000;
}

void report_common(FILE *to, const struct options *o, const char *address,
		   uint64_t port)
{
	struct rusage used = { 0 };

	getrusage(RUSAGE_SELF, &used);
	text(to, "address", address);
	number(to, "port", port);
	text(to, "wire", o->wire == WIRE_CLEAR ? "clear" : "latprof");
	truth(to, "nagle", o->nagle);
	number(to, "user_ns", timeval_ns(used.ru_utime));
	number(to, "system_ns", timeval_ns(used.ru_stime));
	fprintf(to, "\"cpu\": %" PRId64, o->cpu);
}

static void show_counts(FILE *to, const struct counts *c)
{
	number(to, "sent", c->sent);
	number(to, "received", c->received);
	number(to, "lost", c->lost);
	number(to, "unanswered", c->unanswered);
	number(to, "corrupt", c->corrupt);
	fprintf(to, "\"warmup\": %" PRIu64, c->warmup);
}

static void show_totals(FILE *to, const struct totals *t)
{
	show_counts(to, &t->messages);
	fputs(", ", to);
	number(to, "late", t->late);
	number(to, "duplicates", t->duplicates);
	number(to, "strays", t->strays);
	number(to, "unsent", t->unsent);
	fputs("\"heartbeats\": {", to);
	show_counts(to, &t->heartbeats);
	fputs("}", to);
}

static void show_peers(FILE *to, const struct options *o,
		       const struct pingpong_result *result)
{
	fputs("\"peers\": [", to);
	for (size_t i = 0; i < o->peers.count; i++) {
		const struct arg_endpoint *peer = &o->peers.values[i];
		const struct peer_result *of = &result->peers[i];

		fputs(i ? ", {" : "{", to);
		text(to, "address", peer->address);
		number(to, "port", peer->port);
		text(to, "local_address", of->local.address);
		number(to, "local_port", of->local.port);
		show_totals(to, &of->totals);
		fputs("}", to);
	}
	fputs("], ", to);
}

static void show_plan(FILE *to, const struct options *o)
{
	text(to, "protocol", o->protocol == PROTOCOL_TCP ? "tcp" : "udp");
	number(to, "reply_bytes", o->reply_bytes);
	number(to, "think_ns", o->think_ns);
	number(to, "busy_ns", o->busy_ns);
	text(to, "loop", o->interval_ns ? "open" : "closed");
	number(to, "interval_ns", o->interval_ns);
	truth(to, "poisson", o->poisson);
	truth(to, "spin", o->spin);
	truth(to, "verify", !o->no_verify);
	number(to, "rounds", o->rounds);
	number(to, "duration_ns", o->duration_ns);
	number(to, "warmup_rounds", o->warmup_rounds);
	number(to, "seed", o->seed);
	number(to, "timeout_ns", o->timeout_ns);
	number(to, "max_acks", o->max_acks);
	number(to, "heartbeat_interval_ns", o->heartbeat_interval_ns);
	number(to, "heartbeat_bytes", o->heartbeat_bytes);
	number(to, "train_messages", o->train_messages);
	number(to, "train_gap_ns", o->train_gap_ns);
	fputs("\"sizes\": [", to);
	for (size_t i = 0; i < o->sizes.count; i++)
		fprintf(to, "%s%" PRIu64, i ? ", " : "", o->sizes.values[i]);
	fputs("], ", to);
}

void report_pingpong(FILE *to, const struct options *options,
		     const struct pingpong_result *result)
{
	const struct endpoint_facts *facts = &result->facts;

	fputs("{", to);
	text(to, "command", "pingpong");
	show_totals(to, &result->totals);
	fputs(", ", to);
	show_peers(to, options, result);
	number(to, "elapsed_ns", result->elapsed_ns);
	number(to, "max_rate_bytes", result->max_rate);
	truth(to, "stopped", result->stopped);
	show_plan(to, options);
	text(to, "congestion", facts->congestion);
	number(to, "mss_bytes", (uint64_t)facts->mss_bytes);
	number(to, "path_mtu_bytes", (uint64_t)facts->path_mtu_bytes);
	number(to, "receive_buffer_bytes",
	       (uint64_t)facts->receive_buffer_bytes);
	report_common(to, options, options->peers.values->address,
		      options->peers.values->port);
	fputs("}\n", to);
}

static void show_workloads(FILE *to, uint32_t served)
{
	const char *comma = "";

	fputs("\"workloads\": [", to);
	for (int i = WORKLOAD_PINGPONG; i < WORKLOAD_END; i++)
		if (served & workload_bit(i)) {
			fprintf(to, "%s\"%s\"", comma, workload_names[i]);
			comma = ", ";
		}
	fputs("], ", to);
}

void report_ready(FILE *to, const struct echo *echo)
{
	fprintf(to, "ready %u", echo->port);
	for (int i = WORKLOAD_PINGPONG; i < WORKLOAD_END; i++)
		if (echo->options->workloads & workload_bit(i))
			fprintf(to, " %s", workload_names[i]);
	fputc('\n', to);
}

static void show_refused(FILE *to, const uint64_t refused[STATUS_COUNT])
{
	static const char *const names[STATUS_COUNT] = {
		[STATUS_VERSION] = "refused_version",
		[STATUS_WORKLOAD] = "refused_workload",
		[STATUS_MESSAGE] = "refused_message_bytes",
		[STATUS_DURATION] = "refused_duration",
		[STATUS_BUSY] = "refused_busy",
		[STATUS_SECRET] = "refused_secret",
		[STATUS_TERMS] = "refused_terms",
		[STATUS_MEMORY] = "refused_memory",
		[STATUS_HOST_SESSIONS] = "refused_host_sessions",
		[STATUS_HOST_MEMORY] = "refused_host_memory",
		[STATUS_CPU] = "refused_cpu",
		[STATUS_HOST_CPU] = "refused_host_cpu",
	};

	for (int i = STATUS_OK + 1; i < STATUS_COUNT; i++)
		if (names[i])
			number(to, names[i], refused[i]);
}

void report_echo(FILE *to, const struct echo *echo)
{
	struct echo_counters c = echo_counters(echo);

	fputs("{", to);
	text(to, "command", "echo");
	show_workloads(to, echo->options->workloads);
	truth(to, "secret", echo->options->secret.size > 0);
	number(to, "connections", c.connections);
	number(to, "sessions", c.sessions);
	number(to, "messages", c.messages);
	number(to, "bytes", c.bytes);
	number(to, "corrupt", c.corrupt);
	number(to, "rejected", c.rejected);
	number(to, "unsent", c.unsent);
	show_refused(to, c.refused);
	number(to, "strangers", c.strangers);
	number(to, "unfinished", c.unfinished);
	number(to, "crowded_out", c.crowded_out);
	number(to, "ended_idle", c.ended[STATUS_IDLE]);
	number(to, "ended_overlong", c.ended[STATUS_OVERLONG]);
	number(to, "ended_cpu", c.ended[STATUS_CPU]);
	number(to, "ended_host_cpu", c.ended[STATUS_HOST_CPU]);
	number(to, "stray_datagrams", c.stray_datagrams);
	number(to, "rate_waits", echo->rate.waits);
	report_common(to, echo->options, echo->options->address, echo->port);
	fputs("}\n", to);
}
