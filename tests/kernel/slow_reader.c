/*
 * slow_reader.c - a reader of datagrams on loopback that is slow for one known
 * reason: slow_reader HOW MESSAGES EVERY MILLISECONDS [FILE]. Every EVERY-th
 * message of 64 bytes waits so long, and says when it began and ended (ns,
 * monotonic), and at the end "by PID THREAD": of those it waited for.
 *
 *   busy    computes in count_the_stars()
 *   lock    waits for a mutex that another thread holds, which sleeps
 *   held    the same, while that thread computes in hold_the_door()
 *   inherit as lock, of a mutex with priority inheritance
 *   signal  waits for a condition variable
 *   barrier waits at a barrier, where all wait as for a mutex
 *   pipe    reads a pipe that another process writes: its child "storage"
 *   file    reads a page of the file FILE, each time another one
 *   map     touches a page of a mapping of FILE, each time another one
 *   sleep   sleeps
 *   turns   sleeps, and the next time waits in poll()
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
#include <poll.h>
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t door;
static sem_t wanted, taken;
static int64_t long_ns;
static const char *file;
static int other_pid, other_thread;

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

static inline __attribute__((always_inline)) void count(void)
{
	int64_t end = now_ns() + long_ns;
	volatile double stars = 0;

	while (now_ns() < end)
		for (int i = 0; i < 10000; i++)
			stars += i;
}

__attribute__((noinline)) void count_the_stars(void)
{
	count();
}

static void (*keep)(void); /* while it has the lock */

__attribute__((noinline)) void hold_the_door(void)
{
	count();
}

static void sleep_long(void)
{
	sleep_ns(long_ns);
}

static void sleep_or_poll(void)
{
	static int times;

	if (times++ % 2)
		poll(NULL, 0, (int)(long_ns / 1000000));
	else
		sleep_long();
}

static void be_other(void)
{
	other_pid = getpid();
	other_thread = gettid();
}

/* Takes the lock before the reader may, and keeps it. */
static void *keep_door(void *unused)
{
	be_other();
	for (;;) {
		sem_wait(&wanted);
		pthread_mutex_lock(&door);
		sem_post(&taken);
		keep();
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

static void start(void *(*other)(void *))
{
	pthread_t thread;

	sem_init(&wanted, 0, 0);
	sem_init(&taken, 0, 0);
	pthread_create(&thread, NULL, other, NULL);
}

static void make_lock(void)
{
	pthread_mutex_init(&door, NULL);
	keep = sleep_long;
	start(keep_door);
}

static void make_held_lock(void)
{
	make_lock();
	keep = hold_the_door;
}

static void make_inheriting_lock(void)
{
	pthread_mutexattr_t how;

	pthread_mutexattr_init(&how);
	pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&door, &how);
	keep = sleep_long;
	start(keep_door);
}

static pthread_cond_t rung = PTHREAD_COND_INITIALIZER;
static int rings;

static void *ring(void *unused)
{
	be_other();
	for (;;) {
		sem_wait(&wanted);
		sleep_ns(long_ns);
		pthread_mutex_lock(&door);
		rings++;
		pthread_cond_signal(&rung);
		pthread_mutex_unlock(&door);
	}
	return unused;
}

static void make_bell(void)
{
	pthread_mutex_init(&door, NULL);
	start(ring);
}

static void wait_for_bell(void)
{
	sem_post(&wanted);
	pthread_mutex_lock(&door);
	while (!rings)
		pthread_cond_wait(&rung, &door);
	rings--;
	pthread_mutex_unlock(&door);
}

static pthread_barrier_t both;

/* Twice, and late the second time: then the futex has the value of a mutex
 * that is waited for. */
static void *come_late(void *unused)
{
	be_other();
	for (;;) {
		sem_wait(&wanted);
		pthread_barrier_wait(&both);
		sleep_ns(long_ns);
		pthread_barrier_wait(&both);
		sem_post(&taken);
	}
	return unused;
}

static void make_barrier(void)
{
	start(come_late);
}

static void wait_at_barrier(void)
{
	pthread_barrier_init(&both, NULL, 2);
	sem_post(&wanted);
	pthread_barrier_wait(&both);
	pthread_barrier_wait(&both);
	sem_wait(&taken);
	pthread_barrier_destroy(&both);
}

static int asked[2], answered[2];

static void make_storage(void)
{
	char byte;

	if (pipe(asked) || pipe(answered))
		exit(1);
	other_pid = other_thread = fork();
	if (other_pid)
		return;
	prctl(PR_SET_NAME, "storage");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(asked[0], &byte, 1) == 1) {
		count_the_stars();
		if (write(answered[1], &byte, 1) != 1)
			break;
	}
	_exit(0);
}

