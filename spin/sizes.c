// SPDX-License-Identifier: GPL-2.0-only
/* Runs parallel regions for a second or so, and prints how many threads the last had. */
#include <omp.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	int threads = 0;

	for (int round = 0; round < 150; round++) {
#pragma omp parallel
#pragma omp single
		threads = omp_get_num_threads();
		usleep(10000);
	}
	printf("last %d\n", threads);
	return 0;
}
