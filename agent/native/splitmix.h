/* splitmix.h - the SplitMix64 function (Steele, Lea, Flood 2014). */
#ifndef LATPROF_SPLITMIX_H
#define LATPROF_SPLITMIX_H

#include <stdint.h>

/* Between one state of the generator and the next. */
#define SPLITMIX_STEP 0x9e3779b97f4a7c15ull

static inline uint64_t splitmix64_of(uint64_t state)
{
	uint64_t z = state;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Value number `index` of the sequence that begins at seed 0. */
static inline uint64_t splitmix64(uint64_t index)
{
	return splitmix64_of((index + 1) * SPLITMIX_STEP);
}

#endif
