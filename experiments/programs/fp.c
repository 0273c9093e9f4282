// SPDX-License-Identifier: GPL-2.0-only
/*
 * Scalar double arithmetic: one long chain in which each operation waits for the
 * one before, beside shorter ones that a core may overlap with it, and one
 * division per round. All of it stays bounded however long it runs.
 */
#include <stdlib.h>
#include <string.h>

#include "programs.h"

#define ROUNDS 24576

/* Greater than 0 and less than 1. */
static double fraction(uint64_t *rng)
{
	return ((double)(next_random(rng) >> 12) + 0.5) / (double)(1ull << 52);
}

uint64_t fp_rounds(uint64_t seed, unsigned int rounds)
{
	uint64_t rng = start_random(seed), bits;
	double x = fraction(&rng), decay = fraction(&rng), root = 1 + fraction(&rng);
	double cosine = 0.8, sine = 0.6, c = 1, s = 0;
	double sum = 0;

	while (rounds--) {
		double turned = c * cosine - s * sine;

		/* The logistic map is chaotic: an error anywhere shows at the end. */
		x = 3.99 * x * (1 - x);
		x = 3.97 * x * (1 - x);
		s = c * sine + s * cosine;
		c = turned;
		decay = decay * 0.75 + x;
		root = 0.5 * (root + (1 + x) / root);
		sum += c * decay + root;
	}
	memcpy(&bits, &sum, sizeof(bits));
	return bits;
}

static void *create(const struct options *options)
{
	uint64_t *seed = allocate(sizeof(*seed));

	*seed = options->seed;
	return seed;
}

static uint64_t unit(void *state)
{
	uint64_t *seed = state;

	return *seed = fp_rounds(*seed, ROUNDS);
}

const struct program fp = {
	.name = "fp",
	.summary = "scalar double arithmetic in dependent and independent chains",
	.create = create,
	.unit = unit,
	.destroy = free,
};
