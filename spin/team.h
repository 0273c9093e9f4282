/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How the parallel regions of an OpenMP program are to be run: with how many threads, and with which
 * shares of its static loops. What the scheduler advises (docs/advice.md) is tried against what the
 * program would have done by itself, and taken only where it is faster.
 *
 * Only the outermost regions of one thread, the first that has one, are looked after.
 */
#ifndef SCX_HETERO_TEAM_H
#define SCX_HETERO_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#define TEAM_MOST_THREADS 256
#define TEAM_TYPES 4

/* Not for the program. */
#pragma GCC visibility push(hidden)

/* A region that runs. */
struct team_plan {
	bool ours; /* it is looked after */
	unsigned threads; /* to be asked for; 0: as the program would */
	bool shares; /* static loops are divided by `before` */
	unsigned known; /* threads that have a weight */
	/* By number, core type + 1 that a thread is to keep to; 0: any. */
	uint8_t type[TEAM_MOST_THREADS];
	/* Sums of the weights of all threads before this one, and in the end of all. */
	uint32_t before[TEAM_MOST_THREADS + 1];
	uint32_t least; /* weight */
	/* How long its threads worked, ns, and iterations of its static loops: by core type. */
	uint64_t busy[TEAM_TYPES], iterations[TEAM_TYPES];
	uint64_t all_busy, all_iterations; /* those of threads that were moved, too */
	uint64_t began;
	const void *body;
};

/*
 * A region begins. `most` are the threads that it would have, of which it can be given fewer if it
 * is `free` to have fewer. `by_speed`: its static loops can be divided by plan->before.
 */
void team_begin(struct team_plan *plan, const void *body, unsigned most, bool free, bool by_speed);

/* It had so many threads. */
void team_end(struct team_plan *plan, unsigned threads);

/* Thread `number` begins its part of a region that is looked after: on which CPU. */
int team_enter(const struct team_plan *plan, unsigned number);

/* Since it was on CPU `cpu` a thread has worked so long, ns, and done so many iterations. */
void team_did(struct team_plan *plan, int cpu, uint64_t busy, uint64_t iterations);

uint64_t team_now(void);

/*
 * The part of thread `number`, of `threads`, in a loop of `trips`: from `*first` on, so many. False
 * if all are to have the same. All threads of a region get parts that follow each other without gaps.
 */
bool team_part(const struct team_plan *plan, unsigned number, unsigned threads, uint64_t trips,
	       uint64_t *first, uint64_t *count);

#pragma GCC visibility pop

#endif /* SCX_HETERO_TEAM_H */
