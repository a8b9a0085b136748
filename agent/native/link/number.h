/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_NUMBER_H
#define LINK_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Packet numbers in ascending order; `next` is the first not yet passed. */
struct number_list {
	uint64_t *numbers;
	size_t count;
	size_t next;
};

/* Parse a decimal number, all of the text. -EINVAL or -ERANGE. */
int number_parse(const char *text, uint64_t *ret);

/* Parse a probability in [0, 1], all of the text. -EINVAL or -ERANGE. */
int probability_parse(const char *text, double *ret);

/*
 * Parse "3,1,7" (each at least 1) into a list of the caller's, which replaces
 * what it held and is released by number_list_deinit(). -EINVAL, -ERANGE or
 * -ENOMEM.
 */
int number_list_parse(const char *text, struct number_list *ret);

/* Is `number` listed? Numbers asked for must not decrease. */
bool number_list_take(struct number_list *list, uint64_t number);

void number_list_deinit(struct number_list *list);

#endif
