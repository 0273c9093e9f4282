/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a learnt model says of a thread, in fixed point and free of BPF:
 * src/ml/forest.rs makes the forest, evaluates it to the same last bit, and the
 * tests compile this same file natively.
 *
 * A forest is a weighted sum of features and a sum of trees. These all are as deep as the deepest, so that no tree
 * needs pointers: node n of a tree goes on at 2n + 1, or at 2n + 2 where the
 * feature is more than the threshold. What is less deep asks questions to which
 * the answer is always low.
 *
 * No step down a tree depends on a branch on data: the verifier would follow both
 * ways of each, 2^depth for every tree.
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
/* Of all trees together: the most trees, 2^depth each at the deepest. */
#define FOREST_MAX_NODES	(FOREST_MAX_TREES << FOREST_MAX_DEPTH)

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

/* Inner nodes, tree after tree, 2^depth - 1 of each; leaves alike, 2^depth. */
struct forest {
	s64 base;
	/* What comes of it is no less and no more: nothing else was seen. */
	s64 least;
	s64 most;
	u32 nr_trees;
	u32 depth;
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
 * The sum of all trees, in 1/2^20: an SF, or the logarithm of the odds. There are
 * FOREST_MAX_FEATURES features, whether the forest asks for them or not.
 */
static inline s64 forest_score(const struct forest *forest, const u32 *features)
{
	u32 depth = forest->depth, nr_trees = forest->nr_trees;
	s64 sum = 0;
	u32 tree, level, n;

	if (depth > FOREST_MAX_DEPTH)
		return forest->base;
	for (n = 0; n < FOREST_MAX_FEATURES; n++) {
		const struct forest_weight *of = &forest->weights[n];
		u32 value = features[n];

		value = value > of->most ? of->most : value;
		value = value > of->least ? value - of->least : 0;
		sum += of->weight * (s64)value;
	}
	sum = forest->base + (sum >> FOREST_FEATURE_BITS);
	for (tree = 0; tree < FOREST_MAX_TREES; tree++) {
		u32 first = (tree << depth) - tree;
		u32 node = 0, leaf;

		if (tree >= nr_trees)
			break;
		for (level = 0; level < FOREST_MAX_DEPTH; level++) {
			const struct forest_node *at;
			u64 value;

			if (level >= depth)
				break;
			at = &forest->nodes[(first + node) & (FOREST_MAX_NODES - 1)];
			value = features[at->feature & (FOREST_MAX_FEATURES - 1)];
			/* One more where the value is more: the difference borrows. */
			node = 2 * node + 1 + (u32)((at->threshold - value) >> 63);
		}
		leaf = (tree << depth) + node + 1 - (1U << depth);
		sum += forest->leaves[leaf & (FOREST_MAX_NODES - 1)];
	}
	if (sum < forest->least)
		return forest->least;
	return sum > forest->most ? forest->most : sum;
}

#endif /* __HETERO_FOREST_H */
