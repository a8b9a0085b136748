/* load_options.c - any command line of latprof-load. */
#include "flags.h"
#include "words.h"

/* What the rest of the program relies on. */
static void check(const struct options *o)
{
	uint64_t most = MESSAGE_BYTES_MAX;

	if (o->protocol == PROTOCOL_UDP)
		most = DATAGRAM_BYTES_MAX;
	else if (o->wire == WIRE_CLEAR)
		most = CLEAR_BYTES_MAX;
	MUST(o->address && o->port <= 65535 && o->cpu >= -1);
	MUST(!o->reply_bytes ||
	     (o->reply_bytes >= HEADER_BYTES && o->reply_bytes <= most));
	if (o->command != COMMAND_PINGPONG) {
		MUST(o->workloads && o->max_sessions && o->idle_ns);
		MUST(o->max_message_bytes >= HEADER_BYTES &&
		     o->max_message_bytes <= MESSAGE_BYTES_MAX);
		return;
	}
	MUST(o->sizes.count && (!o->rounds != !o->duration_ns));
	MUST(o->peers.count && (o->interval_ns || o->peers.count == 1));
	for (size_t i = 0; i < o->peers.count; i++)
		MUST(*o->peers.values[i].address && o->peers.values[i].port &&
		     o->peers.values[i].port <= 65535);
	MUST(!o->heartbeat_interval_ns == !o->heartbeat_bytes);
	MUST(o->heartbeat_bytes <= most);
	MUST(!o->heartbeat_interval_ns || o->interval_ns);
	for (size_t i = 0; i < o->sizes.count; i++)
		MUST(o->sizes.values[i] >= HEADER_BYTES &&
		     o->sizes.values[i] <= most);
}

static int read_words(int argc, char **argv, struct failure *failure)
{
	struct options options;
	int result = flags_read(argc, argv, &options, failure);

	if (!result)
		check(&options);
	return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	words_try(input, size, read_words);
	return 0;
}
