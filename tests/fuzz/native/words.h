/* words.h - an input as a command line: each line of it is a word. */
#ifndef FUZZ_WORDS_H
#define FUZZ_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "failure.h"

enum { WORDS_MAX = 64 };

/* Reads a command line: below 0 with a failure where it is refused. */
typedef int words_reader(int argc, char **argv, struct failure *failure);

/* Have it read an input; what the user is told must be one line that a terminal
 * shows as it is. Begins with the program's own name. What args.c keeps for as
 * long as the process lives is given back. */
void words_try(const uint8_t *input, size_t size, words_reader *read);

void *words_calloc(size_t count, size_t size);
void words_free(void *memory);

#endif
