/* process.h - where this process runs, and when it must end. */
#ifndef LATPROF_LOAD_PROCESS_H
#define LATPROF_LOAD_PROCESS_H

#include "flags.h"

/* Enter the network namespace, take the CPU, follow the parent's death, wake
 * from timers without slack. 0 or -errno with a line for the user. */
int process_place(const struct options *options, struct failure *failure);

#endif
