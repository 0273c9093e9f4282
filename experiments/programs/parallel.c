// SPDX-License-Identifier: GPL-2.0-only
/*
 * Three programs whose threads do a unit's pieces and then meet, of the kinds that PARSEC (Bienia 2011) has:
 *
 * blackscholes   prices options by a closed formula; each thread has its own pieces, so that the slowest decides
 * swaptions      prices by random paths of interest rates; each takes the next piece when it is done with one
 * canneal        looks up places at random in a working set beyond the caches, in pieces as swaptions
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "programs.h"

#define PIECES 48

struct sharing;
struct sharing_kind {
	bool own; /* each thread has pieces of its own */
	uint64_t (*piece)(const struct sharing *sharing, uint64_t seed);
};

struct sharing {
	const struct sharing_kind *kind;
	struct team *team;
	unsigned int threads;
	pthread_barrier_t begin, end; /* of a unit */
	uint64_t seed; /* of this unit */
	struct node *nodes; /* of canneal */
	uint32_t nr_nodes;
	atomic_uint piece; /* the next to be taken */
	atomic_uint_least64_t sum;
	bool over;
};

/* libm's differ from machine to machine in the last bit. Good to nine digits for |x| < 4. */
static double exponential(double x)
{
	double y = 1 + x / 4096 + x * x / (2.0 * 4096 * 4096);

	for (int i = 0; i < 12; i++)
		y *= y;
	return y;
}

static double logarithm(double x)
{
	double y = x - 1;

	for (int i = 0; i < 4; i++)
		y += x / exponential(y) - 1;
	return y;
}

/* The cumulative normal distribution, by Abramowitz and Stegun's 26.2.17. */
static double normal(double x)
{
	double z = x < 0 ? -x : x, t = 1 / (1 + 0.2316419 * z);
	double sum = t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
	double tail = 0.39894228 * exponential(-(z < 2.8 ? z * z / 2 : 3.92)) * sum;

	return x < 0 ? tail : 1 - tail;
}

static double fraction(uint64_t *rng)
{
	return (double)(next_random(rng) >> 12) / (double)(1ull << 52);
}

