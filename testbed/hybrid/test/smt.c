// SPDX-License-Identifier: GPL-2.0-or-later
/* What two threads of a core get by smt.c, beside docs/testbed-calibration.md, "Two threads of a core";
 * `cargo test` compiles and runs it. */
#include <math.h>
#include <stdio.h>

#include "../model.h"

#define MHZ 1000
#define WINDOW_NS 50e3
#define WINDOWS 40 /* by then what each does to the other no longer changes */
#define STEP 500   /* cycles between two looks at the clock, as cpu_flush() does */

static struct core_type type = { .smt = 1.25 };
struct machine machine = { .n_types = 1, .n_cpus = 2 };
struct cpu cpus[MAX_CPUS];
bool started;
static int failures;

/* Parts of a program's time alone: computes, of that floating point, is awake. The rest of what it is awake it waits
 * for memory, and what it is not it sleeps. */
struct program {
	const char *name;
	double compute, fp, awake;
};
static const struct program integer = { "integer", 1, 0, 1 }, fp = { "fp", 1, 0.5, 1 },
			    half = { "half memory", 0.5, 0, 1 }, chase = { "chase", 0.03, 0, 1 },
			    idle = { "asleep", 0, 0, 0 };

static void within(const char *what, const struct program *of[2], double got, double least, double most)
{
	if (got >= least && got <= most)
		return;
	printf("%s of %s and %s: %f is not within %f and %f\n", what, of[0]->name, of[1]->name, got, least, most);
	failures++;
}

static void near(const char *what, const struct program *of[2], double got, double wanted)
{
	within(what, of, got, wanted - 1e-3, wanted + 1e-3);
}

/* Runs until the end of a window; the time that its work would have taken alone. */
static double run(struct cpu *c, const struct program *p, double end_ns)
{
	double alone_ns = 0;

	while (p->awake > 0 && c->ns < end_ns) {
		double cycles[N_MODES] = { [USER] = p->compute * STEP };
		struct width used[N_MODES] = { [USER] = { .fp = p->fp * p->compute * STEP } };

		smt_stretch(c, cycles, used, MHZ);
		double ns = (cycles[USER] + (1 - p->compute) * STEP) * 1e3 / MHZ;
		c->ns += ns;
		c->smt.awake_ns += ns;
		alone_ns += STEP * 1e3 / MHZ;
	}
	return alone_ns;
}

/* What either gets beside the other, of its speed alone. */
static void beside(const struct program *a, const struct program *b, double speed[2])
{
	const struct program *of[] = { a, b };

	for (unsigned i = 0; i < 2; i++)
		cpus[i] = (struct cpu){ .index = i, .type = &type, .mhz = MHZ };
	smt_pair(&cpus[0], &cpus[1]);
	for (unsigned w = 1; w <= WINDOWS; w++) {
		for (unsigned i = 0; i < 2; i++) {
			double from = cpus[i].ns, alone_ns = run(&cpus[i], of[i], w * WINDOW_NS);

			speed[i] = cpus[i].ns > from ? alone_ns / (cpus[i].ns - from) : 0;
		}
		smt_window(w * WINDOW_NS);
	}
}

/* Siblings that compute get 1.0 to 1.35 of one alone together, and each costs the other 25 to 50 %. */
static void compute(const struct program *a, const struct program *b, double each)
{
	const struct program *of[] = { a, b };
	double speed[2];

	beside(a, b, speed);
	within("together", of, speed[0] + speed[1], 1.0, 1.35);
	for (unsigned i = 0; i < 2; i++) {
		within("lost", of, 1 - speed[i], 0.25, 0.50);
		near("speed", of, speed[i], each);
	}
}

/* What waits for memory gets more, and leaves more. */
static void waits(const struct program *a, const struct program *b, double least, double most_lost)
{
	const struct program *of[] = { a, b };
	double speed[2];

	beside(a, b, speed);
	within("together", of, speed[0] + speed[1], least, 2);
	for (unsigned i = 0; i < 2; i++)
		within("lost", of, 1 - speed[i], 0, most_lost);
}

int main(void)
{
	double speed[2];

	/* Before the model is on nothing is stretched. */
	beside(&integer, &integer, speed);
	near("speed before the start", (const struct program *[]){ &integer, &integer }, speed[0], 1);
	started = true;
	compute(&integer, &integer, 0.625); /* half of 1.25 */
	compute(&fp, &fp, 0.625);
	compute(&integer, &fp, 0.6625); /* 1 - 0.375 * (1 - 0.2 * 0.5) */
	waits(&half, &half, 1.4, 0.30);
	waits(&integer, &half, 1.4, 0.30);
	waits(&integer, &chase, 1.85, 0.10); /* `chase` loses 3 % or less, for it has 3 % to lose */
	waits(&chase, &chase, 1.95, 0.05);
	beside(&integer, &chase, speed);
	within("lost beside integer", (const struct program *[]){ &chase, &integer }, 1 - speed[1], 0, 0.03);
	beside(&integer, &idle, speed);
	near("speed", (const struct program *[]){ &integer, &idle }, speed[0], 1);
	return failures;
}
