/* recording.c - who asks for a responder's recording, and who has it. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "recording.h"

/* -EAGAIN: whoever is to take it has too many already. */
static int hand_over(int to, int connection,
		     const uint64_t terms[RECORDING_TERMS])
{
	union {
		struct cmsghdr first;
		char bytes[CMSG_SPACE(sizeof(int))];
	} beside = { 0 };
	struct iovec words = { (void *)terms,
			       RECORDING_TERMS * sizeof(*terms) };
	struct msghdr message = {
		.msg_iov = &words,
		.msg_iovlen = 1,
		.msg_control = beside.bytes,
		.msg_controllen = sizeof(beside.bytes),
	};

	beside.first = (struct cmsghdr){
		.cmsg_len = CMSG_LEN(sizeof(int)),
		.cmsg_level = SOL_SOCKET,
		.cmsg_type = SCM_RIGHTS,
	};
	memcpy(CMSG_DATA(&beside.first), &connection, sizeof(int));
	return sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno :
									0;
}

bool recording_allows(const struct terms *terms)
{
	return terms->transport == PROTOCOL_TCP;
}

int recording_serve(struct session *session)
{
	int error =
		hand_over(session->lender, session->data, session->terms.own);
	uint8_t more[1];
	ssize_t n;

	if (error)
		return error;
	do
		n = recv(session->data, more, sizeof(more), 0);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		session_count(&session->counters.rejected, 1);
	return n > 0 ? -EPROTO : 0;
}

int recording_fetch(const struct options *options, struct failure *failure)
{
	struct terms terms = {
		.workload = WORKLOAD_RECORDING,
		.transport = PROTOCOL_TCP,
		.largest_bytes = HEADER_BYTES, /* there are no messages */
		.own = { [RECORDING_TERM_SINCE] = options->since_ns,
			 [RECORDING_TERM_BYTES] = options->most_bytes },
	};
	struct session_link link;
	int error = session_open(options, options->address, options->port,
				 &terms, &link, failure);

	if (error)
		return error;
	error = hand_over((int)options->hand_over, link.data, terms.own);
	session_close(&link);
	return error ? fail(failure, -error,
			    "cannot hand the connection over: %s; give "
			    "--hand-over a Unix socket",
			    strerror(-error)) :
		       0;
}
