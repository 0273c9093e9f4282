// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fills an open-addressing hash table with random keys, then looks up twice
 * as many, half of which are there: multiplications, scattered loads and branches.
 */
#include <stdlib.h>

#include "programs.h"

#define SLOT_BITS 14
#define SLOTS (1u << SLOT_BITS) /* 256 KiB */
#define KEYS (SLOTS / 2)
#define LOOKUPS (2 * KEYS)

struct slot {
	uint64_t key;
	uint32_t value;
	uint32_t generation; /* free unless the table's: emptying it costs nothing */
};

struct table {
	uint64_t rng;
	uint32_t generation;
	uint64_t key[KEYS];
	struct slot slot[SLOTS];
};

/* The slot that holds @key, or the free one where it belongs. */
static struct slot *find(struct table *table, uint64_t key)
{
	uint32_t i = key * 0x9e3779b97f4a7c15 >> (64 - SLOT_BITS);

	while (table->slot[i].generation == table->generation && table->slot[i].key != key)
		i = (i + 1) % SLOTS;
	return &table->slot[i];
}

static void *create(const struct options *options)
{
	struct table *table = allocate(sizeof(*table));

	table->rng = start_random(options->seed);
	table->generation = 0;
	for (uint32_t i = 0; i < SLOTS; i++)
		table->slot[i].generation = 0;
	return table;
}

static uint64_t unit(void *state)
{
	struct table *table = state;
	uint64_t sum = 0;

	table->generation++;
	for (uint32_t i = 0; i < KEYS; i++) {
		uint64_t key = table->key[i] = next_random(&table->rng);

		*find(table, key) = (struct slot){ key, i, table->generation };
	}
	for (uint32_t i = 0; i < LOOKUPS; i++) {
		uint64_t random = next_random(&table->rng);
		uint64_t key = table->key[random % KEYS] + (random >> 63); /* or one beside */
		const struct slot *slot = find(table, key);

		if (slot->generation == table->generation)
			sum += slot->value;
		else
			sum ^= key;
	}
	return sum;
}

const struct program hash = {
	.name = "hash",
	.summary = "fills and searches a hash table",
	.create = create,
	.unit = unit,
	.destroy = free,
};
