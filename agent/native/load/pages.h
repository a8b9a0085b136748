/* pages.h - memory that the kernel copies from and to at full speed. */
#ifndef LATPROF_LOAD_PAGES_H
#define LATPROF_LOAD_PAGES_H

#include <stdlib.h>

enum { PAGE_BYTES = 4096 };

/* At least `bytes` from the beginning of a page; free() releases it. What
 * malloc() gives lies 16 bytes off a cache line, and copying a long message
 * to there takes longer. NULL when out of memory. */
static inline void *pages_alloc(size_t bytes)
{
	return aligned_alloc(PAGE_BYTES, (bytes + PAGE_BYTES - 1) / PAGE_BYTES *
						 PAGE_BYTES);
}

#endif
