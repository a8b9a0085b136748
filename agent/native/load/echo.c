/*
 * echo.c - the responder as a program: its socket, its threads, its end.
 *
 * The main thread waits for connections and for the end; each connection, and
 * the UDP socket, has a thread that blocks in its receive call, as a bare loop
 * would. Each of them takes a file table of its own: a table that is shared
 * makes the kernel count references in every call.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "echo.h"
#include "endpoint.h"

enum { STACK_BYTES = 256 << 10, PAUSE_MS = 10 };

/* What a new thread is told; valid until it posts `taken`. */
struct hand_over {
	struct echo *echo;
	int fd;
	bool own_table; /* the thread's answer: it has its own copy of fd */
	sem_t taken;
};

static void *serve(void *argument)
{
	struct hand_over *given = argument;
	struct echo *e = given->echo;
	int fd = given->fd;

	given->own_table = !unshare(CLONE_FILES);
	sem_post(&given->taken);
	if (e->options->protocol == PROTOCOL_UDP) {
		int error =
			responder_serve_datagrams(e->options, fd, &e->counters);

		/* The main thread learns of it as of any other end. */
		if (error)
			kill(getpid(), SIGTERM);
		return NULL;
	}
	responder_serve_stream(e->options, fd, &e->counters);
	close(fd);
	return NULL;
}

/* Give fd to a thread. 0 or -errno; fd is then still the caller's. */
static int start_thread(struct echo *e, int fd)
{
	struct hand_over given = { .echo = e, .fd = fd };
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	sem_init(&given.taken, 0, 0);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	error = pthread_create(&thread, &attributes, serve, &given);
	pthread_attr_destroy(&attributes);
	while (!error && sem_wait(&given.taken))
		;
	sem_destroy(&given.taken);
	if (!error && given.own_table && e->options->protocol == PROTOCOL_TCP)
		close(fd);
	return -error;
}

static void accept_connection(struct echo *e)
{
	int fd = accept4(e->fd, NULL, NULL, SOCK_CLOEXEC);
	int nodelay = !e->options->nagle;

	if (fd < 0) {
		/* Out of descriptors, or the client has gone: not a reason to
		 * end, but one not to spin. */
		poll(NULL, 0, PAUSE_MS);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof(nodelay));
	if (start_thread(e, fd)) {
		close(fd);
		e->counters.rejected++;
		return;
	}
	e->counters.connections++;
}

static int hold_signals(struct echo *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	e->signals = signalfd(-1, &set, SFD_CLOEXEC);
	return e->signals < 0 ? -errno : 0;
}

int echo_open(struct echo *e, const struct options *options,
	      struct failure *failure)
{
	int error;

	*e = (struct echo){ .options = options, .fd = -1 };
	if (hold_signals(e))
		return fail(failure, errno,
			    "cannot wait for signals: %s; "
			    "close files or raise `ulimit -n`",
			    strerror(errno));
	error = endpoint_listen(options, &e->fd, &e->port, failure);
	if (error || options->protocol == PROTOCOL_TCP)
		return error;
	error = start_thread(e, e->fd);
	return error ? fail(failure, -error,
			    "cannot start a thread: %s; "
			    "free some memory or raise `ulimit -u`",
			    strerror(-error)) :
		       0;
}

static bool stdin_ended(void)
{
	char ignored[512];

	return read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0;
}

int echo_run(struct echo *e, struct failure *failure)
{
	bool tcp = e->options->protocol == PROTOCOL_TCP;
	struct pollfd events[] = {
		{ .fd = e->signals, .events = POLLIN },
		{ .fd = e->options->until_eof ? STDIN_FILENO : -1,
		  .events = POLLIN },
		{ .fd = tcp ? e->fd : -1, .events = POLLIN },
	};

	for (;;) {
		if (poll(events, 3, -1) < 0 && errno != EINTR)
			return fail(failure, errno,
				    "cannot wait for clients: "
				    "%s; free some memory",
				    strerror(errno));
		if (events[0].revents)
			return 0;
		if (events[1].revents && stdin_ended())
			return 0;
		if (events[2].revents)
			accept_connection(e);
	}
}
