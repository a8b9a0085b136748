/* flags_check.h - do the options go together? */
#ifndef LATPROF_LOAD_FLAGS_CHECK_H
#define LATPROF_LOAD_FLAGS_CHECK_H

#include "flags.h"

/* Check options whose values are each right, and fill in the number of rounds
 * when neither that nor a duration was given. -EINVAL with a line. */
int flags_check(struct options *options, struct failure *failure);

#endif
