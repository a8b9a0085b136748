/* kernel_types.c - any name, asked of this kernel's types. */
#include "kernel_types.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	static const char *const kinds[] = { "tracepoint", "function",
					     "struct" };
	char name[256] = "";
	int arguments, found;
	const char *kind;

	world_begin(input, size);
	kind = kinds[world_number(2)];
	arguments = (int)world_number(8);
	world_bytes(name, sizeof(name) - 1);
	found = kernel_types_have(kind, name, arguments);
	MUST(found <= 1);
	MUST(found != 1 || strlen(name) < 128);
	return 0;
}
