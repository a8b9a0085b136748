// SPDX-License-Identifier: GPL-2.0-only
/*
 * number.c - numbers, probabilities and lists of packet numbers as text.
 */
#include "number.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int number_parse(const char *text, uint64_t *ret)
{
	unsigned long long value;
	char *end;

	/* strtoull() takes a sign and wraps it round. */
	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end)
		return -EINVAL;
	if (errno)
		return -errno;
	*ret = value;
	return 0;
}

int probability_parse(const char *text, double *ret)
{
	double value;
	char *end;

	errno = 0;
	value = strtod(text, &end);
	if (end == text || *end)
		return -EINVAL;
	if (!(value >= 0 && value <= 1))
		return -ERANGE;
	*ret = value;
	return 0;
}

static int number_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int number_list_fill(char *text, struct number_list *list)
{
	char *item, *rest = text;
	int err;

	while ((item = strsep(&rest, ","))) {
		err = number_parse(item, &list->numbers[list->count]);
		if (err)
			return err;
		if (!list->numbers[list->count])
			return -ERANGE;
		list->count++;
	}
	qsort(list->numbers, list->count, sizeof(*list->numbers),
	      number_compare);
	return 0;
}

int number_list_parse(const char *text, struct number_list *ret)
{
	struct number_list list = { 0 };
	char *copy = strdup(text);
	int err = -ENOMEM;

	/* Every number but the last needs two characters. */
	list.numbers = calloc(strlen(text) / 2 + 1, sizeof(*list.numbers));
	if (copy && list.numbers)
		err = number_list_fill(copy, &list);
	free(copy);
	if (err) {
		number_list_deinit(&list);
		return err;
	}
	number_list_deinit(ret);
	*ret = list;
	return 0;
}

bool number_list_take(struct number_list *list, uint64_t number)
{
	while (list->next < list->count && list->numbers[list->next] < number)
		list->next++;
	return list->next < list->count && list->numbers[list->next] == number;
}

void number_list_deinit(struct number_list *list)
{
	free(list->numbers);
	*list = (struct number_list){ 0 };
}
