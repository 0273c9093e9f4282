// SPDX-License-Identifier: GPL-2.0-only
/*
 * libscx_hetero_spin.so: makes programs tell scx_hetero when they wait actively, by
 *
 *	LD_PRELOAD=libscx_hetero_spin.so PROGRAM
 *
 * libscx_hetero_advice.so does so, too, and has parallel regions run as is advised (team.h).
 *
 * This file stands between the program and libgomp (GCC's OpenMP), and pthread's spin
 * locks; ompt.c and kmp.c do for LLVM's libomp. What glibc waits for asleep (pthread barriers, mutexes) needs no word: what
 * sleeps retires nothing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>

#include "real.h"
#include "scx_hetero_spin.h"
#include "team.h"

/*
 * Threads that wait in a barrier of libgomp do tasks meanwhile, and that cannot be
 * seen from here: in a program that has tasks, barriers do not count as waiting.
 */
static bool has_tasks;

static bool begin_barrier(void)
{
	if (__atomic_load_n(&has_tasks, __ATOMIC_RELAXED))
		return false;
	scx_hetero_spin_begin();
	team_waits(true);
	return true;
}

static void end_barrier(bool begun)
{
	if (!begun)
		return;
	team_waits(false);
	scx_hetero_spin_end();
}

/* As many arguments as any version has, of which the real one takes what it knows. */
#define TASK(name)								\
void name(long a, long b, long c, long d, long e, long f, long g, long h,	\
	  long i, long j, long k, long l)					\
{										\
	__atomic_store_n(&has_tasks, true, __ATOMIC_RELAXED);			\
	REAL(name)(a, b, c, d, e, f, g, h, i, j, k, l);				\
}

TASK(GOMP_task)
TASK(GOMP_taskloop)
TASK(GOMP_taskloop_ull)

/* --- Barriers, also those at the ends of loops and sections ---------------------- */

#define BARRIER(type, name)							\
type name(void)									\
{										\
	bool begun = begin_barrier();						\
	type result = REAL(name)();						\
										\
	end_barrier(begun);							\
	return result;								\
}

#define VOID_BARRIER(name)							\
void name(void)									\
{										\
	bool begun = begin_barrier();						\
										\
	REAL(name)();								\
	end_barrier(begun);							\
}

VOID_BARRIER(GOMP_barrier)
VOID_BARRIER(GOMP_loop_end)
VOID_BARRIER(GOMP_sections_end)
BARRIER(bool, GOMP_barrier_cancel)
BARRIER(bool, GOMP_loop_end_cancel)
BARRIER(bool, GOMP_sections_end_cancel)
BARRIER(void *, GOMP_single_copy_start)

/* --- Parallel regions ------------------------------------------------------------- */

int omp_get_level(void);
int omp_get_max_threads(void);

typedef void body_t(void *);

struct region {
	body_t *body;
	void *data;
#ifdef SCX_HETERO_WITH_ADVICE
	struct team_plan plan;
#endif
};

/* This thread is through with its part of a region, and begins no other. */
static __thread bool docked;

static void undock(void)
{
	end_barrier(docked);
	docked = false;
}

/*
 * Each thread of a team comes here. What follows the body is the barrier at the
 * region's end, and for all but the first thread the wait for the next region.
 */
static void run_part(void *arg)
{
#ifdef SCX_HETERO_WITH_ADVICE
	struct region *mine = arg;
	struct team_work work;

	undock();
	team_work_begin(&work, &mine->plan, 0);
	mine->body(mine->data);
	/* As if all had as much to do. */
	team_work_end(&work, 1);
#else
	struct region region = *(struct region *)arg;

	undock();
	region.body(region.data);
#endif
	docked = begin_barrier();
}

/*
 * How many threads a region is to be asked for, where the program wants so many, 0 as many as usual.
 * Static loops cannot be divided here: GCC has their bounds in the program itself.
 */
