// SPDX-License-Identifier: GPL-2.0-only
/*
 * Branches on random bits, which no predictor learns: about half of them miss.
 */
#include <stdlib.h>

#include "programs.h"

#define WORDS 4096 /* of random bits */

/* Something the compiler can't see through, lest it turn a branch into a cmov. */
#define KEEP(x) __asm__ volatile("" : "+r"(x))

struct walk {
	uint64_t rng;
	uint64_t place;
};

static void *create(const struct options *options)
{
	struct walk *walk = allocate(sizeof(*walk));

	*walk = (struct walk){ .rng = start_random(options->seed) };
	return walk;
}

static uint64_t unit(void *state)
{
	struct walk *walk = state;
	uint64_t place = walk->place;

	for (int i = 0; i < WORDS; i++) {
		for (uint64_t bits = next_random(&walk->rng) >> 4; bits; bits >>= 3) {
			if (bits & 1) {
				place += bits;
				KEEP(place);
			} else {
				place ^= 0x55;
				KEEP(place);
			}
			if (bits & 2) {
				if (bits & 4) {
					place += place << 3;
					KEEP(place);
				}
			} else if (place & 1) {
				place -= 7;
				KEEP(place);
			} else {
				place ^= place >> 5;
				KEEP(place);
			}
		}
	}
	return walk->place = place;
}

const struct program branchy = {
	.name = "branchy",
	.summary = "branches on random bits, which no predictor learns",
	.create = create,
	.unit = unit,
	.destroy = free,
};
