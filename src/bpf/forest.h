/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a learnt model says of a thread, in fixed point and free of BPF:
 * src/ml/forest.rs makes the forest, evaluates it to the same last bit, and the
 * tests compile this same file natively.
 *
 * A forest is a sum of trees that all are as deep as the deepest, so that no tree
 * needs pointers: node n of a tree goes on at 2n + 1, or at 2n + 2 where the
 * feature is more than the threshold. What is less deep asks questions to which
 * the answer is always low.
 *
 * No step depends on a branch on data: the verifier would follow both ways of
 * each, 2^depth for every tree.
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

/* Inner nodes, tree after tree, 2^depth - 1 of each; leaves alike, 2^depth. */
struct forest {
	s64 base;
	u32 nr_trees;
	u32 depth;
	struct forest_node nodes[FOREST_MAX_NODES];
	s32 leaves[FOREST_MAX_NODES];
};

/* A feature: events per instruction, in 1/2^24, at most 256. */
static inline u32 forest_feature(u64 count, u64 instructions)
{
	const u64 most = (1ULL << (64 - FOREST_FEATURE_BITS)) - 1;
	u64 value;

	if (!instructions)
		return 0;
	if (count > most)
		count = most;
	value = (count << FOREST_FEATURE_BITS) / instructions;
	return value > (u32)-1 ? (u32)-1 : value;
}

/*
 * The sum of all trees, in 1/2^20: an SF, or the logarithm of the odds. There are
 * FOREST_MAX_FEATURES features, whether the forest asks for them or not.
 */
static inline s64 forest_score(const struct forest *forest, const u32 *features)
{
	u32 depth = forest->depth, nr_trees = forest->nr_trees;
	s64 sum = forest->base;
	u32 tree, level;

	if (depth > FOREST_MAX_DEPTH)
		return sum;
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
	return sum;
}

#endif /* __HETERO_FOREST_H */
