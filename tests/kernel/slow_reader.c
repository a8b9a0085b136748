/*
 * slow_reader.c - a reader of datagrams on loopback that is slow for one known
 * reason: slow_reader HOW MESSAGES EVERY MILLISECONDS. Every EVERY-th message
 * of 64 bytes waits so long, and says when it began and ended (ns, monotonic).
 *
 *   busy    computes in count_the_stars()
 *   lock    waits for a mutex that another thread holds
 *   sleep   sleeps
 *   page    touches a page that another thread fills in so much later
 *   crowd   as lock, while a sibling computes all the time
 *   stop    is stopped by a signal
 *   none    nothing; it has the last CPU, and its sender the first
 *
 * Or slow_reader hog BURN PAUSE: computes so many milliseconds, and pauses.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static sem_t wanted, taken;
static int64_t long_ns;

static void have_cpu(long cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleep_ns(int64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	nanosleep(&t, NULL);
}

__attribute__((noinline)) void count_the_stars(void)
{
	int64_t end = now_ns() + long_ns;
	volatile double stars = 0;

	while (now_ns() < end)
		for (int i = 0; i < 1000; i++)
			stars += i;
}

/* Takes the lock before the reader may, and keeps it. */
static void *keep_door(void *unused)
{
	for (;;) {
		sem_wait(&wanted);
		pthread_mutex_lock(&door);
		sem_post(&taken);
		sleep_ns(long_ns);
		pthread_mutex_unlock(&door);
	}
	return unused;
}

static void wait_for_lock(void)
{
	sem_post(&wanted);
	sem_wait(&taken);
	pthread_mutex_lock(&door);
	pthread_mutex_unlock(&door);
}

static void *compute(void *unused)
{
	volatile double stars = 0;

	for (;;)
		stars += 1;
	return unused;
}

static void be_stopped(void)
{
	if (!fork()) {
		sleep_ns(long_ns);
		kill(getppid(), SIGCONT);
		_exit(0);
	}
	raise(SIGSTOP);
	wait(NULL);
}

static int faults;
static char *cold;

static void *fill_pages(void *unused)
{
	static char page[4096];
	struct uffd_msg message;

	while (read(faults, &message, sizeof(message)) == sizeof(message)) {
		struct uffdio_copy copy = {
			.dst = message.arg.pagefault.address & ~4095ULL,
			.src = (uint64_t)page,
			.len = sizeof(page),
		};

		sleep_ns(long_ns);
		ioctl(faults, UFFDIO_COPY, &copy);
	}
	return unused;
}

static void make_pages(size_t bytes)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	cold = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	range.range.start = (uint64_t)cold;
	range.range.len = bytes;
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api) ||
	    ioctl(faults, UFFDIO_REGISTER, &range)) {
		perror("userfaultfd");
		exit(77);
	}
}

static void be_slow(const char *how)
{
	static size_t page;

	if (!strcmp(how, "busy"))
		count_the_stars();
	else if (!strcmp(how, "lock") || !strcmp(how, "crowd"))
		wait_for_lock();
	else if (!strcmp(how, "stop"))
		be_stopped();
	else if (!strcmp(how, "sleep"))
		sleep_ns(long_ns);
	else if (!strcmp(how, "page"))
		cold[4096 * page++] = 1;
}

/* Two at a time: while it is slow for the first, the second waits unread. */
static void send_all(int s, int messages, int every)
{
	char bytes[64] = "";

	for (int i = 1; i <= messages; i++) {
		send(s, bytes, sizeof(bytes), 0);
		if (i % every == 0) {
			send(s, bytes, sizeof(bytes), 0);
			sleep_ns(2 * long_ns);
		}
		sleep_ns(2000000);
	}
}

static void hog(const char *burn, const char *pause)
{
	long_ns = atoll(burn) * 1000000;
	for (;;) {
		count_the_stars();
		sleep_ns(atoll(pause) * 1000000);
	}
}

int main(int argc, char **argv)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0), messages, every;
	struct sockaddr_in here = { .sin_family = AF_INET };
	struct timeval patience = { 1, 200000 };
	socklen_t length = sizeof(here);
	pthread_t other;
	char bytes[64];

	if (argc == 4 && !strcmp(argv[1], "hog"))
		hog(argv[2], argv[3]);
	if (argc != 5)
		return 2;
	messages = atoi(argv[2]);
	every = atoi(argv[3]);
	long_ns = atoll(argv[4]) * 1000000;
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(s, (void *)&here, sizeof(here)) ||
	    getsockname(s, (void *)&here, &length))
		return 1;
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (!strcmp(argv[1], "none"))
		have_cpu(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	if (!fork()) {
		if (!strcmp(argv[1], "none"))
			have_cpu(0);
		int to = socket(AF_INET, SOCK_DGRAM, 0);

		connect(to, (void *)&here, sizeof(here));
		sleep_ns(500000000);
		send_all(to, messages, every);
		_exit(0);
	}
	sem_init(&wanted, 0, 0);
	sem_init(&taken, 0, 0);
	if (!strcmp(argv[1], "page"))
		make_pages(4096UL * messages);
	if (!strcmp(argv[1], "lock") || !strcmp(argv[1], "crowd"))
		pthread_create(&other, NULL, keep_door, NULL);
	if (!strcmp(argv[1], "crowd"))
		pthread_create(&other, NULL, compute, NULL);
	if (!strcmp(argv[1], "page"))
		pthread_create(&other, NULL, fill_pages, NULL);
	for (int n = 0, in_turn = 0; recv(s, bytes, sizeof(bytes), 0) > 0;) {
		if (in_turn) { /* the one that waited */
			in_turn = 0;
			continue;
		}
		if (++n % every)
			continue;
		int64_t begin = now_ns();

		be_slow(argv[1]);
		printf("%lld %lld\n", (long long)begin, (long long)now_ns());
		in_turn = 1;
	}
	wait(NULL);
	return 0;
}
