/* failure.c - how a function that must not print says what went wrong. */
#include <stdarg.h>
#include <stdio.h>

#include "failure.h"

int fail(struct failure *ret, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(ret->text, sizeof(ret->text), format, arguments);
	va_end(arguments);
	return -error;
}
