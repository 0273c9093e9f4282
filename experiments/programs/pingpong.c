// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two threads that write one line in turns, each as soon as it has seen the other's
 * write: what a line costs on its way from one CPU to another, and nothing else.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "programs.h"

#define ROUND_TRIPS 256 /* in a unit: 512 times the line changes its CPU */
#define PATIENCE 4096   /* looks; by then the other thread is not running */

struct pingpong {
	struct team *team;
	uint64_t seed, done;
	_Alignas(LINE) atomic_uint_least64_t turn; /* even: thread 0's */
	_Alignas(LINE) atomic_bool ends;
};

static inline void relax(unsigned int *looks)
{
	if (++*looks % PATIENCE == 0)
		sched_yield();
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void run(void *state, unsigned int thread)
{
	struct pingpong *p = state;

	while (true) {
		uint64_t turn;
		unsigned int looks = 0;

		while ((turn = atomic_load_explicit(&p->turn, memory_order_acquire)) % 2 != thread) {
			if (p->ends)
				return;
			relax(&looks);
		}
		atomic_store_explicit(&p->turn, turn + 1, memory_order_release);
	}
}

static void *create(const struct options *options)
{
	struct pingpong *p = allocate(sizeof(*p));

	*p = (struct pingpong){ .seed = options->seed };
	p->team = team_start(options, run, p);
	return p;
}

static uint64_t unit(void *state)
{
	struct pingpong *p = state;

	for (unsigned int i = 0; i < ROUND_TRIPS; i++) {
		uint64_t turn = atomic_load_explicit(&p->turn, memory_order_relaxed);
		unsigned int looks = 0;

		atomic_store_explicit(&p->turn, turn + 1, memory_order_release);
		while (atomic_load_explicit(&p->turn, memory_order_acquire) != turn + 2)
			relax(&looks);
	}
	return scramble(p->seed + p->done++ + p->turn);
}

static void destroy(void *state)
{
	struct pingpong *p = state;

	p->ends = true;
	team_join(p->team);
	free(p);
}

const struct program pingpong = {
	.name = "pingpong",
	.summary = "two threads that write one line in turns",
	.threads = 2,
	.create = create,
	.unit = unit,
	.destroy = destroy,
};
