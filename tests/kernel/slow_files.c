/*
 * slow_files.c - a file system of FUSE whose reads are slow:
 * slow_files MILLISECONDS MOUNTPOINT. It has two files of 256 MB: "cached", by
 * the page cache, and "direct", beside it. Ends with its mount, or by SIGTERM.
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long long_ms;

static int is_file(const char *path)
{
	return !strcmp(path, "/cached") || !strcmp(path, "/direct");
}

static int tell(const char *path, struct stat *ret, struct fuse_file_info *file)
{
	(void)file;
	ret->st_nlink = 1;
	if (!strcmp(path, "/")) {
		ret->st_mode = S_IFDIR | 0755;
	} else if (is_file(path)) {
		ret->st_mode = S_IFREG | 0444;
		ret->st_size = 256 << 20;
	} else {
		return -ENOENT;
	}
	return 0;
}

static int open_one(const char *path, struct fuse_file_info *file)
{
	file->direct_io = !strcmp(path, "/direct");
	return is_file(path) ? 0 : -ENOENT;
}

static int read_slowly(const char *path, char *bytes, size_t size, off_t at,
		       struct fuse_file_info *file)
{
	struct timespec t = { long_ms / 1000, long_ms % 1000 * 1000000 };

	(void)path, (void)at, (void)file;
	nanosleep(&t, NULL);
	memset(bytes, 'x', size);
	return (int)size;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations operations = {
		.getattr = tell,
		.open = open_one,
		.read = read_slowly,
	};
	char *words[] = { argv[0], "-f", "-s", argv[argc - 1], NULL };

	if (argc != 3)
		return 2;
	long_ms = atol(argv[1]);
	return fuse_main(4, words, &operations, NULL);
}
