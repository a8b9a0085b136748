/* process.c - where this process runs, and when it must end. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "process.h"

static int enter_netns(const char *name, struct failure *failure)
{
	char path[PATH_MAX];
	int fd, error = 0;

	snprintf(path, sizeof(path), "%s%s",
		 strchr(name, '/') ? "" : "/run/netns/", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		error = fail(failure, errno,
			     "cannot enter network namespace "
			     "%s: %s; give --netns a name that `ip netns` "
			     "shows or a path, and run as root",
			     name, strerror(errno));
	if (fd >= 0)
		close(fd);
	return error;
}

static int take_cpu(int cpu, struct failure *failure)
{
	size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
	cpu_set_t *set = CPU_ALLOC(cpu + 1);
	int error = 0;

	if (!set)
		return fail(failure, ENOMEM,
			    "cannot stay on CPU %d: out of "
			    "memory; free some",
			    cpu);
	CPU_ZERO_S(bytes, set);
	CPU_SET_S(cpu, bytes, set);
	if (sched_setaffinity(0, bytes, set))
		error = fail(failure, errno,
			     "cannot stay on CPU %d: %s; give "
			     "--cpu one that `nproc` counts, from 0",
			     cpu, strerror(errno));
	CPU_FREE(set);
	return error;
}

/* The parent may have died before prctl(): then nobody would tell us. */
static void follow_parent(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		raise(SIGTERM);
}

int process_place(const struct options *options, struct failure *failure)
{
	int error = 0;

	if (options->die_with_parent)
		follow_parent(getppid());
	prctl(PR_SET_TIMERSLACK, 1);
	signal(SIGPIPE, SIG_IGN);
	if (options->netns)
		error = enter_netns(options->netns, failure);
	if (!error && options->cpu >= 0)
		error = take_cpu((int)options->cpu, failure);
	return error;
}
