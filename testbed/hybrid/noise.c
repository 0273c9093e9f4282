// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What makes a second run on a real machine differ from the first: clocks that follow
 * heat and power, memory that others use, too, and counters that are not exact. Here it
 * comes from the boot's seed, so that the same one gives the same run.
 *
 * Clocks and memory wander: what they are off by in one window mostly is so in the next,
 * as errors that are new each time would cancel out within a sample.
 */
#include <math.h>

#include "model.h"

#define WANDER_NS 20e6 /* after so long, a third of an error is left */

double noise_memory = 1;
static double memory, clocks[MAX_CPUS]; /* in standard deviations */
static uint64_t state;

void noise_seed(uint64_t seed)
{
	state = seed;
}

/* splitmix64 */
static uint64_t next_random(void)
{
	uint64_t x = state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* Of mean 0 and variance 1, nearly normal, never beyond 3.5: a sum of four. */
static double normal(void)
{
	uint64_t x = next_random();
	double sum = (x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48);

	return (sum / 65536 - 2) * sqrt(3);
}

double noise_draw(double sigma)
{
	return 1 + sigma * normal();
}

void noise_window(double ns)
{
	double kept = elementary_exp(-ns / WANDER_NS), fresh = sqrt(1 - kept * kept);

	memory = kept * memory + fresh * normal();
	noise_memory = fmax(1 + machine.noise.memory * memory, 0.5);
	for (unsigned i = 0; i < machine.n_cpus; i++) {
		struct cpu *c = &cpus[i];

		if (!c->type || (c->smt.sibling && c->smt.sibling < c))
			continue; /* a core has one clock */
		clocks[i] = kept * clocks[i] + fresh * normal();
		c->noise = fmax(1 + machine.noise.clock * clocks[i], 0.5);
		if (c->smt.sibling)
			c->smt.sibling->noise = c->noise;
	}
}
