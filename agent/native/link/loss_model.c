// SPDX-License-Identifier: GPL-2.0-only
/*
 * loss_model.c - random loss: Gilbert-Elliott, of which independent loss is a
 * case.
 *
 *   E. N. Gilbert (1960), Capacity of a burst-noise channel, Bell System
 *   Technical Journal 39; E. O. Elliott (1963), ibid. 42. Names as in tc-netem.
 */
#include "loss_model.h"

#include <errno.h>

#include "splitmix.h"

static bool random_happens(uint64_t *state, double probability)
{
	*state += SPLITMIX_STEP;
	/* 53 random bits fill a double in [0, 1) evenly. */
	return (double)(splitmix64_of(*state) >> 11) * 0x1p-53 < probability;
}

int gilbert_of_burst(double loss, double burst, struct gilbert_elliott *ret)
{
	double good_to_bad;

	if (burst < 1 || loss >= 1)
		return -ERANGE;
	good_to_bad = loss / (1 - loss) / burst;
	if (good_to_bad > 1)
		return -ERANGE;
	*ret = (struct gilbert_elliott){ .good_to_bad = good_to_bad,
					 .bad_to_good = 1 / burst,
					 .loss_in_bad = 1 };
	return 0;
}

void loss_model_init(struct loss_model *loss,
		     const struct gilbert_elliott *model, uint64_t seed)
{
	double moves = model->good_to_bad + model->bad_to_good;

	*loss = (struct loss_model){ .model = *model, .random_state = seed };
	if (moves > 0)
		loss->bad = random_happens(&loss->random_state,
					   model->good_to_bad / moves);
}

bool loss_model_drops(struct loss_model *loss)
{
	const struct gilbert_elliott *model = &loss->model;
	bool bad = loss->bad, lost;

	lost = random_happens(&loss->random_state,
			      bad ? model->loss_in_bad : model->loss_in_good);
	if (random_happens(&loss->random_state,
			   bad ? model->bad_to_good : model->good_to_bad))
		loss->bad = !bad;
	return lost;
}
