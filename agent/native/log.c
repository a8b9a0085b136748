#include "log.h"

#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char kept[4096];

static int keep(enum libbpf_print_level level, const char *format,
		va_list arguments)
{
	size_t used = strlen(kept);

	if (level == LIBBPF_WARN && used < sizeof(kept) - 1)
		vsnprintf(kept + used, sizeof(kept) - used, format, arguments);
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
