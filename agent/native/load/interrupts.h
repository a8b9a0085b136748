/*
 * interrupts.h - SIGINT and SIGTERM, which end what a client does and keep what
 * it has measured.
 *
 * A signal may come just before a call that blocks, and does not end that then:
 * whoever waits looks here again after INTERRUPTS_LOOK_MS.
 */
#ifndef LATPROF_LOAD_INTERRUPTS_H
#define LATPROF_LOAD_INTERRUPTS_H

#include <signal.h>

enum { INTERRUPTS_LOOK_MS = 50 };

/* How many came, since they are caught. */
extern volatile sig_atomic_t interrupts;

/* From now on they are counted, and end a call that blocks. */
void interrupts_catch(void);

#endif
