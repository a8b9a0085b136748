/*
 * causes.c - a server whose answers wait for a cause that is known.
 *
 *   causes CAUSE ROUNDS      says at which port, and serves one connection
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct timespec HELD = { 0, 200000000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_done;
static sem_t asked, held, given;
static int ends[2], counter;
static volatile uint64_t sink;

static int64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

__attribute__((noinline)) void crunch_numbers(void)
{
	int64_t until = now(CLOCK_THREAD_CPUTIME_ID) + HELD.tv_nsec;

	while (now(CLOCK_THREAD_CPUTIME_ID) < until)
		for (int i = 0; i < 1000000; i++)
			sink = sink * 3 + i;
}

static void rest(void)
{
	nanosleep(&HELD, NULL);
}

/* What another thread, the holder, does for a wait of the server. */
static void hold_mutex(void)
{
	pthread_mutex_lock(&mutex);
	sem_post(&held);
	rest();
	pthread_mutex_unlock(&mutex);
}

static void crunch_with_mutex(void)
{
	pthread_mutex_lock(&mutex);
	sem_post(&held);
	crunch_numbers();
	pthread_mutex_unlock(&mutex);
}

static void hold_lock(void)
{
	pthread_rwlock_wrlock(&lock);
	sem_post(&held);
	rest();
	pthread_rwlock_unlock(&lock);
}

static void change(void)
{
	rest();
	pthread_mutex_lock(&mutex);
	is_done = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&mutex);
}

static void crunch_and_post(void)
{
	crunch_numbers();
	sem_post(&given);
}

static void crunch_and_write(void)
{
	crunch_numbers();
	if (write(ends[1], "x", 1) != 1)
		abort();
}

static void crunch_and_count(void)
{
	crunch_numbers();
	eventfd_write(counter, 1);
}

static void ask(void)
{
	sem_post(&asked);
}

static void for_mutex(void)
{
	ask();
	sem_wait(&held);
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}

static void for_lock(void)
{
	ask();
	sem_wait(&held);
	pthread_rwlock_rdlock(&lock);
	pthread_rwlock_unlock(&lock);
}

static void for_condition(void)
{
	ask();
	pthread_mutex_lock(&mutex);
	while (!is_done)
		pthread_cond_wait(&changed, &mutex);
	is_done = false;
	pthread_mutex_unlock(&mutex);
}

static void for_semaphore(void)
{
	ask();
	sem_wait(&given);
}

static void for_pipe(void)
{
	char byte;

	ask();
	if (read(ends[0], &byte, 1) != 1)
		abort();
}

static void for_counter(void)
{
	eventfd_t value;

	ask();
	eventfd_read(counter, &value);
}

static void for_event(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	int events = epoll_create1(0);
	eventfd_t value;

	epoll_ctl(events, EPOLL_CTL_ADD, counter, &event);
	ask();
	epoll_wait(events, &event, 1, -1);
	eventfd_read(counter, &value);
	close(events);
}

static void for_timer(void)
{
	struct itimerspec once = { .it_value = HELD };
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t times;

	timerfd_settime(timer, 0, &once, NULL);
	if (read(timer, &times, sizeof(times)) != sizeof(times))
		abort();
	close(timer);
}

static void for_child(void)
{
	pid_t child = fork();

	if (!child) {
		rest();
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static void for_busy_child(void)
{
	pid_t child = fork();

	if (!child) {
		crunch_numbers();
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static void for_program(void)
{
	pid_t child = fork();

	if (!child) {
		execlp("sleep", "sleep", "0.2", (char *)NULL);
		_exit(1);
	}
	waitpid(child, NULL, 0);
}

static void for_file_lock(void)
{
	char name[] = "/tmp/latprof-XXXXXX", byte;
	int file = mkstemp(name), ready[2];
	pid_t child;

	if (pipe(ready))
		abort();
	child = fork();
	if (!child) {
		/* an open of its own: else it were the same lock */
		flock(open(name, O_RDWR), LOCK_EX);
		if (write(ready[1], "x", 1) == 1)
			rest();
		_exit(0);
	}
	if (read(ready[0], &byte, 1) != 1)
		abort();
	flock(file, LOCK_EX);
	unlink(name);
	close(file);
	close(ready[0]);
	close(ready[1]);
	waitpid(child, NULL, 0);
}

static void with_many_calls(void)
{
	int64_t until = now(CLOCK_MONOTONIC) + HELD.tv_nsec;
	struct stat found;

	while (now(CLOCK_MONOTONIC) < until)
		for (int i = 0; i < 1000; i++)
			stat("/etc/passwd", &found);
}

static const struct {
	const char *name;
	void (*wait)(void);
	void (*holder)(void);
} CAUSES[] = {
	{ "rest", rest, NULL },
	{ "work", crunch_numbers, NULL },
	{ "mutex", for_mutex, hold_mutex },
	{ "busy-mutex", for_mutex, crunch_with_mutex },
	{ "lock", for_lock, hold_lock },
	{ "condition", for_condition, change },
	{ "semaphore", for_semaphore, crunch_and_post },
	{ "pipe", for_pipe, crunch_and_write },
	{ "counter", for_counter, crunch_and_count },
	{ "event", for_event, crunch_and_count },
	{ "timer", for_timer, NULL },
	{ "child", for_child, NULL },
	{ "busy-child", for_busy_child, NULL },
	{ "program", for_program, NULL },
	{ "file-lock", for_file_lock, NULL },
	{ "calls", with_many_calls, NULL },
};

static void *holder(void *does)
{
	pthread_setname_np(pthread_self(), "holder");
	for (;;) {
		sem_wait(&asked);
		((void (*)(void))does)();
	}
	return NULL;
}

static void serve(int connection, int rounds, void (*wait)(void))
{
	char bytes[100];

	while (rounds--) {
		recv(connection, bytes, sizeof(bytes), MSG_WAITALL);
		wait();
		send(connection, bytes, 50, 0);
	}
}

int main(int count, char **words)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t size = sizeof(at);
	pthread_t thread;

	if (count != 3 || pipe(ends))
		return 2;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	counter = eventfd(0, 0);
	sem_init(&asked, 0, 0);
	sem_init(&held, 0, 0);
	sem_init(&given, 0, 0);
	if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 1))
		return 1;
	getsockname(listener, (struct sockaddr *)&at, &size);
	printf("%d\n", ntohs(at.sin_port));
	fflush(stdout);
	for (size_t i = 0; i < sizeof(CAUSES) / sizeof(*CAUSES); i++) {
		if (strcmp(words[1], CAUSES[i].name))
			continue;
		if (CAUSES[i].holder)
			pthread_create(&thread, NULL, holder,
				       (void *)CAUSES[i].holder);
		serve(accept(listener, NULL, NULL), atoi(words[2]),
		      CAUSES[i].wait);
		return 0;
	}
	return 2;
}
