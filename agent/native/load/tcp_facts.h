/* tcp_facts.h - what TCP_INFO says of a connection. */
#ifndef LATPROF_LOAD_TCP_FACTS_H
#define LATPROF_LOAD_TCP_FACTS_H

#include "bulk_totals.h"

/* Fill those fields of *ret that are of TCP_INFO: of the sending side. */
void tcp_facts_read(int fd, struct bulk_sent *ret);
/* How far it is: bytes that came, and those of ours that the peer has. */
uint64_t tcp_moved_bytes(int fd);

#endif
