#define _GNU_SOURCE
#include "log.h"

#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one message: the verifier's log has up to 16 MB, and says at its end what
 * it refuses. */
#define MESSAGE_BYTES 4096

static char kept[3 * MESSAGE_BYTES];

static const char *end_of(const char *text, size_t length)
{
	const char *line;

	if (length < MESSAGE_BYTES)
		return text;
	text += length - MESSAGE_BYTES;
	line = strchr(text, '\n');
	return line && line[1] ? line + 1 : text;
}

static int keep(enum libbpf_print_level level, const char *format,
		va_list arguments)
{
	size_t used = strlen(kept);
	char *text;
	int length;

	if (level != LIBBPF_WARN)
		return 0;
	length = vasprintf(&text, format, arguments);
	if (length < 0)
		return 0;
	snprintf(kept + used, sizeof(kept) - used, "%s", end_of(text, length));
	free(text);
	return 0;
}

void log_start(void)
{
	kept[0] = '\0';
	libbpf_set_print(keep);
}

const char *log_text(void)
{
	return kept;
}
