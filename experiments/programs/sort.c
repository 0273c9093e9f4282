// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sorts fresh random numbers: loads and comparisons whose outcome is a guess,
 * with the runs of predictable ones that real programs have.
 */
#include <stdlib.h>

#include "programs.h"

#define NUMBERS 10000
#define SMALL 12 /* where insertion beats partition */

struct numbers {
	uint64_t rng;
	uint32_t number[NUMBERS];
};

static void insertion_sort(uint32_t *a, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		uint32_t x = a[i];
		size_t j = i;

		for (; j > 0 && a[j - 1] > x; j--)
			a[j] = a[j - 1];
		a[j] = x;
	}
}

static uint32_t median(uint32_t a, uint32_t b, uint32_t c)
{
	if (a < b)
		return b < c ? b : a < c ? c : a;
	return a < c ? a : b < c ? c : b;
}

static void quick_sort(uint32_t *a, size_t n)
{
	while (n > SMALL) {
		uint32_t pivot = median(a[0], a[n / 2], a[n - 1]);
		size_t i = 0, j = n - 1;

		for (;; i++, j--) {
			while (a[i] < pivot)
				i++;
			while (a[j] > pivot)
				j--;
			if (i >= j)
				break;
			uint32_t x = a[i];

			a[i] = a[j];
			a[j] = x;
		}
		quick_sort(a, i);
		a += i;
		n -= i;
	}
	insertion_sort(a, n);
}

static void *create(const struct options *options)
{
	struct numbers *s = allocate(sizeof(*s));

	s->rng = start_random(options->seed);
	return s;
}

static uint64_t unit(void *state)
{
	struct numbers *s = state;
	uint64_t sum = 0;

	for (int i = 0; i < NUMBERS; i++)
		s->number[i] = next_random(&s->rng);
	quick_sort(s->number, NUMBERS);
	for (int i = 1; i < NUMBERS; i++) {
		if (s->number[i - 1] > s->number[i])
			fail("sort: the numbers are not in order");
		sum += (uint64_t)i * s->number[i];
	}
	return sum;
}

const struct program sort = {
	.name = "sort",
	.summary = "quicksort of random 32-bit numbers",
	.create = create,
	.unit = unit,
	.destroy = free,
};
