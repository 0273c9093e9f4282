// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parallel regions and static loops of LLVM's OpenMP (libomp), by what Clang and Flang call.
 *
 * A region runs as part of ours, which has the plan that all its threads go by: it is made before the
 * first of them begins, and does not change. So two loops of one region that have as many iterations
 * are divided alike, which programs may rely on where they say `nowait`.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "real.h"
#include "team.h"

typedef void kmpc_micro(int32_t *gtid, int32_t *tid, ...);

int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_get_max_threads(void);
int omp_get_level(void);
int kmp_get_blocktime(void);
void kmp_set_blocktime(int ms);
int32_t __kmpc_global_thread_num(void *loc);
void __kmpc_push_num_threads(void *loc, int32_t gtid, int32_t threads);
void __kmpc_fork_call(void *loc, int32_t argc, kmpc_micro *body, ...);
int __kmp_invoke_microtask(kmpc_micro *body, int gtid, int tid, int argc, void *argv[],
			   void **exit_frame);

/* A program without OpenMP has none of these, and must begin all the same. */
#define omp_get_thread_num() REAL(omp_get_thread_num)()
#define omp_get_num_threads() REAL(omp_get_num_threads)()
#define omp_get_max_threads() REAL(omp_get_max_threads)()
#define omp_get_level() REAL(omp_get_level)()

/* What all threads of a region have. */
struct region {
	kmpc_micro *body;
	void **argv;
	int argc;
	struct team_plan plan;
	unsigned threads; /* that it has */
};

/* That which this thread runs a part of; those outside of it are on its stack. */
static __thread struct region *region;

/* Iterations of its part that this thread did. */
static __thread uint64_t iterations;

/* Before a region: the program says itself how many threads it is to have. */
static __thread bool asked;

static void run_part(int32_t *gtid, int32_t *tid, struct region *mine)
{
	struct region *outer = region;
	uint64_t outside = iterations;
	struct team_work work;
	void *frame = NULL;

	region = mine;
	iterations = 0;
	team_work_begin(&work, &mine->plan, *tid);
	if (*tid == 0)
		mine->threads = omp_get_num_threads();
	REAL(__kmp_invoke_microtask)(mine->body, *gtid, *tid, mine->argc, mine->argv, &frame);
	team_work_end(&work, iterations);
	iterations = outside;
	region = outer;
}

static void fork_region(void *loc, int argc, kmpc_micro *body, void **argv)
{
	struct region mine;
	bool may_be_fewer = !asked;
	int spins = 0;

	asked = false;
	mine.body = body;
	mine.argc = argc;
	mine.argv = argv;
	mine.threads = 1;
	mine.plan.ours = mine.plan.shares = mine.plan.counts = mine.plan.lets_go = false;
	/* Regions in regions are the program's own affair. */
	if (omp_get_level() == 0) {
		team_begin(&mine.plan, (const void *)body, omp_get_max_threads(), may_be_fewer, true);
		if (mine.plan.threads)
			REAL(__kmpc_push_num_threads)(loc,
						      REAL(__kmpc_global_thread_num)(loc),
						      mine.plan.threads);
	}
	/* Threads sleep at once where they wait in the end, so that those that are not needed next do. */
	if (mine.plan.lets_go) {
		spins = REAL(kmp_get_blocktime)();
		REAL(kmp_set_blocktime)(0);
	}
	REAL(__kmpc_fork_call)(loc, 1, (kmpc_micro *)run_part, &mine);
	if (mine.plan.lets_go)
		REAL(kmp_set_blocktime)(spins);
	team_end(&mine.plan, mine.threads);
}

void __kmpc_push_num_threads(void *loc, int32_t gtid, int32_t threads)
{
	asked = true;
	REAL(__kmpc_push_num_threads)(loc, gtid, threads);
}

void __kmpc_fork_call(void *loc, int32_t argc, kmpc_micro *body, ...)
{
	void *argv[argc > 0 ? argc : 1];
	va_list list;

	va_start(list, body);
	for (int i = 0; i < argc; i++)
		argv[i] = va_arg(list, void *);
	va_end(list);
	fork_region(loc, argc, body, argv);
}

/* --- Static loops -------------------------------------------------------------------- */

/* One block of iterations for each thread, as `schedule(static)` has it; without modifiers. */
#define SCHEDULE_STATIC 34
#define SCHEDULE_MODIFIERS (3u << 29)

/*
 * `first` and `last` are the loop's, `*lower` and `*upper` what this thread got, if it is to have
 * what is due to its core type. Numbers are unsigned and wrap, as the loop's do.
 */
#define STATIC_INIT(name, type, wide)							\
void name(void *loc, int32_t gtid, int32_t schedule, int32_t *is_last, type *lower,	\
	  type *upper, wide *stride, wide step, wide chunk)				\
{											\
	struct region *mine = region;							\
	const type first = *lower, last = *upper;					\
	uint64_t trips, begin, count;							\
											\
	REAL(name)(loc, gtid, schedule, is_last, lower, upper, stride, step, chunk);	\
	if (!mine || !mine->plan.ours ||						\
	    (schedule & ~SCHEDULE_MODIFIERS) != SCHEDULE_STATIC || !step ||		\
	    (step > 0 ? last < first : first < last))					\
		return;									\
	/* All but one of the iterations: of all there may be 2^64. */			\
	trips = step > 0 ? ((uint64_t)last - (uint64_t)first) / (uint64_t)step :	\
		((uint64_t)first - (uint64_t)last) / -(uint64_t)step;			\
	if (sizeof(type) == 4)								\
		trips &= UINT32_MAX;							\
	if (trips == UINT64_MAX || omp_get_level() != 1)				\
		return;									\
	trips++;									\
	if (!team_part(&mine->plan, omp_get_thread_num(), omp_get_num_threads(), trips,	\
		       &begin, &count)) {						\
		/* As libomp divides them. */						\
		iterations += trips / omp_get_num_threads() +				\
			      ((uint64_t)omp_get_thread_num() < trips % omp_get_num_threads()); \
		return;									\
	}										\
	iterations += count;								\
	if (is_last)									\
		*is_last = count && begin + count == trips;				\
	/* Of none, begins after its end: there are two iterations at least. */		\
	if (!count) {									\
		begin = 1;								\
		*upper = first;								\
	} else {									\
		*upper = (type)((uint64_t)first + (begin + count - 1) * (uint64_t)step);	\
	}										\
	*lower = (type)((uint64_t)first + begin * (uint64_t)step);			\
}

STATIC_INIT(__kmpc_for_static_init_4, int32_t, int32_t)
STATIC_INIT(__kmpc_for_static_init_4u, uint32_t, int32_t)
STATIC_INIT(__kmpc_for_static_init_8, int64_t, int64_t)
STATIC_INIT(__kmpc_for_static_init_8u, uint64_t, int64_t)
