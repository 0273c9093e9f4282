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

/*
 * A miss next to a recent one: a prefetcher has seen it coming. By virtual address,
 * or speed would depend on how the kernel happens to lay out pages.
 */
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

static bool llc_access(const struct cpu *c, uint32_t line)
{
	struct cache *k = &c->llc->cache;

	return c->llc->rdt ? rdt_access(c, line) : cache_access(k, cache_set(k, line), line);
}

void memory_access(struct cpu *c, uint32_t address, uint32_t line, bool store, bool chases)
{
	const struct core_type *t = c->type;
	uint64_t *n = c->total[USER].n;
	/* How many misses like this one are on their way at a time. */
	bool sequential = in_stream(c, address);
	double together = sequential ? t->prefetch : chases ? 1 : fmax(t->overlap * c->smt.flight, 1);

	/* With a pipeline, what does not wait for this line may run on. */
	bool beside = t->pipeline.on && !chases;

	n[L1_MISS]++;
	if (beside)
		c->beside_misses += 1 / together;
	if (c->l2 && cache_access(c->l2, cache_set(c->l2, line), line)) {
		c->pending_cycles += t->l2_cycles / together;
		if (beside)
			c->beside_cycles += t->l2_cycles / together;
		return;
	}
	n[L2_MISS]++;

	struct llc *llc = c->llc;
	c->pending_cycles += t->llc_cycles / together;
	if (beside)
		c->beside_cycles += t->llc_cycles / together;
	if (llc_access(c, line))
		return;
	n[LLC_MISS]++;
	/* A line that was written has to go back some time. */
	double bytes = store ? 2 * LINE : LINE;
	llc->bus.bytes += bytes;
	machine.memory.bytes += bytes;
	c->lines += store ? 2 : 1;

	double ns = machine.memory_ns * noise_memory * factor(&llc->bus) * factor(&machine.memory);
	double waits = (ns + (sequential ? 0 : t->walk_ns)) / together;
	c->pending_ns += waits;
	if (beside)
		c->beside_ns += waits;
}

/*
 * Reading ahead sees those in a row, as many as misses go together. All others are
 * taken for what threads wait for each other by, where nothing goes together.
 */
void memory_transfer(struct cpu *c, uint32_t address, uint32_t line, const struct transfer *t)
{
	uint64_t *n = c->total[USER].n;
	enum distance distance = cpu_distance(c, t->from);
	double together = in_stream(c, address) ? c->type->overlap : 1;

	n[L1_MISS]++;
	if (c->l2)
		cache_access(c->l2, cache_set(c->l2, line), line);
	if (distance != SIBLING && distance != CLUSTER) {
		n[L2_MISS]++;
		llc_access(c, line);
	}
	c->pending_ns += fmax(t->wait_ns + machine.latency.ns[distance] / together, 0);
}

static void bus_window(struct bus *b, double ns)
{
	if (b->bytes_per_ns <= 0)
		return;
	double use = b->bytes / (b->bytes_per_ns * ns);
	double windows = fmin(ns / WINDOW_NS, 100); /* several if all were asleep */
	b->bytes = 0;
	b->load += (1 - elementary_pow(1 - SMOOTH, windows)) * (fmin(use, 1) - b->load);
	b->queue = fmin(fmax(b->queue * elementary_exp(GAIN * windows * (use - FULL)), 1), 100);
}

void memory_window(double ns)
{
	for (unsigned i = 0; i < machine.n_llcs; i++)
		bus_window(&machine.llc[i].bus, ns);
	bus_window(&machine.memory, ns);
}
