// SPDX-License-Identifier: GPL-2.0-only
/*
 * A walk along pointers in random order, one line each: every load waits for the
 * one before, so that it runs at the latency of whatever holds the working set.
 */
#include <stdlib.h>

#include "programs.h"

#define HOPS 65536

struct chase {
	struct node *nodes;
	struct node *at;
};

/* Sattolo's shuffle: the one that leaves a single cycle through all nodes. */
struct node *random_cycle(size_t nr_nodes, uint64_t *rng)
{
	struct node *nodes = allocate(nr_nodes * sizeof(*nodes));

	for (size_t i = 0; i < nr_nodes; i++) {
		nodes[i].next = &nodes[i];
		nodes[i].value = i;
	}
	for (size_t i = nr_nodes - 1; i > 0; i--) {
		size_t j = random_below(rng, i);
		struct node *next = nodes[i].next;

		nodes[i].next = nodes[j].next;
		nodes[j].next = next;
	}
	return nodes;
}

static void *create(const struct options *options)
{
	struct chase *chase = allocate(sizeof(*chase));
	uint64_t rng = start_random(options->seed);

	chase->nodes = random_cycle(options->working_set / LINE, &rng);
	chase->at = chase->nodes;
	return chase;
}

static uint64_t unit(void *state)
{
	struct chase *chase = state;
	struct node *at = chase->at;

	for (int i = 0; i < HOPS; i++)
		at = at->next;
	chase->at = at;
	return at->value;
}

static void destroy(void *state)
{
	struct chase *chase = state;

	free(chase->nodes);
	free(chase);
}

const struct program chase = {
	.name = "chase",
	.summary = "pointer chasing in random order, one load at a time",
	.accepts = TAKES(OPT_WORKING_SET),
	.working_set_kib = 8192,
	.create = create,
	.unit = unit,
	.destroy = destroy,
};
