// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shifts, rotations and additions in registers: no memory, one branch per round
 * that is always predicted, and two chains so that a wide core has its use.
 */
#include <stdlib.h>

#include "programs.h"

#define ROUNDS 32768

static inline uint64_t rotate(uint64_t x, unsigned int by)
{
	return x << by | x >> (64 - by);
}

uint64_t integer_rounds(uint64_t seed, unsigned int rounds)
{
	uint64_t a = start_random(seed), b = scramble(a);
	uint64_t sum = 0;

	while (rounds--) {
		next_random(&a);
		b = rotate(b, 24) + (b ^ 0x5bd1e995);
		b ^= rotate(b, 37) + (b >> 3);
		sum = rotate(sum, 5) ^ (a + b);
	}
	return sum;
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

	return *seed = integer_rounds(*seed, ROUNDS);
}

const struct program integer = {
	.name = "integer",
	.summary = "shifts, rotations and additions in registers",
	.create = create,
	.unit = unit,
	.destroy = free,
};
