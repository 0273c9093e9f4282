// SPDX-License-Identifier: GPL-2.0-only
/*
 * How much time trial.c loses against the best way of each program, were that known: regret [SEED].
 *
 * Programs here are loops of regions, whose times scatter by region and, as company does it, from one tenth of
 * a second to the next. Prints for each the time over the best way's, and ends with 1 if what is lost is more than
 * may be. It knows nothing of scx_hetero.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trial.h"

#define RUNS 100

/* What is accepted over all programs. */
#define MOST_OF_ALL 0.022

struct program {
	const char *name;
	double seconds; /* that it takes as asked, regions alone */
	unsigned kinds; /* of regions, one after the other; the first is the longest */
	double region; /* mean time, s */
	double way[WAYS]; /* time over that as asked; 0: cannot be */
	double chance, company; /* standard deviations of the logarithm, of a region and of a tenth of a second */
	double most; /* regret that is accepted, mean of all runs */
};

static const struct program programs[] = {
	{ "mg alone", 2.8, 13, 0.0003, { 1, 1.22, 0 }, 0.10, 0.02, 0.010 },
	{ "mg, gains", 2.8, 13, 0.0003, { 1, 0.80, 0 }, 0.10, 0.02, 0.015 },
	{ "mg in company", 3.4, 13, 0.0003, { 1, 1.04, 0.63 }, 0.20, 0.15, 0.020 },
	{ "ep alone", 1.2, 1, 0.013, { 1, 0.82, 0.87 }, 0.02, 0.02, 0.015 },
	{ "ep in company", 1.8, 1, 0.018, { 1, 0.90, 0.98 }, 0.10, 0.10, 0.045 },
	{ "cg alone", 4.3, 1, 0.038, { 1, 0.83, 0.81 }, 0.03, 0.02, 0.025 },
	{ "cg in company", 5.8, 1, 0.052, { 1, 0.97, 1.10 }, 0.10, 0.10, 0.030 },
	{ "all alike", 5, 5, 0.001, { 1, 1, 1 }, 0.10, 0.10, 0.005 },
	{ "all are worse", 5, 5, 0.001, { 1, 1.5, 2 }, 0.10, 0.10, 0.012 },
	{ "few regions", 5, 1, 0.25, { 1, 0.80, 1.20 }, 0.05, 0.05, 0.065 },
	{ "many kinds", 5, 200, 0.002, { 1, 0.80, 1.20 }, 0.05, 0.05, 0.075 },
};

static uint64_t state;

static double uniform(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return ((state >> 33) + 0.5) / (double)(1ull << 31);
}

static double scatter(double deviation)
{
	return exp(deviation * sqrt(-2 * log(uniform())) * cos(2 * M_PI * uniform()));
}

/* Time of a run, over what it would be in the best way all the time. */
static double run(const struct program *program, struct trial *trial, unsigned *taken)
{
	static const char bodies[256];
	unsigned ways = 1u << AS_ASKED, regions = program->seconds / program->region;
	double best = 1, weights = 0, time = 0, least = 0, company = 1, until = 0;
	enum way before = AS_ASKED;

	memset(trial, 0, sizeof(*trial));
	for (unsigned i = 0; i < program->kinds; i++)
		weights += 1.0 / (i + 1);
	for (enum way way = BY_SPEED; way < WAYS; way++)
		if (program->way[way] > 0) {
			ways |= 1u << way;
			best = program->way[way] < best ? program->way[way] : best;
		}
	trial_begin(trial, ways, 0);
	for (unsigned i = 0; i < regions; i++) {
		unsigned kind = i % program->kinds;
		enum way way = trial_next(trial, (uint64_t)(1e9 * time));
		double takes, alone;
		struct trial_region region = { &bodies[kind], kind, (uint64_t)(1e9 * time), 0, 0.7, true };

		if (time >= until) {
			company = scatter(program->company);
			until = time + 0.1;
		}
		alone = program->region * program->kinds / (kind + 1) / weights * scatter(program->chance) * company;
		takes = alone * program->way[way];
		/* Threads that go elsewhere; and the first region by speed knows none. */
		if (way != before)
			takes += 0.0003;
		before = way;
		region.took = (uint64_t)(1e9 * takes);
		trial_take(trial, &region);
		time += takes;
		least += alone * best;
	}
	*taken = trial->reference;
	return time / least;
}

int main(int argc, char **argv)
{
	static struct trial trial;
	bool wrong = false;
	double all = 0;
	const unsigned number = sizeof(programs) / sizeof(programs[0]);

	state = (argc > 1 ? strtoull(argv[1], NULL, 0) : 1) * 0x9e3779b97f4a7c15ull;
	for (unsigned i = 0; i < number; i++) {
		double sum = 0, worst = 0;
		unsigned taken, took[WAYS] = { 0 };

		for (unsigned j = 0; j < RUNS; j++) {
			double over = run(&programs[i], &trial, &taken);

			sum += over;
			worst = over > worst ? over : worst;
			took[taken]++;
		}
		all += sum / RUNS;
		printf("%-14s %.3f of the best way's time, at most %.3f; in the end as asked %u, by core type %u, advised %u\n",
		       programs[i].name, sum / RUNS, worst, took[AS_ASKED], took[BY_SPEED], took[ADVISED]);
		if (sum / RUNS > 1 + programs[i].most) {
			printf("%s: more than %.3f\n", programs[i].name, 1 + programs[i].most);
			wrong = true;
		}
	}
	printf("all: %.4f of the best way's time\n", all / number);
	return wrong || all / number > 1 + MOST_OF_ALL;
}
