/* failure.c - how a function that must not print says what went wrong. */
#include <stdarg.h>
#include <stdio.h>

#include "failure.h"

/* A name that someone chose must neither break the line nor steer the terminal:
 * ASCII's control characters, and those of C1 as UTF-8 has them. */
static void show_plainly(char *text)
{
	for (unsigned char *at = (unsigned char *)text; *at; at++) {
		if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0)
			at[0] = at[1] = '?';
		if (*at < ' ' || *at == 0x7f)
			*at = '?';
	}
}

int fail(struct failure *ret, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(ret->text, sizeof(ret->text), format, arguments);
	va_end(arguments);
	show_plainly(ret->text);
	return -error;
}
