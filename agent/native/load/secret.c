/* secret.c - what both ends of a session must know. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "secret.h"

static int read_file(const char *path, struct secret *ret,
		     struct failure *failure)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint8_t bytes[SECRET_BYTES_MAX + 2]; /* a newline, and one too many */
	struct stat facts;
	ssize_t n = -1;

	if (fd >= 0 && !fstat(fd, &facts))
		n = read(fd, bytes, sizeof(bytes));
	if (n < 0)
		fail(failure, errno,
		     "cannot read the secret in %s: %s; give --secret-file a "
		     "file that you may read",
		     path, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return -EINVAL;
	if (!S_ISREG(facts.st_mode) || facts.st_mode & (S_IRWXG | S_IRWXO))
		return fail(failure, EINVAL,
			    "%s holds no secret: others may read it, or it is "
			    "no file; `chmod 600` it",
			    path);
	if (n && bytes[n - 1] == '\n')
		n--;
	if (n < SECRET_BYTES_MIN || n > SECRET_BYTES_MAX)
		return fail(failure, EINVAL,
			    "the secret in %s must have %d to %d bytes; make "
			    "one by `openssl rand -hex 32`",
			    path, SECRET_BYTES_MIN, SECRET_BYTES_MAX);
	memcpy(ret->bytes, bytes, (size_t)n);
	ret->size = (size_t)n;
	explicit_bzero(bytes, sizeof(bytes));
	return 0;
}

int secret_read(const char *path, struct secret *ret, struct failure *failure)
{
	ret->size = 0;
	return path ? read_file(path, ret, failure) : 0;
}
