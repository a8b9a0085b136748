/* secret.h - what both ends of a session must know. */
#ifndef LATPROF_LOAD_SECRET_H
#define LATPROF_LOAD_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include "failure.h"

enum { SECRET_BYTES_MIN = 16, SECRET_BYTES_MAX = 1024 };

struct secret {
	uint8_t bytes[SECRET_BYTES_MAX];
	size_t size; /* 0: none is needed */
};

/* Read the secret: a file of 16 to 1024 bytes that nobody else may read; the
 * newline at its end is not part of it. Path NULL: none. 0, or -EINVAL with a
 * line. */
int secret_read(const char *path, struct secret *ret, struct failure *failure);

#endif
