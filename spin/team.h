/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How the parallel regions of an OpenMP program are to be run: with how many threads, and with which
 * shares of its static loops. What the scheduler advises (docs/advice.md) is tried against what the
 * program would have done by itself (trial.h), and taken only where it is faster.
 *
 * Only the outermost regions of one thread, the first that has one, are looked after.
 */
#ifndef SCX_HETERO_TEAM_H
#define SCX_HETERO_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "trial.h"

#define TEAM_MOST_THREADS 256
#define TEAM_TYPES TRIAL_TYPES

/* Not for the program. */
#pragma GCC visibility push(hidden)

/* A region that runs. */
struct team_plan {
	bool ours; /* it is looked after */
	bool counts; /* its threads say how long they worked, by team_work_end() */
	bool lets_go; /* the next one has fewer threads: those that it does not need should not spin for it */
	bool shares; /* static loops are divided by core type */
	bool tried; /* it runs as its way does in the long run: what it takes is compared */
	unsigned threads; /* to be asked for; 0: as the program would */
	unsigned known; /* threads that have a core type */
	/* By number, core type + 1 that a thread is to keep to; 0: any. */
	uint8_t type[TEAM_MOST_THREADS];
	uint32_t weight[TEAM_TYPES]; /* what a thread is due, by core type */
	/* How long its threads worked, ns, and iterations of its static loops: by core type. */
	uint64_t busy[TEAM_TYPES], iterations[TEAM_TYPES];
	uint64_t all_busy, all_iterations; /* those of threads that were moved, too */
	uint64_t began;
	const void *body;
};

/*
 * A region begins. `most` are the threads that it would have, of which it can be given fewer if it
 * is `free` to have fewer. `by_speed`: its static loops can be divided by core type.
 */
void team_begin(struct team_plan *plan, const void *body, unsigned most, bool free, bool by_speed);

/* It had so many threads. */
void team_end(struct team_plan *plan, unsigned threads);

/* What a thread does of a region. */
struct team_work {
	struct team_plan *plan;
	struct team_work *outer; /* that this one is in */
	uint64_t began, waited, waits_since; /* ns */
	int cpu; /* where it was when it began */
};

/* Thread `number` begins its part of a region; `work` is its own until the part ends, with so many iterations. */
void team_work_begin(struct team_work *work, struct team_plan *plan, unsigned number);
void team_work_end(struct team_work *work, uint64_t iterations);

/* This thread begins or ends to wait for others in its part. */
#ifdef SCX_HETERO_WITH_ADVICE
void team_waits(bool begins);
#else
static inline void team_waits(bool begins)
{
	(void)begins;
}
#endif

uint64_t team_now(void);

/*
 * The part of thread `number`, of `threads`, in a loop of `trips`: from `*first` on, so many. False
 * if all are to have the same. All threads of a region get parts that follow each other without gaps; some may get none.
 */
bool team_part(const struct team_plan *plan, unsigned number, unsigned threads, uint64_t trips,
	       uint64_t *first, uint64_t *count);

#pragma GCC visibility pop

#endif /* SCX_HETERO_TEAM_H */
