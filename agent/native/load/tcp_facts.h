/* tcp_facts.h - what TCP_INFO says of a connection's sending side. */
#ifndef LATPROF_LOAD_TCP_FACTS_H
#define LATPROF_LOAD_TCP_FACTS_H

#include "bulk_totals.h"

/* Fill those fields of *ret that are of TCP_INFO. */
void tcp_facts_read(int fd, struct bulk_sent *ret);

#endif
