// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blocked matrix multiplication. Two doubles at a time, written out because that
 * is what every x86-64 and arm64 core has: SIMD whatever the compiler thinks.
 */
#include <stdlib.h>
#include <string.h>

#include "programs.h"

#define SIZE 64 /* 32 KiB each: together in L2 */
#define BLOCK 16 /* 2 KiB each: together in L1 */

typedef double pair __attribute__((vector_size(16)));

struct matrices {
	pair a[SIZE][SIZE / 2], b[SIZE][SIZE / 2], c[SIZE][SIZE / 2];
};

static void *create(const struct options *options)
{
	struct matrices *m = allocate(sizeof(*m));
	uint64_t rng = start_random(options->seed);

	for (int i = 0; i < SIZE; i++)
		for (int j = 0; j < SIZE / 2; j++) {
			m->a[i][j] = (pair){ next_random(&rng) >> 40, next_random(&rng) >> 40 };
			m->b[i][j] = (pair){ next_random(&rng) >> 40, next_random(&rng) >> 40 };
		}
	memset(m->c, 0, sizeof(m->c));
	return m;
}

static void multiply_block(struct matrices *m, int row, int column, int inner)
{
	for (int i = row; i < row + BLOCK; i++)
		for (int k = inner; k < inner + BLOCK; k++) {
			double x = m->a[i][k / 2][k % 2];
			pair both = { x, x };

			for (int j = column / 2; j < (column + BLOCK) / 2; j++)
				m->c[i][j] += both * m->b[k][j];
		}
}

static uint64_t unit(void *state)
{
	struct matrices *m = state;
	uint64_t sum = 0, bits;

	for (int row = 0; row < SIZE; row += BLOCK)
		for (int column = 0; column < SIZE; column += BLOCK)
			for (int inner = 0; inner < SIZE; inner += BLOCK)
				multiply_block(m, row, column, inner);

	/* c grows by the same with every unit, and doubles hold that for years. */
	for (int i = 0; i < SIZE; i++) {
		memcpy(&bits, &m->c[i][i / 2], sizeof(bits));
		sum += scramble(bits);
	}
	return sum;
}

const struct program matmul = {
	.name = "matmul",
	.summary = "blocked matrix multiplication with SIMD, in L1 and L2",
	.create = create,
	.unit = unit,
	.destroy = free,
};
