/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef LINK_LOSS_MODEL_H
#define LINK_LOSS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Gilbert-Elliott: a chain of a good and a bad state that moves after every
 * packet. Independent loss is the chain that never leaves the good state.
 */
struct gilbert_elliott {
	double good_to_bad; /* p */
	double bad_to_good; /* r */
	double loss_in_good; /* 1 - k */
	double loss_in_bad; /* 1 - h */
};

struct loss_model {
	struct gilbert_elliott model;
	uint64_t random_state;
	bool bad;
};

/*
 * The chain that loses `loss` of all packets in bursts of `burst` packets on
 * average (Gilbert's: all packets of the bad state and no other). -ERANGE
 * where no such chain exists: burst < 1, or loss / (1 - loss) > burst.
 */
int gilbert_of_burst(double loss, double burst, struct gilbert_elliott *ret);

/* The first state is drawn from the chain's stationary distribution. */
void loss_model_init(struct loss_model *loss,
		     const struct gilbert_elliott *model, uint64_t seed);

/* Is the next packet lost? */
bool loss_model_drops(struct loss_model *loss);

#endif
