// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lines that more than one CPU uses: what another CPU wrote last has to come from
 * there, and that takes longer the farther it is.
 *
 * A directory knows, by physical line, which CPU wrote last and which ones have seen
 * that. It is direct-mapped: of lines that fall on one entry it forgets the older one,
 * and for what it has forgotten the model is that of the caches alone.
 *
 * A CPU asks it seldom. What is in its L1 it may read, as a write by another CPU takes the
 * line out of there; threads that share an L1 have a view instead of what each has seen.
 * And each CPU has a view of lines that it may write without telling any other CPU.
 * All this is by the tag of the L1, which has no physical address: of a line that is
 * written, the directory knows one tag, and CPUs that use it by another ask again.
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
#define PAGE_BITS 6   /* of a line's number: within a page */
#define NONE 0xff
#define SPIN_NS 1000 /* since a PAUSE: what it looks at now is what it waits for */

/* Two fit a line of the host. */
static struct entry {
	uint32_t line, tag, address; /* physical, of the L1, virtual */
	uint8_t writer;
	bool moved;    /* from one CPU to another since it is known */
	uint64_t seen; /* by these CPUs since the last write; 0: an empty entry */
	double ns;     /* of that write */
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

/* Lines of a page lie side by side, so that the host reads ahead what a program goes through in a row. */
static struct entry *entry_of(uint32_t line)
{
	uint32_t page = (line >> PAGE_BITS) * 2654435769u >> (32 - LINES_BITS + PAGE_BITS);

	return &directory[page << PAGE_BITS | (line & ((1 << PAGE_BITS) - 1))];
}

/* These CPUs have to ask about the line again, all of them or those with a view of it. */
static void hide(struct entry *e, uint64_t from, bool all)
{
	for (uint64_t left = from & e->seen; left; left &= left - 1) {
		struct cpu *c = &cpus[__builtin_ctzll(left)];
		struct view *v = c->view;

		if (all && !c->smt.sibling)
			cache_drop(&c->l1, e->address & (c->l1.sets - 1), e->tag);
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

bool coherence_access(struct cpu *c, uint32_t address, uint32_t line, bool store, struct transfer *t)
{
	uint32_t tag = address ^ c->space;
	struct entry *e = entry_of(line);
	uint64_t me = 1ull << c->index;
	bool moves;

	/* Most of what is asked is answered here: lines that no other CPU has to do with. */
	if (e->line == line && e->tag == tag && e->seen & me &&
	    (!store || (e->seen == me && e->writer == c->index))) {
		if (store) {
			e->ns = cpu_now(c);
			c->view->write[tag % VIEW] = tag;
		}
		if (c->smt.sibling)
			c->view->read[tag % VIEW] = tag;
		return false;
	}
	if (e->line != line || !e->seen) {
		/* Only of lines that go to and fro, as it costs misses. */
		hide(e, e->seen, e->moved);
		*e = (struct entry){ .line = line, .tag = tag, .address = address, .writer = NONE };
	} else if (e->tag != tag) {
		/* What is only read, such as a program's constants, may be in many places. */
		hide(e, e->seen, e->writer != NONE);
		e->tag = tag;
		e->address = address;
	}
	moves = !(e->seen & me) && e->writer != NONE && e->writer != c->index &&
		holds(&cpus[e->writer], line, tag);
	double now = moves || store ? cpu_now(c) : 0;
	if (moves) {
		bool spins = now - c->paused_ns < SPIN_NS;

		*t = (struct transfer){
			.from = &cpus[e->writer],
			.wait_ns = fmin(fmax(e->ns - now, spins ? -WINDOW_NS : 0), WINDOW_NS),
			.now_ns = now,
			.contended = fabs(now - e->ns) < WINDOW_NS,
		};
		e->moved = true;
	}
	if (store) {
		hide(e, ~me, true);
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
	if (c->smt.sibling)
		c->view->read[tag % VIEW] = tag;
	return moves;
}