static uint64_t bits_of(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* Calls of 40 options. */
static uint64_t price_options(const struct sharing *sharing, uint64_t seed)
{
	uint64_t rng = start_random(seed);
	double sum = 0;

	(void)sharing;
	for (int i = 0; i < 40; i++) {
		double price = 80 + 40 * fraction(&rng), strike = 80 + 40 * fraction(&rng);
		double rate = 0.02 + 0.05 * fraction(&rng), years = 0.25 + fraction(&rng);
		double spread = (0.1 + 0.4 * fraction(&rng)) * (0.5 + 0.5 * years);
		double d1 = (logarithm(price / strike) + rate * years) / spread + spread / 2;

		sum += price * normal(d1) - strike * exponential(-rate * years) * normal(d1 - spread);
	}
	return bits_of(sum);
}

/* 12 paths of 64 steps. */
static uint64_t price_swaptions(const struct sharing *sharing, uint64_t seed)
{
	uint64_t rng = start_random(seed);
	double sum = 0;

	(void)sharing;
	for (int path = 0; path < 12; path++) {
		double rate = 0.04, discount = 1;

		for (int step = 0; step < 64; step++) {
			double chance = fraction(&rng) + fraction(&rng) + fraction(&rng) + fraction(&rng) - 2;

			rate += 0.05 * (0.04 - rate) + 0.004 * chance;
			discount *= 1 - rate / 64;
		}
		sum += rate > 0.04 ? discount * (rate - 0.04) : 0;
	}
	return bits_of(sum);
}

/* What 400 exchanges of elements would cost in way, each with two neighbours. */
static uint64_t weigh_exchanges(const struct sharing *sharing, uint64_t seed)
{
	uint64_t rng = start_random(seed), sum = 0;

	for (int i = 0; i < 400; i++) {
		const struct node *a = &sharing->nodes[random_below(&rng, sharing->nr_nodes)];
		const struct node *b = &sharing->nodes[random_below(&rng, sharing->nr_nodes)];
		uint64_t here = (a->value ^ a->next->value) + (b->value ^ b->next->value);
		uint64_t there = (a->value ^ b->next->value) + (b->value ^ a->next->value);

		sum += there < here ? here - there : 0;
	}
	return sum;
}

static const struct sharing_kind options_kind = { true, price_options };
static const struct sharing_kind swaptions_kind = { false, price_swaptions };
static const struct sharing_kind exchanges_kind = { false, weigh_exchanges };

static void do_piece(struct sharing *s, unsigned int piece)
{
	atomic_fetch_add(&s->sum, s->kind->piece(s, s->seed + piece));
}

static void do_pieces(struct sharing *s, unsigned int thread)
{
	unsigned int piece;

	if (s->kind->own) {
		for (piece = thread; piece < PIECES; piece += s->threads)
			do_piece(s, piece);
		return;
	}
	while ((piece = atomic_fetch_add(&s->piece, 1)) < PIECES)
		do_piece(s, piece);
}

static void run(void *state, unsigned int thread)
{
	struct sharing *s = state;

	for (;;) {
		pthread_barrier_wait(&s->begin);
		if (s->over)
			return;
		do_pieces(s, thread);
		pthread_barrier_wait(&s->end);
	}
}

static struct sharing *create(const struct options *options, const struct sharing_kind *kind)
{
	struct sharing *s = allocate(sizeof(*s));

	*s = (struct sharing){ .kind = kind, .threads = options->threads, .seed = options->seed };
	if (kind == &exchanges_kind) {
		uint64_t rng = start_random(options->seed);

		s->nr_nodes = options->working_set / LINE;
		s->nodes = random_cycle(s->nr_nodes, &rng);
	}
	if (pthread_barrier_init(&s->begin, NULL, options->threads) ||
	    pthread_barrier_init(&s->end, NULL, options->threads))
		fail("cannot make a barrier for %u threads", options->threads);
	s->team = team_start(options, run, s);
	return s;
}

static void *create_blackscholes(const struct options *options)
{
	return create(options, &options_kind);
}

static void *create_swaptions(const struct options *options)
{
	return create(options, &swaptions_kind);
}

static void *create_canneal(const struct options *options)
{
	return create(options, &exchanges_kind);
}

static uint64_t unit(void *state)
{
	struct sharing *s = state;

	s->seed = scramble(s->seed);
	s->piece = 0;
	s->sum = 0;
	pthread_barrier_wait(&s->begin);
	do_pieces(s, 0);
	pthread_barrier_wait(&s->end);
	return s->sum;
}

static void destroy(void *state)
{
	struct sharing *s = state;

	s->over = true;
	pthread_barrier_wait(&s->begin);
	team_join(s->team);
	pthread_barrier_destroy(&s->begin);
	pthread_barrier_destroy(&s->end);
	free(s->nodes);
	free(s);
}

const struct program blackscholes = {
	.name = "blackscholes",
	.summary = "threads price options, equal shares of them, and meet",
	.accepts = TAKES(OPT_THREADS),
	.threads = 4,
	.create = create_blackscholes,
	.unit = unit,
	.destroy = destroy,
};

const struct program swaptions = {
	.name = "swaptions",
	.summary = "threads price swaptions by random paths, and share what is left",
	.accepts = TAKES(OPT_THREADS),
	.threads = 4,
	.create = create_swaptions,
	.unit = unit,
	.destroy = destroy,
};

const struct program canneal = {
	.name = "canneal",
	.summary = "threads look up places at random in much memory",
	.accepts = TAKES(OPT_THREADS) | TAKES(OPT_WORKING_SET),
	.threads = 4,
	.working_set_kib = 8192,
	.create = create_canneal,
	.unit = unit,
	.destroy = destroy,
};
