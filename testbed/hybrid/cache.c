// SPDX-License-Identifier: GPL-2.0-or-later
/* Set-associative caches of line numbers. */
#include <stdlib.h>

#include "model.h"

void cache_init(struct cache *c, unsigned kib, unsigned ways)
{
	c->ways = ways;
	c->sets = kib * 1024 / LINE / ways;
	if (!c->sets)
		fail("a cache of %u KiB cannot have %u ways", kib, ways);
	c->tags = calloc((size_t)c->sets * ways, sizeof *c->tags);
	if (!c->tags)
		fail("no memory for a cache of %u KiB", kib);
}

/* Real ones hash too: else power-of-two strides fall into few sets. */
uint32_t cache_set(const struct cache *c, uint32_t line)
{
	return (uint64_t)(line * 2654435769u) * c->sets >> 32;
}

bool cache_holds(const struct cache *c, uint32_t set, uint32_t line)
{
	const uint32_t *tag = c->tags + (size_t)set * c->ways;

	for (unsigned way = 0; way < c->ways; way++)
		if (tag[way] == line)
			return true;
	return false;
}

/*
 * Not quite least recently used, like real last-level caches: a new line enters in
 * the middle and moves half way to the front each time it is met again, so that a
 * stream of lines that are used once does not take what others use.
 */
bool cache_access(struct cache *c, uint32_t set, uint32_t line)
{
	uint32_t *tag = c->tags + (size_t)set * c->ways;

	for (unsigned way = 0; way < c->ways; way++)
		if (tag[way] == line) {
			tag[way] = tag[way / 2];
			tag[way / 2] = line;
			return true;
		}
	for (unsigned way = c->ways - 1; way > c->ways / 2; way--)
		tag[way] = tag[way - 1];
	tag[c->ways / 2] = line;
	return false;
}
