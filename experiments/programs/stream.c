// SPDX-License-Identifier: GPL-2.0-only
/*
 * STREAM's triad over more memory than any cache holds: bandwidth, and a bad
 * neighbour to whoever shares the last-level cache. On integers, so that it
 * says nothing about floating point.
 */
#include <stdlib.h>

#include "programs.h"

#define WORDS (LINE / sizeof(uint64_t)) /* of a line */
#define LINES 8192 /* of each array in a unit */

struct triad {
	uint64_t *memory;
	uint64_t *to, *from[2];
	size_t nr_lines; /* of each array */
	size_t line;
};

static void *create(const struct options *options)
{
	struct triad *t = allocate(sizeof(*t));
	size_t nr_words;

	t->nr_lines = options->working_set / LINE / 3;
	t->line = 0;
	nr_words = t->nr_lines * WORDS;
	t->memory = allocate(3 * nr_words * sizeof(uint64_t));
	t->to = t->memory;
	t->from[0] = t->memory + nr_words;
	t->from[1] = t->memory + 2 * nr_words;
	/* Written once: memory never written is a single page of zeros. */
	for (size_t i = 0; i < 2 * nr_words; i++)
		t->from[0][i] = options->seed + i;
	return t;
}

/* Each array is written in its turn, so that no pass repeats another. */
static void next_pass(struct triad *t)
{
	uint64_t *to = t->to;

	t->to = t->from[0];
	t->from[0] = t->from[1];
	t->from[1] = to;
	t->line = 0;
}

static uint64_t unit(void *state)
{
	struct triad *t = state;
	uint64_t sum = 0;

	for (size_t left = LINES; left > 0;) {
		size_t end = t->line + left < t->nr_lines ? t->line + left : t->nr_lines;
		uint64_t *restrict to = t->to;
		const uint64_t *restrict b = t->from[0], *restrict c = t->from[1];

		left -= end - t->line;
		for (size_t i = t->line * WORDS; i < end * WORDS; i += WORDS) {
#pragma GCC unroll 8 /* the fewer instructions per line, the more it is memory */
			for (size_t j = i; j < i + WORDS; j++)
				to[j] = b[j] + 2 * c[j];
			sum += to[i];
		}
		t->line = end;
		if (end == t->nr_lines)
			next_pass(t);
	}
	return sum;
}

static void destroy(void *state)
{
	struct triad *t = state;

	free(t->memory);
	free(t);
}

const struct program stream = {
	.name = "stream",
	.summary = "triad over a buffer larger than any cache",
	.accepts = TAKES(OPT_WORKING_SET),
	.working_set_kib = 16384,
	.create = create,
	.unit = unit,
	.destroy = destroy,
};
