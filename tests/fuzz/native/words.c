/* words.c - an input as a command line, and what its reader keeps. */
#define FUZZ_WORLD
#include "world.h"

#include <getopt.h>
#include <string.h>

#include "words.h"

enum { KEPT_MAX = 4 * WORDS_MAX };

struct words {
	int count;
	char *words[WORDS_MAX + 2]; /* as argv: the last is NULL */
	char *text; /* what they point into */
};

static void *kept[KEPT_MAX];

void *words_calloc(size_t count, size_t size)
{
	for (size_t i = 0; i < KEPT_MAX; i++)
		if (!kept[i])
			return kept[i] = calloc(count, size);
	abort();
}

void words_free(void *memory)
{
	for (size_t i = 0; i < KEPT_MAX; i++)
		if (kept[i] == memory)
			kept[i] = NULL;
	free(memory);
}

static void words_open(struct words *words, const uint8_t *input, size_t size)
{
	static char program[] = "program";

	*words = (struct words){ .count = 1, .words = { program } };
	words->text = calloc(size + 1, 1);
	memcpy(words->text, input, size);
	for (char *at = words->text, *end;
	     at < words->text + size && words->count <= WORDS_MAX;
	     at = end + 1) {
		end = at + strcspn(at, "\n");
		*end = '\0';
		words->words[words->count++] = at;
	}
	/* An input may have left it within a word: begin anew, as glibc has it,
	 * and leave optind at 1, as it is in a new process. */
	optind = 0;
	getopt(1, words->words, "+");
}

static void words_close(struct words *words)
{
	for (size_t i = 0; i < KEPT_MAX; i++)
		words_free(kept[i]);
	free(words->text);
}

static void must_be_a_line(const struct failure *failure)
{
	size_t length = strnlen(failure->text, sizeof(failure->text));

	MUST(length && length < sizeof(failure->text));
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)failure->text[i];

		MUST(c >= ' ' && c != 0x7f);
	}
}

void words_try(const uint8_t *input, size_t size, words_reader *read)
{
	struct failure failure = { 0 };
	struct words words;

	words_open(&words, input, size);
	if (read(words.count, words.words, &failure) < 0)
		must_be_a_line(&failure);
	words_close(&words);
}