static unsigned begin_region(struct region *region, unsigned threads)
{
#ifdef SCX_HETERO_WITH_ADVICE
	struct team_plan *plan = &region->plan;

	plan->ours = plan->shares = plan->counts = false;
	if (!threads && !REAL(omp_get_level)())
		team_begin(plan, (const void *)region->body, REAL(omp_get_max_threads)(), true, false);
	if (plan->ours && plan->threads)
		return plan->threads;
#else
	(void)region;
#endif
	return threads;
}

static void end_region(struct region *region)
{
	undock();
#ifdef SCX_HETERO_WITH_ADVICE
	if (region->plan.ours)
		team_end(&region->plan, region->plan.threads ? region->plan.threads :
					(unsigned)REAL(omp_get_max_threads)());
#else
	(void)region;
#endif
}

#define REGION_BODY(name, ...)							\
	struct region region = { .body = body, .data = data };			\
										\
	threads = begin_region(&region, threads);				\
	REAL(name)(run_part, &region, __VA_ARGS__);				\
	end_region(&region);

void GOMP_parallel(body_t *body, void *data, unsigned threads, unsigned flags)
{
	REGION_BODY(GOMP_parallel, threads, flags)
}

unsigned GOMP_parallel_reductions(body_t *body, void *data, unsigned threads, unsigned flags)
{
	struct region region = { .body = body, .data = data };
	unsigned result;

	threads = begin_region(&region, threads);
	result = REAL(GOMP_parallel_reductions)(run_part, &region, threads, flags);
	end_region(&region);
	return result;
}

void GOMP_parallel_sections(body_t *body, void *data, unsigned threads, unsigned count,
			    unsigned flags)
{
	REGION_BODY(GOMP_parallel_sections, threads, count, flags)
}

#define LOOP(name)								\
void name(body_t *body, void *data, unsigned threads, long start, long end,	\
	  long step, long chunk, unsigned flags)				\
{										\
	REGION_BODY(name, threads, start, end, step, chunk, flags)		\
}

#define RUNTIME_LOOP(name)							\
void name(body_t *body, void *data, unsigned threads, long start, long end,	\
	  long step, unsigned flags)						\
{										\
	REGION_BODY(name, threads, start, end, step, flags)			\
}

LOOP(GOMP_parallel_loop_static)
LOOP(GOMP_parallel_loop_dynamic)
LOOP(GOMP_parallel_loop_guided)
LOOP(GOMP_parallel_loop_nonmonotonic_dynamic)
LOOP(GOMP_parallel_loop_nonmonotonic_guided)
RUNTIME_LOOP(GOMP_parallel_loop_runtime)
RUNTIME_LOOP(GOMP_parallel_loop_nonmonotonic_runtime)
RUNTIME_LOOP(GOMP_parallel_loop_maybe_nonmonotonic_runtime)

/* --- Locks -------------------------------------------------------------------------- */

#define WAIT(call)								\
	scx_hetero_spin_begin();						\
	call;									\
	scx_hetero_spin_end();

void GOMP_critical_start(void)
{
	WAIT(REAL(GOMP_critical_start)())
}

void GOMP_critical_name_start(void **lock)
{
	WAIT(REAL(GOMP_critical_name_start)(lock))
}

void GOMP_ordered_start(void)
{
	WAIT(REAL(GOMP_ordered_start)())
}

/* Who gets a lock at once does not wait. The types are opaque here. */
int omp_test_lock(void *lock);
int omp_test_nest_lock(void *lock);

void omp_set_lock(void *lock)
{
	if (!REAL(omp_test_lock)(lock)) {
		WAIT(REAL(omp_set_lock)(lock))
	}
}

void omp_set_nest_lock(void *lock)
{
	if (!REAL(omp_test_nest_lock)(lock)) {
		WAIT(REAL(omp_set_nest_lock)(lock))
	}
}

int pthread_spin_lock(pthread_spinlock_t *lock)
{
	int error;

	if (!pthread_spin_trylock(lock))
		return 0;
	WAIT(error = REAL(pthread_spin_lock)(lock))
	return error;
}
