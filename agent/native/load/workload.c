/* workload.c - what a session can be about. */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "workload.h"

const char *const workload_names[WORKLOAD_END] = {
	[WORKLOAD_PINGPONG] = "pingpong",
	[WORKLOAD_BULK] = "bulk",
	[WORKLOAD_RECORDING] = "recording",
};

static bool is_name(const char *name, const char *text, size_t length)
{
	return name && strlen(name) == length && !strncmp(name, text, length);
}

int workloads_read(const char *text, uint32_t *ret)
{
	size_t length;

	*ret = 0;
	do {
		int found = 0;

		length = strcspn(text, ",");
		while (found < WORKLOAD_END &&
		       !is_name(workload_names[found], text, length))
			found++;
		if (found == WORKLOAD_END)
			return -EINVAL;
		*ret |= workload_bit(found);
		text += length + 1;
	} while (text[-1]);
	return 0;
}
