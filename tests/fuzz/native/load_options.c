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
	if (o->command != COMMAND_PINGPONG)
		return;
	MUST(o->port && o->sizes.count && (!o->rounds != !o->duration_ns));
	for (size_t i = 0; i < o->sizes.count; i++)
		MUST(o->sizes.values[i] >= HEADER_BYTES &&
		     o->sizes.values[i] <= most);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct failure failure = { 0 };
	struct options options;
	struct words words;
	int result;

	words_open(&words, input, size);
	result = flags_read(words.count, words.words, &options, &failure);
	if (result < 0)
		words_must_be_a_line(&failure);
	else if (!result)
		check(&options);
	words_close(&words);
	return 0;
}