static void ask_storage(void)
{
	char byte = 0;

	if (write(asked[1], &byte, 1) != 1 || read(answered[0], &byte, 1) != 1)
		exit(1);
}

static int opened;
static volatile char *mapped;

static void open_file(void)
{
	opened = open(file ? file : "", O_RDONLY | O_CLOEXEC);
	if (opened < 0) {
		perror("FILE");
		exit(1);
	}
	posix_fadvise(opened, 0, 0, POSIX_FADV_RANDOM);
}

static void read_file(void)
{
	static off_t at;
	char page[4096];

	if (pread(opened, page, sizeof(page), at) != sizeof(page))
		exit(1);
	at += 1 << 20;
}

static void map_file(void)
{
	size_t bytes = 256 << 20;

	open_file();
	mapped = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, opened, 0);
	if (mapped == MAP_FAILED || madvise((void *)mapped, bytes, MADV_RANDOM))
		exit(1);
}

static void touch_map(void)
{
	static size_t at;

	(void)mapped[at];
	at += 1 << 20;
}

static void *compute(void *unused)
{
	volatile double stars = 0;

	for (;;)
		stars += 1;
	return unused;
}

static void make_crowd(void)
{
	pthread_t sibling;

	make_lock();
	pthread_create(&sibling, NULL, compute, NULL);
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

static void make_pages(void)
{
	size_t bytes = 64 << 20;
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
	start(fill_pages);
}

static void touch_cold(void)
{
	static size_t page;

	cold[4096 * page++] = 1;
}

static void be_alone(void)
{
	have_cpu(sysconf(_SC_NPROCESSORS_ONLN) - 1);
}

static const struct way {
	const char *how;
	void (*slow)(void);
	void (*make)(void);
} ways[] = {
	{ "busy", count_the_stars, NULL },
	{ "lock", wait_for_lock, make_lock },
	{ "held", wait_for_lock, make_held_lock },
	{ "inherit", wait_for_lock, make_inheriting_lock },
	{ "signal", wait_for_bell, make_bell },
	{ "barrier", wait_at_barrier, make_barrier },
	{ "pipe", ask_storage, make_storage },
	{ "file", read_file, open_file },
	{ "map", touch_map, map_file },
	{ "sleep", sleep_long, NULL },
	{ "turns", sleep_or_poll, NULL },
	{ "page", touch_cold, make_pages },
	{ "crowd", wait_for_lock, make_crowd },
	{ "stop", be_stopped, NULL },
	{ "none", NULL, be_alone },
	{ NULL, NULL, NULL },
};

static const struct way *way_of(const char *how)
{
	const struct way *way = ways;

	while (way->how && strcmp(way->how, how))
		way++;
	return way->how ? way : NULL;
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
	const struct way *way;
	char bytes[64];

	if (argc == 4 && !strcmp(argv[1], "hog"))
		hog(argv[2], argv[3]);
	way = argc == 5 || argc == 6 ? way_of(argv[1]) : NULL;
	if (!way)
		return 2;
	file = argv[5];
	messages = atoi(argv[2]);
	every = atoi(argv[3]);
	long_ns = atoll(argv[4]) * 1000000;
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(s, (void *)&here, sizeof(here)) ||
	    getsockname(s, (void *)&here, &length))
		return 1;
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (!fork()) {
		if (!way->slow)
			have_cpu(0);
		int to = socket(AF_INET, SOCK_DGRAM, 0);

		connect(to, (void *)&here, sizeof(here));
		sleep_ns(500000000);
		send_all(to, messages, every);
		_exit(0);
	}
	if (way->make)
		way->make();
	for (int n = 0, in_turn = 0; recv(s, bytes, sizeof(bytes), 0) > 0;) {
		if (in_turn) { /* the one that waited */
			in_turn = 0;
			continue;
		}
		if (++n % every)
			continue;
		int64_t begin = now_ns();

		if (way->slow)
			way->slow();
		printf("%lld %lld\n", (long long)begin, (long long)now_ns());
		in_turn = 1;
	}
	wait(NULL);
	if (other_pid)
		printf("by %d %d\n", other_pid, other_thread);
	return 0;
}
