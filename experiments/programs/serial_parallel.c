// SPDX-License-Identifier: GPL-2.0-only
/*
 * A section that one thread runs while the others sleep, then one that all share:
 * the serial one wants the fastest core. In the parallel one each takes the next
 * piece when it is done with one, so that a slow core does less and nobody waits.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "programs.h"

#define SERIAL_ROUNDS 16384
#define PIECES 48
#define PIECE_ROUNDS 1024

struct sections {
	struct team *team;
	pthread_barrier_t begin, end; /* of the parallel section */
	uint64_t seed; /* of this unit */
	atomic_uint piece; /* the next to be taken */
	atomic_uint_least64_t sum;
	bool over;
};

static void take_pieces(struct sections *s)
{
	unsigned int piece;

	while ((piece = atomic_fetch_add(&s->piece, 1)) < PIECES)
		atomic_fetch_add(&s->sum, integer_rounds(s->seed + piece, PIECE_ROUNDS));
}

static void run(void *state, unsigned int thread)
{
	struct sections *s = state;

	(void)thread;
	for (;;) {
		pthread_barrier_wait(&s->begin);
		if (s->over)
			return;
		take_pieces(s);
		pthread_barrier_wait(&s->end);
	}
}

static void *create(const struct options *options)
{
	struct sections *s = allocate(sizeof(*s));

	*s = (struct sections){ .seed = options->seed };
	if (pthread_barrier_init(&s->begin, NULL, options->threads) ||
	    pthread_barrier_init(&s->end, NULL, options->threads))
		fail("cannot make a barrier for %u threads", options->threads);
	s->team = team_start(options, run, s);
	return s;
}

static uint64_t unit(void *state)
{
	struct sections *s = state;

	s->seed = integer_rounds(s->seed, SERIAL_ROUNDS);
	s->piece = 0;
	s->sum = 0;
	pthread_barrier_wait(&s->begin);
	take_pieces(s);
	pthread_barrier_wait(&s->end);
	return s->sum;
}

static void destroy(void *state)
{
	struct sections *s = state;

	s->over = true;
	pthread_barrier_wait(&s->begin);
	team_join(s->team);
	pthread_barrier_destroy(&s->begin);
	pthread_barrier_destroy(&s->end);
	free(s);
}

const struct program serial_parallel = {
	.name = "serial-parallel",
	.summary = "a section on one thread, then one on all, in turns",
	.accepts = TAKES(OPT_THREADS),
	.threads = 4,
	.create = create,
	.unit = unit,
	.destroy = destroy,
};
