// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lines that more than one CPU uses: what another CPU wrote last has to come from
 * there, and that takes longer the farther it is.
 *
 * A directory knows, by physical line, which CPU wrote last and which ones have seen
 * that. It is direct-mapped: of lines that fall on one entry it forgets the older one,
 * and for what it has forgotten the model is that of the caches alone.
 *
 * A CPU asks it seldom, because it keeps two views of what it has been told: lines that
 * it may read, and those that it may write without telling any other CPU. They are
 * by the tag of its L1, which has no physical address; all who use a line by the
 * directory's word use it by one tag, or else lose sight of it and ask again.
 *
 * CPUs run one after another, each a little ahead of others. So that a line is not read
 * before it is written, its reader waits for the time of the write. One that has spun
 * until it saw the write may be late: the line has been on its way to it since then.
 *
 * Stores that only have to tell readers cost nothing: a store buffer hides them.
 */
#include <math.h>
#include <stdlib.h>

#include "model.h"

#define LINES_BITS 14 /* of the directory: a MiB of what was used last */
#define NONE 0xff
#define SPIN_NS 1000 /* since a PAUSE: what it looks at now is what it waits for */

static struct entry {
	uint32_t line, tag;
	uint64_t seen; /* by these CPUs since the last write; 0: an empty entry */
	double ns;     /* of that write */
	uint8_t writer;
} *directory;

void coherence_init(void)
{
	if (!machine.latency.on)
		return;
	directory = calloc(1u << LINES_BITS, sizeof *directory);
	for (unsigned i = 0; i < machine.n_cpus; i++)
		if (cpus[i].type)
			cpus[i].view = calloc(1, sizeof *cpus[i].view);
	if (!directory)
		fail("no memory for a directory of lines");
}

static void hide(struct entry *e, uint64_t from)
{
	for (uint64_t left = from & e->seen; left; left &= left - 1) {
		struct view *v = cpus[__builtin_ctzll(left)].view;

		if (v->read[e->tag % VIEW] == e->tag)
			v->read[e->tag % VIEW] = ~e->tag;
		if (v->write[e->tag % VIEW] == e->tag)
			v->write[e->tag % VIEW] = ~e->tag;
	}
}

/* Whether a CPU still has what it wrote; else it is where the caches have it. */
static bool holds(const struct cpu *c, uint32_t line, uint32_t tag)
{
	return !c->l2 || cache_holds(c->l2, cache_set(c->l2, line), line) ||
	       cache_holds(&c->l1, (tag ^ c->space) & (c->l1.sets - 1), tag);
}

enum distance cpu_distance(const struct cpu *a, const struct cpu *b)
{
	if (a->smt.sibling == b)
		return SIBLING;
	if (a->llc != b->llc || a->type != b->type)
		return OTHER;
	/* Where there is no L2, the last level is what a cluster shares. */
	return a->cluster == b->cluster && (a->cluster->shared_l2 || !a->l2) ? CLUSTER : LLC;
}

bool coherence_access(struct cpu *c, uint32_t line, uint32_t tag, bool store, double now,
		      struct transfer *t)
{
	struct entry *e = &directory[(line * 2654435769u) >> (32 - LINES_BITS)];
	uint64_t me = 1ull << c->index;
	bool spins = now - c->paused_ns < SPIN_NS;
	bool moves;

	if (e->line != line || !e->seen) {
		hide(e, e->seen);
		*e = (struct entry){ .line = line, .tag = tag, .writer = NONE };
	} else if (e->tag != tag) {
		hide(e, e->seen);
		e->tag = tag;
	}
	moves = !(e->seen & me) && e->writer != NONE && e->writer != c->index &&
		holds(&cpus[e->writer], line, tag);
	if (moves)
		*t = (struct transfer){
			.from = &cpus[e->writer],
			.wait_ns = fmin(fmax(e->ns - now, spins ? -WINDOW_NS : 0), WINDOW_NS),
			.contended = fabs(now - e->ns) < WINDOW_NS,
		};
	if (store) {
		hide(e, ~me);
		e->seen = me;
		e->writer = c->index;
		e->ns = now;
		c->view->write[tag % VIEW] = tag;
	} else {
		if (e->writer != NONE && e->writer != c->index) {
			struct view *v = cpus[e->writer].view;

			if (v->write[tag % VIEW] == tag)
				v->write[tag % VIEW] = ~tag;
		}
		e->seen |= me;
	}
	c->view->read[tag % VIEW] = tag;
	return moves;
}
