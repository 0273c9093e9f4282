// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that do as much as each other and meet after every unit: one on a slow
 * core holds up all. They wait asleep, or spinning, which to a scheduler without
 * counters looks like work.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "programs.h"

#define INTEGER_ROUNDS 16384
#define FP_ROUNDS 12288

struct meeting {
	struct team *team;
	unsigned int threads;
	bool spin;
	pthread_barrier_t asleep;
	atomic_uint arrived, met; /* of those that spin */
	uint64_t seed;
	uint64_t done; /* units, by thread 0 */
	atomic_uint_least64_t last; /* the unit after which the others end */
	/* By the parity of the unit: others begin the next while thread 0 reads this. */
	atomic_uint_least64_t sum[2];
};

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void meet(struct meeting *m)
{
	unsigned int met = m->met;

	if (!m->spin) {
		pthread_barrier_wait(&m->asleep);
	} else if (atomic_fetch_add(&m->arrived, 1) + 1 == m->threads) {
		m->arrived = 0;
		m->met++;
	} else {
		while (m->met == met)
			relax();
	}
}

static void work(struct meeting *m, unsigned int thread, uint64_t done)
{
	uint64_t seed = scramble(m->seed + done) + thread;

	atomic_fetch_add(&m->sum[done % 2], integer_rounds(seed, INTEGER_ROUNDS) +
			 fp_rounds(seed, FP_ROUNDS));
	meet(m);
}

static void run(void *state, unsigned int thread)
{
	struct meeting *m = state;
	uint64_t done = 0;

	do
		work(m, thread, done);
	while (done++ != m->last);
}

static void *create(const struct options *options)
{
	struct meeting *m = allocate(sizeof(*m));

	*m = (struct meeting){
		.threads = options->threads,
		.spin = options->spin,
		.seed = options->seed,
		.last = UINT64_MAX,
	};
	if (pthread_barrier_init(&m->asleep, NULL, m->threads))
		fail("cannot make a barrier for %u threads", m->threads);
	m->team = team_start(options, run, m);
	return m;
}

static uint64_t unit(void *state)
{
	struct meeting *m = state;
	uint64_t done = m->done++;

	work(m, 0, done);
	return atomic_exchange(&m->sum[done % 2], 0);
}

static void destroy(void *state)
{
	struct meeting *m = state;

	/* A number and not a flag: some may not have looked since the unit before. */
	m->last = m->done;
	unit(m);
	team_join(m->team);
	pthread_barrier_destroy(&m->asleep);
	free(m);
}

const struct program barrier = {
	.name = "barrier",
	.summary = "threads with equal work that meet after every unit",
	.accepts = TAKES(OPT_THREADS) | TAKES(OPT_SPIN) | TAKES(OPT_SLEEP),
	.threads = 4,
	.create = create,
	.unit = unit,
	.destroy = destroy,
};
