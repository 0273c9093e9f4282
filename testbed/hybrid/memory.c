// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Beyond the L1: L2, the last-level cache that CPUs share, the bus from it to
 * memory, and the memory controller that all share.
 *
 * A bus is not a queue of single requests: vCPUs run one after another, each a
 * little ahead of the other, so the order of their requests means nothing. What
 * was moved in a window of virtual time sets the latency of the next one:
 *
 *   latency = unloaded x (1 + load^2 / 2) x queue
 *
 * where `queue` grows for as long as more than 95 % of the capacity is asked for,
 * and shrinks again to 1. CPUs wait for their misses, so they then ask for less:
 * it settles where what is moved is what the bus can move.
 */
#include <math.h>

#include "model.h"

#define FULL 0.95
#define GAIN 0.25
#define SMOOTH 0.2

/* A miss next to a recent one: a prefetcher has seen it coming. */
static bool in_stream(struct cpu *c, uint32_t line)
{
	for (unsigned i = 0; i < 8; i++)
		if (c->streams[i] + 1 == line || c->streams[i] - 1 == line) {
			c->streams[i] = line;
			return true;
		}
	c->streams[c->next_stream] = line;
	c->next_stream = (c->next_stream + 1) % 8;
	return false;
}

static double factor(const struct bus *b)
{
	return (1 + b->load * b->load / 2) * b->queue;
}

void memory_access(struct cpu *c, enum mode m, uint32_t line, bool store, bool chases)
{
	const struct core_type *t = c->type;
	uint32_t *pending = c->pending[m];
	double overlap = chases ? 1 : t->overlap;
	bool sequential = in_stream(c, line);

	pending[L1_MISS - N_CLASSES]++;
	if (c->l2) {
		if (cache_access(c->l2, cache_set(c->l2, line), line)) {
			/* The next line of a stream is on its way already. */
			if (!sequential)
				c->pending_cycles += t->l2_cycles / overlap;
			return;
		}
		pending[L2_MISS - N_CLASSES]++;
	} else {
		pending[L2_MISS - N_CLASSES]++;
	}

	struct llc *llc = c->llc;
	if (cache_access(&llc->cache, cache_set(&llc->cache, line), line)) {
		c->pending_cycles += t->llc_cycles / overlap / (sequential ? 4 : 1);
		return;
	}
	pending[LLC_MISS - N_CLASSES]++;
	/* A line that was written has to go back some time. */
	double bytes = store ? 2 * LINE : LINE;
	llc->bus.bytes += bytes;
	machine.memory.bytes += bytes;
	llc->transfers += store ? 2 : 1;

	double ns = machine.memory_ns * factor(&llc->bus) * factor(&machine.memory) / overlap;
	if (sequential)
		ns -= t->prefetch_ns;
	if (ns > 0)
		c->pending_ns += ns;
}

static void bus_window(struct bus *b, double ns)
{
	if (b->bytes_per_ns <= 0)
		return;
	double use = b->bytes / (b->bytes_per_ns * ns);
	b->bytes = 0;
	b->load += SMOOTH * (fmin(use, 1) - b->load);
	b->queue = fmin(fmax(b->queue * exp(GAIN * (use - FULL)), 1), 100);
}

void memory_window(double ns)
{
	for (unsigned i = 0; i < machine.n_llcs; i++)
		bus_window(&machine.llc[i].bus, ns);
	bus_window(&machine.memory, ns);
}

void clock_window(double now_ns, double ns)
{
	double busy[MAX_TYPES] = { 0 };

	for (unsigned i = 0; i < machine.n_cpus; i++) {
		busy[cpus[i].type - machine.type] += fmin(cpus[i].busy_ns / ns, 1);
		cpus[i].busy_ns = 0;
	}
	for (unsigned i = 0; i < machine.n_cpus; i++) {
		const struct core_type *t = cpus[i].type;
		unsigned n = (unsigned)lround(busy[t - machine.type]);
		double mhz = t->turbo_mhz[n < 1 ? 0 : n > t->n_turbo ? t->n_turbo - 1 : n - 1];

		for (unsigned e = 0; e < t->n_thermal; e++)
			if (now_ns - started_ns >= t->thermal[e].at_ns &&
			    now_ns - started_ns < t->thermal[e].until_ns)
				mhz = fmin(mhz, t->thermal[e].mhz);
		cpus[i].mhz = mhz;
	}
}
