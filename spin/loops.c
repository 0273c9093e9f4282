// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether static loops do each iteration once, whatever library stands before libomp: loops [ROUNDS].
 *
 * Ends with 1 and says where if not. Prints how many parts were of unequal size, so that a test
 * sees that they were divided by core type at all. It knows nothing of scx_hetero.
 */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 5000
#define THREADS 64

static unsigned char done[MOST];
static int64_t part[THREADS];
static unsigned unequal, wrong;

static void begin(void)
{
	memset(done, 0, sizeof(done));
	memset(part, 0, sizeof(part));
}

static void end(const char *what, int64_t trips)
{
	int64_t least = INT64_MAX, greatest = 0, sum = 0;

	for (int64_t i = 0; i < MOST; i++)
		if (done[i] != (i < trips)) {
			printf("%s, %lld iterations: %lld is done %d times\n", what, (long long)trips,
			       (long long)i, done[i]);
			wrong = 1;
			return;
		}
	for (int i = 0; i < THREADS; i++) {
		sum += part[i];
		if (!part[i])
			continue;
		least = part[i] < least ? part[i] : least;
		greatest = part[i] > greatest ? part[i] : greatest;
	}
	if (sum != trips) {
		printf("%s: %lld iterations instead of %lld\n", what, (long long)sum, (long long)trips);
		wrong = 1;
	}
	unequal += trips && greatest > least + 1;
}

static void one(int64_t i)
{
	done[i]++;
	part[omp_get_thread_num()]++;
}

/* From `from` on, so many steps of `step`. */
#define LOOP(type, from, step, trips)							\
{											\
	const type first = (from), last = (type)(first + (type)((trips) - 1) * (step));	\
	begin();									\
	if (trips) {									\
		if ((step) > 0) {							\
			_Pragma("omp parallel for schedule(static)")			\
			for (type i = first; i <= last; i += (step) > 0 ? (step) : 1)	\
				one((int64_t)((i - first) / ((step) > 0 ? (step) : 1)));	\
		} else {								\
			_Pragma("omp parallel for schedule(static)")			\
			for (type i = first; i >= last; i -= (step) < 0 ? -(step) : 1)	\
				one((int64_t)((first - i) / ((step) < 0 ? -(step) : 1)));	\
		}									\
	}										\
	end(#type " from " #from " by " #step, trips);					\
}

static void loops(int64_t trips)
{
	LOOP(int32_t, 0, 1, trips)
	LOOP(int32_t, -17, 3, trips)
	LOOP(int32_t, INT32_MIN, 7, trips)
	LOOP(int32_t, INT32_MAX - 1, -5, trips)
	LOOP(uint32_t, 0u, 1, trips)
	LOOP(uint32_t, 4000000000u, 2, trips)
	LOOP(int64_t, INT64_MIN, 1, trips)
	LOOP(int64_t, 1ll << 40, -1000000007ll, trips)
	LOOP(uint64_t, 1ull << 63, 11, trips)
	LOOP(uint64_t, 5ull, 4000000000ull, trips)
}

static void others(int64_t trips)
{
	int last = -1;

	begin();
#pragma omp parallel for schedule(static, 3)
	for (int64_t i = 0; i < trips; i++)
		one(i);
	end("chunks", trips);
	begin();
#pragma omp parallel for schedule(dynamic, 2)
	for (int64_t i = 0; i < trips; i++)
		one(i);
	end("dynamic", trips);
	begin();
#pragma omp parallel for schedule(guided)
	for (int64_t i = 0; i < trips; i++)
		one(i);
	end("guided", trips);
	begin();
#pragma omp parallel num_threads(3)
#pragma omp for schedule(static) lastprivate(last)
	for (int i = 0; i < (int)trips; i++) {
		last = i;
		one(i);
	}
	end("three threads", trips);
	if (trips && last != trips - 1) {
		printf("last is %d of %lld\n", last, (long long)trips);
		wrong = 1;
	}
	/* A region in a region, and one of a single thread. */
	begin();
#pragma omp parallel num_threads(2)
#pragma omp for schedule(static)
	for (int64_t i = 0; i < trips; i++) {
		int sum = 0;

#pragma omp parallel for num_threads(2) reduction(+ : sum)
		for (int j = 0; j < 100; j++)
			sum += j;
		if (sum == 4950)
			one(i);
	}
	end("nested", trips);
	begin();
#pragma omp parallel for if (trips < 0)
	for (int64_t i = 0; i < trips; i++)
		one(i);
	end("serial", trips);
	/* Two loops of one region give a thread the same iterations: no barrier is between them. */
	begin();
	static int of[MOST];
#pragma omp parallel
	{
#pragma omp for schedule(static) nowait
		for (int64_t i = 0; i < trips; i++)
			of[i] = omp_get_thread_num();
#pragma omp for schedule(static)
		for (int64_t i = 0; i < trips; i++)
			if (of[i] == omp_get_thread_num())
				one(i);
	}
	end("nowait", trips);
	begin();
#pragma omp parallel sections
	{
#pragma omp section
		one(0);
#pragma omp section
		one(1);
#pragma omp section
		one(2);
	}
	end("sections", 3);
}

int main(int argc, char **argv)
{
	static const int64_t sizes[] = { 0, 1, 2, 3, 7, 64, 100, 127, 128, 1000, 1024, 4999 };
	unsigned rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;

	omp_set_max_active_levels(2);
	for (unsigned round = 0; round < rounds; round++)
		for (unsigned size = 0; size < sizeof(sizes) / sizeof(sizes[0]); size++) {
			loops(sizes[size]);
			others(sizes[size]);
		}
	printf("%u unequal, %s\n", unequal, wrong ? "WRONG" : "right");
	return wrong;
}
