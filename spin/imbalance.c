// SPDX-License-Identifier: GPL-2.0-only
/*
 * An OpenMP program whose threads have unequal work: imbalance [UNITS [HEAVY]].
 *
 * A unit is a parallel region in which one thread has HEAVY (4) times the work of
 * each other, and then a barrier. Prints the thread ids, the heavy one's first, and
 * in the end how long it took. It knows nothing of scx_hetero.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_THREADS 256

static uint64_t work(uint64_t x, unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	return x;
}

int main(int argc, char **argv)
{
	unsigned units = argc > 1 ? strtoul(argv[1], NULL, 0) : 100;
	unsigned heavy = argc > 2 ? strtoul(argv[2], NULL, 0) : 4;
	uint64_t sums[MOST_THREADS] = { 0 }, sum = 0;
	int tids[MOST_THREADS] = { 0 };
	double begin;

#pragma omp parallel num_threads(omp_get_max_threads() < MOST_THREADS ? \
				 omp_get_max_threads() : MOST_THREADS)
	tids[omp_get_thread_num()] = gettid();
	printf("threads");
	for (int i = 0; i < MOST_THREADS && tids[i]; i++)
		printf(" %d", tids[i]);
	putchar('\n');
	fflush(stdout);

	begin = omp_get_wtime();
	for (unsigned unit = 0; unit < units; unit++) {
#pragma omp parallel num_threads(omp_get_max_threads() < MOST_THREADS ? \
				 omp_get_max_threads() : MOST_THREADS)
		{
			int me = omp_get_thread_num();

			sums[me] = work(sums[me] + unit + 1, me ? 100000 : 100000 * heavy);
#pragma omp barrier
			sums[me] = work(sums[me] + 1, 1000);
		}
	}
	for (int i = 0; i < MOST_THREADS; i++)
		sum ^= sums[i];
	printf("%u units in %.3f s, checksum %016llx\n", units, omp_get_wtime() - begin,
	       (unsigned long long)sum);
	return 0;
}
