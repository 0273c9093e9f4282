// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two threads of one core. They have one L1, one L2 and one branch predictor, so
 * that they take lines and counters from each other, and one width to issue by:
 * while both compute alike, each runs at smt / 2 of its speed alone. Where one uses
 * the units for floating point and the other does not, they disturb each other less.
 *
 * What is behind a mispredicted branch is issued, too, and counts as computing. What
 * waits for a cache or memory, or in a privileged instruction or PAUSE, leaves its
 * width to the other; but the other's buffers are still half of the core's, so
 * that it computes a little slower and has fewer misses in flight.
 *
 * As with the buses, what a thread did in a window settles what it does to the
 * other in the next: the two run one after the other, so their order within a
 * window means nothing.
 */
#include <math.h>

#include "model.h"

#define SHORT_NS 10e3 /* too little of its own time to say what a thread does */
/* Of the usual order on such cores, not measured. */
#define APART 0.2   /* less disturbance if one is all floating point, the other none */
#define HALVED 0.08 /* of its speed, lost to a thread that is awake and waits */
#define FLIGHT 0.3  /* of the misses in flight, lost to a thread that is awake */

void smt_pair(struct cpu *first, struct cpu *second)
{
	first->smt = second->smt = (struct smt){ .slow = 1, .flight = 1 };
	first->smt.sibling = second;
	second->smt.sibling = first;
	second->l1 = first->l1;
	second->l2 = first->l2;
}

void smt_stretch(struct cpu *c, double cycles[N_MODES], const struct width used[N_MODES], double mhz)
{
	struct smt *s = &c->smt;

	if (!started)
		return;
	for (unsigned m = 0; m < N_MODES; m++) {
		double compute = (cycles[m] - used[m].waits) * s->slow;

		cycles[m] = used[m].waits + compute;
		s->compute_ns += compute * 1e3 / mhz;
		s->fp_ns += used[m].fp * s->slow * 1e3 / mhz;
	}
}

void smt_window(double now_ns)
{
	/* First all that is seen, for it is of use to the other thread. */
	for (unsigned i = 0; i < machine.n_cpus; i++) {
		struct smt *s = &cpus[i].smt;
		/* One that sleeps has its clock stand still. */
		double ns = fmax(cpus[i].ns, now_ns), time = ns - s->looked_ns;

		if (!s->sibling || time < SHORT_NS)
			continue;
		s->awake = fmin(s->awake_ns / time, 1);
		s->compute = fmin(s->compute_ns / time, s->awake);
		s->fp = s->compute_ns > 0 ? s->fp_ns / s->compute_ns : 0;
		s->awake_ns = s->compute_ns = s->fp_ns = 0;
		s->looked_ns = ns;
	}
	for (unsigned i = 0; i < machine.n_cpus; i++) {
		struct smt *s = &cpus[i].smt;

		if (!s->sibling)
			continue;
		const struct smt *other = &s->sibling->smt;
		double alike = 1 - APART * fabs(s->fp - other->fp);
		double lost = other->compute * (1 - cpus[i].type->smt / 2) * alike +
			      (other->awake - other->compute) * HALVED;

		s->slow = 1 / (1 - lost);
		s->flight = 1 - FLIGHT * other->awake;
	}
}
