// SPDX-License-Identifier: GPL-2.0-only
/*
 * A buffer that fits the last-level cache but not L2, read and written again and
 * again: fast alone, slow beside a neighbour that evicts it. The order is random,
 * so that no prefetcher hides a miss; four walks at a time hide some of each
 * other's latency, as most programs do and chase doesn't.
 */
#include <stdlib.h>

#include "programs.h"

#define WALKS 4
#define HOPS 12000 /* of each walk in a unit: not whole rounds, where order would not show */

struct resident {
	struct node *nodes[WALKS]; /* a cycle each, so that none follows another */
	struct node *at[WALKS];
};

static void *create(const struct options *options)
{
	struct resident *r = allocate(sizeof(*r));
	uint64_t rng = start_random(options->seed);

	for (int i = 0; i < WALKS; i++)
		r->at[i] = r->nodes[i] = random_cycle(options->working_set / LINE / WALKS, &rng);
	return r;
}

static uint64_t unit(void *state)
{
	struct resident *r = state;
	struct node *a = r->at[0], *b = r->at[1], *c = r->at[2], *d = r->at[3];
	uint64_t sum = 0;

	for (int i = 0; i < HOPS; i++) {
		sum += a->value++;
		sum += b->value++;
		sum += c->value++;
		sum += d->value++;
		a = a->next;
		b = b->next;
		c = c->next;
		d = d->next;
	}
	r->at[0] = a;
	r->at[1] = b;
	r->at[2] = c;
	r->at[3] = d;
	return sum;
}

static void destroy(void *state)
{
	struct resident *r = state;

	for (int i = 0; i < WALKS; i++)
		free(r->nodes[i]);
	free(r);
}

const struct program resident = {
	.name = "resident",
	.summary = "random accesses to a buffer that only the last-level cache holds",
	.accepts = TAKES(OPT_WORKING_SET),
	.working_set_kib = 768,
	.create = create,
	.unit = unit,
	.destroy = destroy,
};
