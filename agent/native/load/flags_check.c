/* flags_check.c - do the options go together? */
#include <errno.h>

#include "flags_check.h"

static uint32_t largest(const struct options *o)
{
	if (o->protocol == PROTOCOL_UDP)
		return DATAGRAM_BYTES_MAX;
	return o->wire == WIRE_CLEAR ? CLEAR_BYTES_MAX : MESSAGE_BYTES_MAX;
}

static int check_common(const struct options *o, struct failure *failure)
{
	if (o->wire == WIRE_CLEAR && o->reply_bytes)
		return fail(failure, EINVAL,
			    "--reply does not go with --wire "
			    "clear, whose responder echoes in full");
	if (o->reply_bytes > largest(o))
		return fail(failure, EINVAL,
			    "--reply must be at most %u here, "
			    "got %llu",
			    largest(o), (unsigned long long)o->reply_bytes);
	if (o->protocol == PROTOCOL_UDP && o->congestion)
		return fail(failure, EINVAL,
			    "--congestion does not go with "
			    "--protocol udp");
	if (o->protocol == PROTOCOL_UDP && o->nagle)
		return fail(failure, EINVAL,
			    "--nagle does not go with "
			    "--protocol udp");
	return 0;
}

static int check_sizes(const struct options *o, struct failure *failure)
{
	for (size_t i = 0; i < o->size_count; i++)
		if (o->sizes[i] < HEADER_BYTES || o->sizes[i] > largest(o))
			return fail(failure, EINVAL,
				    "--sizes must be from %d "
				    "to %u here, got %u",
				    HEADER_BYTES, largest(o), o->sizes[i]);
	return 0;
}

static int check_pingpong(struct options *o, struct failure *failure)
{
	if (!o->port)
		return fail(failure, EINVAL,
			    "--port is needed: give the port "
			    "that the responder printed");
	if (o->rounds && o->duration_ns)
		return fail(failure, EINVAL,
			    "--rounds and --duration do not "
			    "go together; give one");
	if (o->poisson && !o->interval_ns)
		return fail(failure, EINVAL, "--poisson needs --interval");
	if (!o->rounds && !o->duration_ns)
		o->rounds = 1000;
	return check_sizes(o, failure);
}

int flags_check(struct options *options, struct failure *failure)
{
	int error = check_common(options, failure);

	if (error || options->command != COMMAND_PINGPONG)
		return error;
	return check_pingpong(options, failure);
}
