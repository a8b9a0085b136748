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

static int read_words(int argc, char **argv, struct failure *failure)
{
	struct options options;
	int result = options_read(argc, argv, &options, failure);

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
