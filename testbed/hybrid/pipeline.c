// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a block of instructions costs by what surrounds each of them: once for each
 * translated block and core type.
 *
 * A block is priced as if it followed itself, as in a loop: what it leaves in its
 * registers is what it begins with. Two bounds come of that, in cycles:
 *
 *   throughput: the width, each kind of port, bytes of code, one taken branch
 *   chain:      what the longest chain of dependences grows by with each round
 *
 * Out of order, a round takes the greater of them, and of the lesser the share that
 * does not pass beside it (`hide`); nor is more in flight than the window has room
 * for. In order, instructions are issued one after the other, each when its operands
 * are there. What passes through memory, from a store to a load, is no dependence.
 */
#include <math.h>

#include "model.h"

#define REGISTERS 34
#define ROUNDS 4 /* by then the chain that grows fastest is the longest, mostly */

struct rounds {
	double ready[REGISTERS]; /* when the register's value is there */
	double end;              /* of all that was begun */
	double issue;            /* in order: of the last one */
	double free[N_UNITS], load_free, store_free;
};

static double latest(const struct rounds *r, uint64_t registers, double when)
{
	for (; registers; registers &= registers - 1)
		when = fmax(when, r->ready[__builtin_ctzll(registers)]);
	return when;
}

static void written(struct rounds *r, uint64_t registers, double when)
{
	for (; registers; registers &= registers - 1)
		r->ready[__builtin_ctzll(registers)] = when;
	r->end = fmax(r->end, when);
}

static double latency(const struct pipeline *p, const struct operands *o)
{
	return o->unit == NO_UNIT ? 0 : p->latency[o->unit];
}

static void dataflow(const struct pipeline *p, struct rounds *r, const struct operands *o)
{
	double loaded = o->load ? latest(r, o->address, 0) + p->load_latency : 0;

	written(r, o->writes, latest(r, o->reads, loaded) + latency(p, o));
}

static double claim(double *free, double when, double ports)
{
	when = fmax(when, *free);
	*free = when + 1 / ports;
	return when;
}

static void in_order(const struct pipeline *p, struct rounds *r, const struct operands *o)
{
	double when = latest(r, o->reads | o->address, r->issue);

	if (o->unit != NO_UNIT)
		when = claim(&r->free[o->unit], when, p->ports[o->unit]);
	if (o->load)
		when = claim(&r->load_free, when, p->load_ports);
	if (o->store)
		when = claim(&r->store_free, when, p->store_ports);
	r->issue = when + 1 / p->width;
	written(r, o->writes, when + (o->load ? p->load_latency : 0) + latency(p, o));
}

static double throughput(const struct pipeline *p, const struct operands *insn, unsigned n, unsigned bytes)
{
	unsigned used[N_UNITS] = { 0 }, loads = 0, stores = 0;
	double bound = fmax(n / p->width, bytes / p->fetch);

	for (unsigned i = 0; i < n; i++) {
		loads += insn[i].load;
		stores += insn[i].store;
		if (insn[i].unit != NO_UNIT)
			used[insn[i].unit]++;
	}
	for (unsigned k = 0; k < N_UNITS; k++)
		bound = fmax(bound, used[k] / p->ports[k]);
	if (used[BRANCH_UNIT]) /* the last one, and it is taken mostly */
		bound = fmax(bound, 1);
	return fmax(bound, fmax(loads / p->load_ports, stores / p->store_ports));
}

double pipeline_cycles(const struct pipeline *p, const struct operands *insn, unsigned n, unsigned bytes)
{
	double bound = throughput(p, insn, n, bytes);
	struct rounds r = { 0 };
	double first = 0, before = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		before = p->window > 0 ? r.end : r.issue;
		for (unsigned i = 0; i < n; i++)
			(p->window > 0 ? dataflow : in_order)(p, &r, &insn[i]);
		if (!round)
			first = r.end;
	}
	if (p->window <= 0)
		return fmax(bound, r.issue - before);
	double chain = fmax(r.end - before, first * fmin(n / p->window, 1));
	return fmax(bound, chain) + (1 - p->hide) * fmin(bound, chain);
}

double pipeline_hides(const struct pipeline *p, double stalled, double misses, double compute,
		      uint64_t insns)
{
	/* Until the window is full of what came after the miss. */
	double room = insns ? misses * p->window * compute / insns : 0;

	return p->hide * fmin(fmin(stalled, compute), room);
}
