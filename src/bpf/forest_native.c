/* SPDX-License-Identifier: GPL-2.0-only */
/* forest.h as ordinary functions, for src/arith.rs. */
#include "forest.h"

u32 native_forest_size(void)
{
	return sizeof(struct forest);
}

u32 native_forest_feature(u64 count, u64 instructions)
{
	return forest_feature(count, instructions);
}

s64 native_forest_score(const struct forest *forest, const u32 *features)
{
	return forest_score(forest, features, FOREST_MAX_FEATURES);
}
