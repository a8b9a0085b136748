/* loops.h - the two ways to pace a ping-pong. */
#ifndef LATPROF_LOAD_LOOPS_H
#define LATPROF_LOAD_LOOPS_H

#include "exchange.h"

/* Both run the whole schedule, or until *x->stop. 0, also when stopped, or
 * -errno with a line for the user. */

/* One message after the other: each waits for the reply before it. */
int closed_loop(struct exchange *x);
/* Messages leave when they are due, whatever has become of earlier ones. */
int open_loop(struct exchange *x);

#endif
