// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Intel's monitoring and allocation of last-level caches (RDT: CMT, MBM and CAT), from
 * which Linux makes resctrl. The guest gives each CPU the RMID and the class of service
 * (CLOS) of the task that it runs. A line belongs to the RMID that filled it; a class fills
 * only the ways of its mask, and hits in all.
 *
 * A set is kept most recently used first, as in cache.c, and each line knows its way. All
 * that a class does takes place among the positions of its ways: with a mask of all ways it
 * is what cache.c does, and classes without a way in common are caches of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum {
	QM_EVTSEL = 0xc8d, QM_CTR = 0xc8e, PQR_ASSOC = 0xc8f, L3_MASK_0 = 0xc90,
};
enum { OCCUPANCY = 1, TOTAL_BYTES, LOCAL_BYTES }; /* events of QM_EVTSEL */
#define ERROR (1ull << 63)
#define WIDTH 32 /* of the counters of lines moved, as newer CPUs have it */

struct tagged {
	uint32_t line; /* 0 is empty */
	uint16_t rmid;
	uint8_t way;
};
struct rdt {
	struct tagged *lines; /* sets x ways, most recently used first */
	uint32_t all, mask[MAX_CLOS];
	uint64_t occupied[MAX_RMIDS], missed[MAX_RMIDS]; /* lines */
};

static struct {
	uint16_t rmid;
	uint8_t clos;
	uint64_t select;
} assoc[MAX_CPUS];

void rdt_init(struct llc *l)
{
	const struct cache *k = &l->cache;
	struct rdt *r;

	if (!machine.resctrl.rmids)
		return;
	if (k->ways > 32)
		fail("resctrl has masks of up to 32 ways, not %u", k->ways);
	r = l->rdt = calloc(1, sizeof *r);
	if (!r || !(r->lines = calloc((size_t)k->sets * k->ways, sizeof *r->lines)))
		fail("no memory for the tags of an LLC of %u KiB", l->kib);
	r->all = ~0u >> (32 - k->ways);
	for (unsigned i = 0; i < MAX_CLOS; i++)
		r->mask[i] = r->all;
	for (size_t i = 0; i < (size_t)k->sets * k->ways; i++)
		r->lines[i].way = i % k->ways;
}

/* At which positions of a set, from the most recently used on, ways of a mask are. */
static uint32_t positions(const struct rdt *r, const struct tagged *set, unsigned ways, uint32_t mask)
{
	uint32_t at = 0;

	if (mask == r->all)
		return mask;
	for (unsigned i = 0; i < ways; i++)
		at |= (mask >> set[i].way & 1) << i;
	return at;
}

static unsigned nth(uint32_t at, unsigned n)
{
	if (!(at & (at + 1))) /* all from the first on */
		return n;
	while (n--)
		at &= at - 1;
	return __builtin_ctz(at);
}

bool rdt_access(const struct cpu *c, uint32_t line)
{
	const struct cache *k = &c->llc->cache;
	struct rdt *r = c->llc->rdt;
	struct tagged *set = r->lines + (size_t)cache_set(k, line) * k->ways;
	uint32_t mask = r->mask[assoc[c->index].clos], mine;
	unsigned at, to;

	for (at = 0; at < k->ways; at++)
		if (set[at].line == line) {
			struct tagged hit = set[at];

			mine = positions(r, set, k->ways, mask);
			/* In another class's way, it takes no place from its own class's lines. */
			if (!(mine >> at & 1))
				mine ^= r->all;
			to = nth(mine, __builtin_popcount(mine & ((1u << at) - 1)) / 2);
			set[at] = set[to];
			set[to] = hit;
			return true;
		}

	mine = positions(r, set, k->ways, mask);
	at = 31 - __builtin_clz(mine);
	to = nth(mine, __builtin_popcount(mine) / 2);
	struct tagged fill = { .line = line, .rmid = assoc[c->index].rmid, .way = set[at].way };

	if (set[at].line)
		r->occupied[set[at].rmid]--;
	r->occupied[fill.rmid]++;
	r->missed[fill.rmid]++;
	for (; at > to; at--)
		set[at] = set[at - 1];
	set[to] = fill;
	return false;
}

bool rdt_cpuid(const struct cpu *c, uint32_t leaf, uint32_t sub, uint32_t regs[4])
{
	const struct resctrl *m = &machine.resctrl;

	if (!m->rmids)
		return false;
	if (leaf == 7) {
		if (sub == 0)
			regs[1] |= 1 << 12 | 1 << 15;
		return true;
	}
	memset(regs, 0, 4 * sizeof *regs);
	if (leaf == 0xf && sub == 0) {
		regs[1] = m->rmids - 1;
		regs[3] = 1 << 1; /* L3 */
	} else if (leaf == 0xf && sub == 1) {
		regs[0] = WIDTH - 24;
		regs[1] = LINE; /* what counters count, in bytes */
		regs[2] = m->rmids - 1;
		regs[3] = 1 << (OCCUPANCY - 1) | 1 << (TOTAL_BYTES - 1) | 1 << (LOCAL_BYTES - 1);
	} else if (leaf == 0x10 && sub == 0) {
		regs[1] = 1 << 1; /* L3 */
	} else if (leaf == 0x10 && sub == 1) {
		regs[0] = c->llc->ways - 1;
		regs[3] = m->clos - 1;
	}
	return true;
}

static uint64_t counted(unsigned cpu)
{
	const struct rdt *r = cpus[cpu].llc->rdt;
	uint64_t rmid = assoc[cpu].select >> 32;

	if (rmid >= machine.resctrl.rmids)
		return ERROR;
	switch (assoc[cpu].select & 0xff) {
	case OCCUPANCY:
		return r->occupied[rmid];
	case TOTAL_BYTES:
	case LOCAL_BYTES: /* there is one memory */
		return r->missed[rmid] & ((1ull << WIDTH) - 1);
	}
	return ERROR;
}

bool rdt_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val)
{
	if (!machine.resctrl.rmids)
		return false;
	if (msr == PQR_ASSOC)
		*val = assoc[cpu].rmid | (uint64_t)assoc[cpu].clos << 32;
	else if (msr == QM_EVTSEL)
		*val = assoc[cpu].select;
	else if (msr == QM_CTR)
		*val = counted(cpu);
	else if (msr >= L3_MASK_0 && msr < L3_MASK_0 + machine.resctrl.clos)
		*val = cpus[cpu].llc->rdt->mask[msr - L3_MASK_0];
	else
		return false;
	return true;
}

/* What real ones answer with a fault is left as it was. */
unsigned rdt_rmid(unsigned cpu)
{
	return assoc[cpu].rmid;
}

bool rdt_wrmsr(unsigned cpu, uint32_t msr, uint64_t val)
{
	if (!machine.resctrl.rmids)
		return false;
	if (msr == PQR_ASSOC) {
		if ((uint32_t)val < machine.resctrl.rmids && val >> 32 < machine.resctrl.clos) {
			if ((uint32_t)val != assoc[cpu].rmid)
				energy_switch(cpu, assoc[cpu].rmid);
			assoc[cpu].rmid = val;
			assoc[cpu].clos = val >> 32;
		}
	} else if (msr == QM_EVTSEL) {
		assoc[cpu].select = val;
	} else if (msr >= L3_MASK_0 && msr < L3_MASK_0 + machine.resctrl.clos) {
		if (val && !(val & ~(uint64_t)cpus[cpu].llc->rdt->all))
			cpus[cpu].llc->rdt->mask[msr - L3_MASK_0] = val;
	} else if (msr != QM_CTR) {
		return false;
	}
	return true;
}
