/*
 * served_file.c - a file system of FUSE with one file, "program", which is a
 * copy of another: served_file FILE MOUNTPOINT. Where it is stopped nothing of
 * it answers.
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int source;

static int tell(const char *path, struct stat *ret, struct fuse_file_info *file)
{
	(void)file;
	if (!strcmp(path, "/")) {
		ret->st_mode = S_IFDIR | 0755;
		return 0;
	}
	if (strcmp(path, "/program"))
		return -ENOENT;
	if (fstat(source, ret))
		return -errno;
	return 0;
}

static int open_it(const char *path, struct fuse_file_info *file)
{
	(void)file;
	return strcmp(path, "/program") ? -ENOENT : 0;
}

static int read_it(const char *path, char *bytes, size_t size, off_t at,
		   struct fuse_file_info *file)
{
	ssize_t done = pread(source, bytes, size, at);

	(void)path, (void)file;
	return done < 0 ? -errno : (int)done;
}

static int flush_it(const char *path, struct fuse_file_info *file)
{
	(void)path, (void)file;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations operations = {
		.getattr = tell,
		.open = open_it,
		.read = read_it,
		.flush = flush_it,
	};
	char *words[] = { argv[0],	 "-f",		 "-s", "-o",
			  "allow_other", argv[argc - 1], NULL };

	if (argc != 3 || (source = open(argv[1], O_RDONLY)) < 0)
		return 2;
	return fuse_main(6, words, &operations, NULL);
}
