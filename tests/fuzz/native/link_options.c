/* link_options.c - any command line of latprof-link. */
#include <string.h>

#include "options.h"
#include "words.h"

static void check_probability(double p)
{
	MUST(p >= 0 && p <= 1);
}

static void check_ends(const struct end_request ends[DIRECTIONS])
{
	for (int i = 0; i < DIRECTIONS; i++) {
		MUST(*ends[i].netns && *ends[i].name);
		MUST(strlen(ends[i].name) < 16);
	}
}

/* What the rest of the program relies on. */
static void check(const struct options *o)
{
	MUST(o->mtu_bytes >= 68 && o->mtu_bytes <= 65535);
	MUST(o->links >= 1 && o->links <= LINKS_MAX);
	for (size_t i = 0; i < o->links; i++)
		check_ends(o->ends[i]);
	for (int i = 0; i < DIRECTIONS; i++) {
		const struct path_options *path = &o->path[i].path;

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
