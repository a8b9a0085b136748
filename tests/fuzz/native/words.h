/* words.h - an input as a command line: each line of it is a word. */
#ifndef FUZZ_WORDS_H
#define FUZZ_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "failure.h"

enum { WORDS_MAX = 64 };

struct words {
	int count;
	char *words[WORDS_MAX + 2]; /* as argv: the last is NULL */
	char *text; /* what they point into */
};

/* Begins with the program's own name. What args.c keeps for as long as the
 * process lives is given back by words_close(). */
void words_open(struct words *words, const uint8_t *input, size_t size);
void words_close(struct words *words);

/* What the user is told: one line that a terminal shows as it is. */
void words_must_be_a_line(const struct failure *failure);

void *words_calloc(size_t count, size_t size);
void words_free(void *memory);

#endif
