/* services.c - what `latprof-load echo` can do for a client. */
#include "bulk_service.h"
#include "recording.h"
#include "responder.h"
#include "session.h"

const struct service services[] = {
	{ WORKLOAD_PINGPONG, responder_allows, responder_memory_bytes,
	  responder_serve },
	{ WORKLOAD_BULK, bulk_allows, bulk_memory_bytes, bulk_serve },
	{ WORKLOAD_RECORDING, recording_allows, NULL, recording_serve },
};

const size_t service_count = sizeof(services) / sizeof(*services);

const struct service *service_find(enum workload workload)
{
	for (size_t i = 0; i < service_count; i++)
		if (services[i].workload == workload)
			return &services[i];
	return NULL;
}
