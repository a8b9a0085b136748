/* json.h - members of a JSON object, each with a comma behind it. */
#ifndef LATPROF_LOAD_JSON_H
#define LATPROF_LOAD_JSON_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

static inline void number(FILE *to, const char *name, uint64_t value)
{
	fprintf(to, "\"%s\": %" PRIu64 ", ", name, value);
}

static inline void text(FILE *to, const char *name, const char *value)
{
	fprintf(to, "\"%s\": \"", name);
	for (; *value; value++)
		if (*value == '"' || *value == '\\')
			fprintf(to, "\\%c", *value);
		else if ((unsigned char)*value < ' ')
			fprintf(to, "\\u%04x", (unsigned int)*value);
		else
			fputc(*value, to);
	fputs("\", ", to);
}

static inline void truth(FILE *to, const char *name, bool value)
{
	fprintf(to, "\"%s\": %s, ", name, value ? "true" : "false");
}

#endif
