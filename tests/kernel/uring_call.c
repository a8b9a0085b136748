/*
 * uring_call.c - one io_uring operation, submitted and waited for; a shared
 * object for the tests. Plain system calls, so that no library is needed.
 */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct uring {
	int fd;
	char *rings;
	struct io_uring_sqe *sqes;
	struct io_uring_params params;
};

static int uring_open(struct uring *ret)
{
	struct io_uring_params *p = &ret->params;
	size_t size;

	ret->fd = syscall(__NR_io_uring_setup, 4, p);
	if (ret->fd < 0)
		return -errno;
	/* one area holds both rings since Linux 5.4; the second is the larger
	 */
	size = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
	ret->rings =
		mmap(NULL, size, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_POPULATE, ret->fd, IORING_OFF_SQ_RING);
	ret->sqes = mmap(NULL, p->sq_entries * sizeof(*ret->sqes),
			 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			 ret->fd, IORING_OFF_SQES);
	if (ret->rings == MAP_FAILED || ret->sqes == MAP_FAILED)
		return -errno;
	return 0;
}

static _Atomic uint32_t *word(struct uring *ring, uint32_t offset)
{
	return (_Atomic uint32_t *)(ring->rings + offset);
}

/* One ring a thread, for its life: a ring belongs to the thread that made it.
 */
static _Thread_local struct uring mine = { .fd = -1 };

/* Takes the next completion; false: there is none yet. That a buffer is free
 * again (IORING_OP_SEND_ZC) is none. */
static int take_result(struct uring *ring, int *ret)
{
	struct io_uring_cqe *cqe;
	uint32_t head = *word(ring, ring->params.cq_off.head);
	uint32_t flags;

	if (head == *word(ring, ring->params.cq_off.tail))
		return 0;
	cqe = (struct io_uring_cqe *)(ring->rings + ring->params.cq_off.cqes) +
	      (head & (ring->params.cq_entries - 1));
	*ret = cqe->res;
	flags = cqe->flags;
	*word(ring, ring->params.cq_off.head) = head + 1;
	return flags & IORING_CQE_F_NOTIF ? take_result(ring, ret) : 1;
}

/* Returns what the operation returned: a length, or -errno. */
int uring_call(int opcode, int socket, void *bytes, unsigned int length,
	       unsigned int flags)
{
	struct io_uring_sqe *sqe;
	uint32_t tail;
	int error, result;

	if (mine.fd < 0) {
		error = uring_open(&mine);
		if (error)
			return error;
	}
	tail = *word(&mine, mine.params.sq_off.tail);
	sqe = &mine.sqes[tail & (mine.params.sq_entries - 1)];
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = opcode;
	sqe->fd = socket;
	sqe->addr = (uintptr_t)bytes;
	sqe->len = length;
	sqe->msg_flags = flags;
	*word(&mine, mine.params.sq_off.array +
			     4 * (tail & (mine.params.sq_entries - 1))) =
		tail & (mine.params.sq_entries - 1);
	*word(&mine, mine.params.sq_off.tail) = tail + 1;
	for (unsigned int submit = 1;; submit = 0) {
		if (syscall(__NR_io_uring_enter, mine.fd, submit, 1,
			    IORING_ENTER_GETEVENTS, NULL, 0) < 0)
			return -errno;
		if (take_result(&mine, &result))
			return result;
	}
}
