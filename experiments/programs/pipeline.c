// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two pipelines, of the kinds that PARSEC (Bienia 2011) has: items go through stages, several at a time, and leave in the
 * order in which they came. A thread takes the item that is farthest; the last stage is that of thread 0 alone, which
 * works in the others, too, while the next item to leave is not there yet.
 *
 * dedup    cuts, hashes, and compresses; half of the items are known already, and need not be compressed
 * ferret   four stages to find pictures that are alike, each with as much to do for every item
 */
#include <pthread.h>
#include <stdlib.h>

#include "programs.h"

#define ITEMS 16 /* in flight */
#define STAGES 4 /* and one more, in which items leave */

struct stage {
	unsigned int integer, fp; /* rounds */
};

struct pipeline_kind {
	struct stage stage[STAGES], last;
	int skips; /* the stage that each second item has nothing to do in, or -1 */
};

struct item {
	unsigned int stage; /* STAGES: may leave */
	bool taken;
	uint64_t value;
};

struct pipeline {
	const struct pipeline_kind *kind;
	struct team *team;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	struct item item[ITEMS];
	uint64_t next; /* to leave */
	uint64_t seed;
	bool over;
};

static uint64_t work(const struct stage *stage, uint64_t seed)
{
	uint64_t value = stage->integer ? integer_rounds(seed, stage->integer) : seed;

	return stage->fp ? fp_rounds(value, stage->fp) : value;
}

/* Under the lock: the oldest item that no thread has, as it is the farthest; NULL: there is none. */
static struct item *take(struct pipeline *p)
{
	for (uint64_t i = 0; i < ITEMS; i++) {
		struct item *item = &p->item[(p->next + i) % ITEMS];

		if (!item->taken && item->stage < STAGES) {
			item->taken = true;
			return item;
		}
	}
	return NULL;
}

/* Under the lock, which is free meanwhile. */
static void move_on(struct pipeline *p, struct item *item)
{
	pthread_mutex_unlock(&p->lock);
	if ((int)item->stage != p->kind->skips || item->value % 2)
		item->value = work(&p->kind->stage[item->stage], item->value);
	pthread_mutex_lock(&p->lock);
	item->stage++;
	item->taken = false;
	pthread_cond_broadcast(&p->moved);
}

static void run(void *state, unsigned int thread)
{
	struct pipeline *p = state;

	(void)thread;
	pthread_mutex_lock(&p->lock);
	while (!p->over) {
		struct item *item = take(p);

		if (item)
			move_on(p, item);
		else
			pthread_cond_wait(&p->moved, &p->lock);
	}
	pthread_mutex_unlock(&p->lock);
}

static void enter(struct pipeline *p, struct item *item)
{
	p->seed = scramble(p->seed);
	*item = (struct item){ .value = p->seed };
}

static struct pipeline *create(const struct options *options, const struct pipeline_kind *kind)
{
	struct pipeline *p = allocate(sizeof(*p));

	*p = (struct pipeline){ .kind = kind, .seed = options->seed };
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->moved, NULL);
	for (int i = 0; i < ITEMS; i++)
		enter(p, &p->item[i]);
	p->team = team_start(options, run, p);
	return p;
}

static uint64_t unit(void *state)
{
	struct pipeline *p = state;
	struct item *first;
	uint64_t value;

	pthread_mutex_lock(&p->lock);
	first = &p->item[p->next % ITEMS];
	while (first->stage < STAGES) {
		struct item *item = take(p);

		if (item)
			move_on(p, item);
		else
			pthread_cond_wait(&p->moved, &p->lock);
	}
	value = first->value;
	enter(p, first);
	p->next++;
	pthread_cond_broadcast(&p->moved);
	pthread_mutex_unlock(&p->lock);
	return work(&p->kind->last, value);
}

static void destroy(void *state)
{
	struct pipeline *p = state;

	pthread_mutex_lock(&p->lock);
	p->over = true;
	pthread_cond_broadcast(&p->moved);
	pthread_mutex_unlock(&p->lock);
	team_join(p->team);
	pthread_cond_destroy(&p->moved);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static const struct pipeline_kind dedup_kind = {
	.stage = { { 2048, 0 }, { 4096, 0 }, { 8192, 0 }, { 32768, 0 } },
	.last = { 2048, 0 },
	.skips = 3,
};

static const struct pipeline_kind ferret_kind = {
	.stage = { { 4096, 0 }, { 0, 8192 }, { 8192, 4096 }, { 0, 16384 } },
	.last = { 1024, 0 },
	.skips = -1,
};

static void *create_dedup(const struct options *options)
{
	return create(options, &dedup_kind);
}

static void *create_ferret(const struct options *options)
{
	return create(options, &ferret_kind);
}

const struct program dedup = {
	.name = "dedup",
	.summary = "a pipeline in which half of the items are soon done",
	.accepts = TAKES(OPT_THREADS),
	.threads = 4,
	.create = create_dedup,
	.unit = unit,
	.destroy = destroy,
};

const struct program ferret = {
	.name = "ferret",
	.summary = "a pipeline of four stages of integers and floating point",
	.accepts = TAKES(OPT_THREADS),
	.threads = 4,
	.create = create_ferret,
	.unit = unit,
	.destroy = destroy,
};
