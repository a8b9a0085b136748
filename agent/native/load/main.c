/*
 * main.c - latprof-load: sends messages over real sockets and measures them.
 *
 *   latprof-load echo       answers requests
 *   latprof-load pingpong   sends requests, records when each left and when
 *                           its reply was read
 *
 * Only this file prints errors and exits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"
#include "report.h"

enum { EXIT_USAGE = 2 };

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
	struct echo echo;
	int error = echo_open(&echo, options, failure);

	if (error)
		return error;
	printf("ready %u\n", echo.port);
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
	return error ? error : printed;
}

int main(int argc, char **argv)
{
	static struct options options;
	struct failure failure = { 0 };
	int error = flags_read(argc, argv, &options, &failure);

	if (error < 0)
		return complain(&failure, EXIT_USAGE);
	if (error) {
		flags_help(stdout);
		return finish_stdout(&failure) ?
			       complain(&failure, EXIT_FAILURE) :
			       0;
	}
	if (process_place(&options, &failure) ||
	    (options.command == COMMAND_ECHO ?
		     run_echo(&options, &failure) :
		     run_pingpong(&options, &failure)))
		return complain(&failure, EXIT_FAILURE);
	return EXIT_SUCCESS;
}
