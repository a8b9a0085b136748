/* link_options.c - any command line of latprof-link. */
#include <string.h>

#include "options.h"
#include "words.h"

static void check_probability(double p)
{
	MUST(p >= 0 && p <= 1);
}

/* What the rest of the program relies on. */
static void check(const struct options *o)
{
	MUST(o->mtu_bytes >= 68 && o->mtu_bytes <= 65535);
	for (int i = 0; i < DIRECTIONS; i++) {
		const struct path_options *path = &o->path[i].path;

		MUST(o->netns[i] && *o->netns[i] && strlen(o->name[i]) < 16);
		MUST(path->queue_bytes);
		check_probability(path->loss.good_to_bad);
		check_probability(path->loss.bad_to_good);
		check_probability(path->loss.loss_in_good);
		check_probability(path->loss.loss_in_bad);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct failure failure = { 0 };
	struct options options;
	struct words words;
	int result;

	words_open(&words, input, size);
	result = options_read(words.count, words.words, &options, &failure);
	if (result < 0)
		words_must_be_a_line(&failure);
	else if (!result)
		check(&options);
	words_close(&words);
	return 0;
}
