// SPDX-License-Identifier: GPL-2.0-or-later
/* Noise is as large as it is said to be, and comes from the seed; `cargo test` compiles and
 * runs it. */
#include <math.h>
#include <stdio.h>

#include "../model.h"

#define N 20000

struct machine machine = { .n_cpus = 3, .noise = { .on = true, .clock = 0.02, .memory = 0.05 } };
struct cpu cpus[MAX_CPUS];
static int failures;

static void check(const char *what, bool right)
{
	if (!right)
		printf("%s\n", what), failures++;
}

static void expect(const char *what, const double *x, double sigma)
{
	double mean = 0, square = 0;

	for (unsigned i = 0; i < N; i++)
		mean += x[i] / N;
	for (unsigned i = 0; i < N; i++)
		square += (x[i] - mean) * (x[i] - mean) / N;
	if (fabs(mean - 1) < 0.1 * sigma && fabs(sqrt(square) / sigma - 1) < 0.05)
		return;
	printf("%s: mean %f, deviation %f instead of %f\n", what, mean, sqrt(square), sigma);
	failures++;
}

int main(void)
{
	static double draws[N], clocks[N], memory[N];
	double close = 0;

	cpus[0].type = cpus[1].type = cpus[2].type = &machine.type[0];
	cpus[0].smt.sibling = &cpus[1];
	cpus[1].smt.sibling = &cpus[0];
	noise_seed(1);
	for (unsigned i = 0; i < N; i++)
		draws[i] = noise_draw(0.1);
	for (unsigned i = 0; i < N; i++) {
		noise_window(100e6); /* so long that nothing of the last one is left */
		clocks[i] = cpus[2].noise;
		memory[i] = noise_memory;
		check("one clock for a core", cpus[0].noise == cpus[1].noise);
	}
	expect("draws", draws, 0.1);
	expect("clocks", clocks, 0.02);
	expect("memory", memory, 0.05);

	for (unsigned i = 0; i < 1000; i++) { /* one window is much like the next */
		double before = cpus[2].noise;

		noise_window(WINDOW_NS);
		close += fabs(cpus[2].noise - before) / 1000;
	}
	check("clocks wander", close > 0 && close < 0.1 * 0.02);

	noise_seed(1);
	check("the same seed", noise_draw(0.1) == draws[0] && noise_draw(0.1) == draws[1]);
	noise_seed(2);
	check("another seed", noise_draw(0.1) != draws[0]);
	return failures != 0;
}
