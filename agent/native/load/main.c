/*
 * main.c - latprof-load: sends messages over real sockets and measures them.
 *
 *   latprof-load echo       answers requests
 *   latprof-load pingpong   sends requests, records when each left and when
 *                           its reply was read
 *   latprof-load bulk       sends or receives a mass of data
 *   latprof-load fetch      asks for what a responder has recorded
 *
 * Only this file prints errors and exits.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bulk.h"
#include "bulk_report.h"
#include "recording.h"
#include "report.h"
#include "secret.h"
#include "streams.h"

enum { EXIT_USAGE = 2 };

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

/* The parent may have died before prctl(): then no signal would come. */
static void follow_parent(pid_t parent)
{
	/* Who is stopped (SIGSTOP) would not hear another one. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		raise(SIGTERM);
}

/* Enter the network namespace, take the CPU, follow the parent's death, wake
 * from timers without slack. 0 or -errno with a line for the user. */
static int process_place(const struct options *options, struct failure *failure)
{
	int error = 0;

	if (options->die_with_parent)
		follow_parent(getppid());
	prctl(PR_SET_TIMERSLACK, 1);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a write that is too much says so itself */
	if (options->netns)
		error = enter_netns(options->netns, failure);
	if (!error && options->cpu >= 0)
		error = take_cpu((int)options->cpu, failure);
	return error;
}

static int complain(const struct failure *failure, int status)
{
	fprintf(stderr, "latprof-load: %s\n", failure->text);
	return status;
}

static int finish_stdout(struct failure *failure)
{
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	return fail(failure, errno,
		    "cannot write to stdout: %s; give it "
		    "somewhere to go",
		    strerror(errno));
}

static int run_echo(const struct options *options, struct failure *failure)
{
	/* Its threads go on until the process is gone. */
	static struct echo echo;
	int error = echo_open(&echo, options, failure);

	if (error)
		return error;
	report_ready(stdout, &echo);
	error = finish_stdout(failure);
	if (!error)
		error = echo_run(&echo, failure);
	if (error)
		return error;
	report_echo(stdout, &echo);
	return finish_stdout(failure);
}

static int run_pingpong(const struct options *options, struct failure *failure)
{
	struct pingpong_result result;
	struct failure ignored;
	int error = pingpong_run(options, &result, failure), printed = 0;

	if (result.ran) {
		report_pingpong(stdout, options, &result);
		printed = finish_stdout(error ? &ignored : failure);
	}
	free(result.peers);
	return error ? error : printed;
}

static int run_bulk(const struct options *options, struct failure *failure)
{
	static struct bulk bulk;
	struct failure ignored;
	int error = bulk_run(&bulk, options, failure), printed = 0;

	if (bulk.ran) {
		bulk_report(stdout, &bulk);
		printed = finish_stdout(error ? &ignored : failure);
	}
	bulk_close(&bulk);
	return error ? error : printed;
}

static int run_command(const struct options *options, struct failure *failure)
{
	switch (options->command) {
	case COMMAND_ECHO:
		return run_echo(options, failure);
	case COMMAND_BULK:
		return run_bulk(options, failure);
	case COMMAND_FETCH:
		return recording_fetch(options, failure);
	default:
		return run_pingpong(options, failure);
	}
}

int main(int argc, char **argv)
{
	static struct options options;
	struct failure failure = { 0 };
	int error;

	streams_open();
	error = flags_read(argc, argv, &options, &failure);
	if (error < 0)
		return complain(&failure, EXIT_USAGE);
	if (error) {
		flags_help(stdout);
		return finish_stdout(&failure) ?
			       complain(&failure, EXIT_FAILURE) :
			       0;
	}
	if (secret_read(options.secret_file, &options.secret, &failure))
		return complain(&failure, EXIT_USAGE);
	if (options.check)
		return EXIT_SUCCESS;
	if (process_place(&options, &failure) ||
	    run_command(&options, &failure))
		return complain(&failure, EXIT_FAILURE);
	return EXIT_SUCCESS;
}
