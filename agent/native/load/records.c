/* records.c - one record per message, and the file they go to. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "records.h"

/* Half a second of the fastest ping-pong, 8 MiB. */
enum { RECORDS_KEPT_MAX = 65536 };

#define RECORD_NAME(name) " " #name
static const char field_names[] = RECORD_FIELDS(RECORD_NAME) "\n";

static int fail_writing(const struct records *r, int error,
			struct failure *failure)
{
	return fail(failure, error,
		    "cannot write records to %s: %s; give --output a file "
		    "that can be written, with room for 128 bytes a message",
		    r->path, strerror(error));
}

static int write_all(const struct records *r, const void *bytes, size_t size,
		     struct failure *failure)
{
	for (size_t done = 0; done < size;) {
		ssize_t n =
			write(r->fd, (const char *)bytes + done, size - done);

		if (n < 0 && errno != EINTR)
			return fail_writing(r, errno, failure);
		if (n > 0)
			done += (size_t)n;
	}
	return 0;
}

int records_open(struct records *r, const char *path, struct failure *failure)
{
	*r = (struct records){ .fd = -1, .path = path };
	if (!path)
		return 0;
	/* Populated now, so that no page fault falls between two messages. */
	r->kept = mmap(NULL, RECORDS_KEPT_MAX * sizeof(*r->kept),
		       PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (r->kept == MAP_FAILED)
		return fail(failure, errno,
			    "cannot keep records: %s; free "
			    "8 MB of memory",
			    strerror(errno));
	r->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (r->fd < 0)
		return fail_writing(r, errno, failure);
	return write_all(r, field_names + 1, sizeof(field_names) - 2, failure);
}

int records_close(struct records *r, struct failure *failure)
{
	int error;

	if (r->fd < 0)
		return 0;
	error = records_write(r, RECORDS_KEPT_MAX, failure);
	if (close(r->fd) && !error)
		error = fail_writing(r, errno, failure);
	r->fd = -1;
	munmap(r->kept, RECORDS_KEPT_MAX * sizeof(*r->kept));
	return error;
}

size_t records_kept(const struct records *r)
{
	return r->end - r->first;
}

int records_write(struct records *r, size_t limit, struct failure *failure)
{
	size_t count = records_kept(r) < limit ? records_kept(r) : limit;
	int error;

	if (!count)
		return 0;
	error = write_all(r, r->kept + r->first, count * sizeof(*r->kept),
			  failure);
	r->first += count;
	if (r->first == r->end)
		r->first = r->end = 0;
	return error;
}

#define RECORD_LITTLE_ENDIAN(name) to->name = htole64(from->name);
static void encode(struct record *to, const struct record *from)
{
	RECORD_FIELDS(RECORD_LITTLE_ENDIAN)
}

int records_add(struct records *r, const struct record *record,
		struct failure *failure)
{
	if (r->fd < 0)
		return 0;
	encode(&r->kept[r->end++], record);
	if (r->end < RECORDS_KEPT_MAX) {
		/* Else the next store's cache miss falls into the next
		 * message's send. */
		__builtin_prefetch(&r->kept[r->end], 1);
		__builtin_prefetch(&r->kept[r->end].train_gap_ns, 1);
		return 0;
	}
	return records_write(r, RECORDS_KEPT_MAX, failure);
}
