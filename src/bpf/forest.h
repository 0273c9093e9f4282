/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a learnt model says of a thread, in fixed point and free of BPF:
 * core/src/ml/forest.rs makes the forest, evaluates it to the same last bit, and the
 * tests compile this same file natively.
 *
 * A forest is a weighted sum of features and a sum of trees, or one over that. Every tree has room for
 * six questions in a row, so that none needs pointers: node n goes on at 2n, or at
 * 2n + 1 where the feature is more than the threshold, and the first one is 1. What
 * is less deep asks questions to which the answer is always low.
 *
 * No step depends on a branch on data: the verifier would follow both ways of each,
 * 2^6 for every tree. Where the compiler might make one, opaque() keeps it from that.
 */
#ifndef __HETERO_FOREST_H
#define __HETERO_FOREST_H

#include "intf.h"

#define FOREST_FEATURE_BITS	24
#define FOREST_SCORE_BITS	20

#define FOREST_MAX_TREES	256
#define FOREST_MAX_DEPTH	6
/* A power of two. */
#define FOREST_MAX_FEATURES	64
/* Room for the nodes of a tree, of which 0 is not used; and for its leaves. */
#define FOREST_TREE		(1 << FOREST_MAX_DEPTH)
#define FOREST_MAX_NODES	(FOREST_MAX_TREES * FOREST_TREE)

/* A loop; in BPF one that the verifier follows once, and not each time round. */
#ifndef forest_for
#define forest_for(n, from, to)	for ((n) = (from); (n) < (to); (n)++)
#endif

/* What the compiler takes for any number. */
#define opaque(value)		asm volatile("" : "+r"(value))

struct forest_node {
	u32 threshold;
	u32 feature;
};

/* Of a feature between least and most, beyond which nothing was learnt. */
struct forest_weight {
	s64 weight;
	u32 least;
	u32 most;
};

/* Nodes and leaves, tree after tree. */
struct forest {
	s64 base;
	/* What comes of it is no less and no more: nothing else was seen. */
	s64 least;
	s64 most;
	u64 nr_trees;
	/* The sum is 1 / SF. */
	u64 inverse;
	struct forest_weight weights[FOREST_MAX_FEATURES];
	struct forest_node nodes[FOREST_MAX_NODES];
	s32 leaves[FOREST_MAX_NODES];
};

/* A feature: events per cycle (or per instruction), in 1/2^24, at most 256. */
static inline u32 forest_feature(u64 count, u64 cycles)
{
	const u64 most = (1ULL << (64 - FOREST_FEATURE_BITS)) - 1;
	u64 value;

	if (!cycles)
		return 0;
	if (count > most)
		count = most;
	value = (count << FOREST_FEATURE_BITS) / cycles;
	return value > (u32)-1 ? (u32)-1 : value;
}

/*
 * What the forest says, in 1/2^20: an SF, or the logarithm of the odds. There are
 * @nr_features, whether the forest asks for them or not: a constant, a power of two,
 * at most FOREST_MAX_FEATURES.
 */
static inline __attribute__((always_inline)) s64
forest_score(const struct forest *forest, const u32 *features, const u32 nr_features)
{
	s64 sum = 0;
	u32 tree, level, n;

	for (n = 0; n < nr_features; n++) {
		const struct forest_weight *of = &forest->weights[n];
		s64 value = (s64)features[n] - of->least, room;

		/* Not below least: nothing where it is negative. */
		opaque(value);
		value &= ~(value >> 63);
		/* Nor above most: back by what is too much. */
		room = (s64)(of->most - of->least) - value;
		opaque(room);
		value += room & (room >> 63);
		sum += of->weight * value;
	}
	sum = forest->base + (sum >> FOREST_FEATURE_BITS);
	forest_for(tree, 0, (u32)forest->nr_trees) {
		u32 first = (tree & (FOREST_MAX_TREES - 1)) * FOREST_TREE, node = 1;

		for (level = 0; level < FOREST_MAX_DEPTH; level++) {
			const struct forest_node *at;
			u64 more;

			at = &forest->nodes[first + (node & (FOREST_TREE - 1))];
			more = (u64)at->threshold - features[at->feature & (nr_features - 1)];
			/* Where the value is more, the difference borrows. */
			opaque(more);
			node = 2 * node + (u32)(more >> 63);
		}
		sum += forest->leaves[first + (node & (FOREST_TREE - 1))];
	}
	if (forest->inverse)
		sum = sum > 0 ? (s64)((1ULL << 2 * FOREST_SCORE_BITS) / (u64)sum) : forest->most;
	if (sum < forest->least)
		return forest->least;
	return sum > forest->most ? forest->most : sum;
}

#endif /* __HETERO_FOREST_H */
