/*
 * many_sockets.c - more flows at once than a test in Python can make.
 *
 *   many_sockets udp PROCESSES SOCKETS BUSY   4 datagrams on each, as fast as
 *                                             they go, to a socket of its own
 *   many_sockets tcp PROCESSES SOCKETS BUSY   as many connections one after
 *                                             the other: request, reply, end
 *
 * BUSY further processes take what CPU time they get until the others end.
 */
#include <arpa/inet.h>
#include <err.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DATAGRAMS = 4, SIZE = 40, PROCESSES_MAX = 64 };

static const struct linger reset = { .l_onoff = 1 };

/* A socket on a free port of the loopback, and its address. */
static int bound_socket(int type, struct sockaddr_in *ret)
{
	socklen_t length = sizeof(*ret);
	int fd = socket(AF_INET, type, 0);

	*ret = (struct sockaddr_in){ .sin_family = AF_INET };
	ret->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)ret, length) ||
	    getsockname(fd, (struct sockaddr *)ret, &length))
		err(1, "cannot bind a socket");
	return fd;
}

static int connected_socket(int type, const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, type, 0);

	if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof(*to)))
		err(1, "cannot connect a socket");
	return fd;
}

static void give(int fd)
{
	const char bytes[SIZE] = "";

	if (send(fd, bytes, SIZE, 0) != SIZE)
		err(1, "cannot send");
}

static void take(int fd)
{
	char bytes[SIZE];

	if (recv(fd, bytes, SIZE, MSG_WAITALL) != SIZE)
		err(1, "cannot receive");
}

static void send_datagrams(int sockets)
{
	int *from = calloc(sockets, sizeof(*from));
	int *to = calloc(sockets, sizeof(*to));

	if (!from || !to)
		err(1, "no memory");
	for (int i = 0; i < sockets; i++) {
		struct sockaddr_in address;

		to[i] = bound_socket(SOCK_DGRAM, &address);
		from[i] = connected_socket(SOCK_DGRAM, &address);
	}
	for (int turn = 0; turn < DATAGRAMS; turn++) {
		for (int i = 0; i < sockets; i++)
			give(from[i]);
		for (int i = 0; i < sockets; i++)
			take(to[i]);
	}
}

static void make_connections(int count)
{
	struct sockaddr_in address;
	int listener = bound_socket(SOCK_STREAM, &address);

	if (listen(listener, 1))
		err(1, "cannot listen");
	while (count--) {
		int client = connected_socket(SOCK_STREAM, &address);
		int server = accept(listener, NULL, NULL);

		give(client);
		take(server);
		give(server);
		take(client);
		/* without TIME_WAIT, so that ports do not run out */
		setsockopt(client, SOL_SOCKET, SO_LINGER, &reset,
			   sizeof(reset));
		close(client);
		close(server);
	}
}

static pid_t begin(void (*work)(int), int number)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "cannot fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	work(number);
	_exit(0);
}

static void be_busy(int number)
{
	for (volatile int i = number;; i++)
		;
}

int main(int argc, char **argv)
{
	int processes, sockets, busy, status, failed = 0;
	pid_t working[PROCESSES_MAX];
	struct rlimit files;

	if (argc != 5)
		errx(2, "give udp or tcp, PROCESSES, SOCKETS and BUSY");
	processes = atoi(argv[2]);
	sockets = atoi(argv[3]);
	busy = atoi(argv[4]);
	if (processes < 1 || processes > PROCESSES_MAX)
		errx(2, "1 to %d processes, got %s", PROCESSES_MAX, argv[2]);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	while (busy--)
		begin(be_busy, 0);
	for (int i = 0; i < processes; i++)
		working[i] = begin(strcmp(argv[1], "udp") ? make_connections :
							    send_datagrams,
				   sockets / processes);
	for (int i = 0; i < processes; i++) {
		waitpid(working[i], &status, 0);
		failed |= status;
	}
	return !!failed;
}
