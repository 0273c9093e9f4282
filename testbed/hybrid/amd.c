// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What AMD's CPUs say otherwise than Intel's: the leaves of CPUID on topology, caches and
 * counters, and the registers of collaborative performance control (CPPC). Of these
 * amd-pstate makes clocks and a ranking of cores, which changes with heat; acpi.py has the
 * ACPI table that goes with them.
 */
#include <math.h>
#include <string.h>

#include "model.h"

enum {
	HWCR = 0xc0010015, CPPC_CAP1 = 0xc00102b0, CPPC_ENABLE = 0xc00102b1,
	CPPC_CAP2 = 0xc00102b2, CPPC_REQ = 0xc00102b3, CPPC_STATUS = 0xc00102b4,
};
#define TSC_COUNTS_AT_P0 (1u << 24) /* of HWCR */

static struct {
	uint64_t enabled, request;
	unsigned rank; /* highest performance, as it now is */
} cppc[MAX_CPUS];

static void cache(const struct cpu *c, uint32_t sub, uint32_t regs[4])
{
	const struct cluster *l = c->cluster;
	unsigned core = machine.ids_of_core, level, kind = 3, sharing, kib, ways;

	if (sub < 2) { /* that of instructions is said to be as large as that of data */
		level = 1, kind = sub + 1, sharing = core;
		kib = c->type->l1_kib, ways = c->type->l1_ways;
	} else if (sub == 2 && l->l2_kib) {
		level = 2, sharing = l->shared_l2 ? l->ids : core;
		kib = l->l2_kib, ways = l->l2_ways;
	} else if (sub == 2 + (l->l2_kib != 0)) {
		level = l->l2_kib ? 3 : 2, sharing = llc_ids(c->llc);
		kib = c->llc->kib, ways = c->llc->ways;
	} else {
		return;
	}
	regs[0] = kind | level << 5 | 1 << 8 | (sharing - 1) << 14;
	regs[1] = (LINE - 1) | (ways - 1) << 22;
	regs[2] = kib * 1024 / LINE / ways - 1;
}

/* Threads of a core, cores of a last-level cache, and twice all: the die and the socket. */
static void topology(const struct cpu *c, uint32_t level, uint32_t regs[4])
{
	enum { RANKED = 1 << 29, HETEROGENEOUS = 1 << 30 };
	const uint32_t asymmetric = 1u << 31;
	unsigned llc = 0, cpus = 0;

	for (unsigned i = 0; i < machine.n_llcs; i++)
		llc = llc_ids(&machine.llc[i]) > llc ? llc_ids(&machine.llc[i]) : llc;
	for (unsigned i = 0; i < machine.n_clusters; i++)
		if (&machine.llc[machine.cluster[i].llc] == c->llc)
			cpus += machine.cluster[i].cpus;
	regs[2] = level;
	regs[3] = c->index;
	switch (level) {
	case 0:
		regs[0] = order(machine.ids_of_core) | RANKED;
		regs[1] = c->cluster->threads | c->type->cpuid_type << 28;
		break;
	case 1:
		regs[0] = order(llc) | asymmetric;
		regs[1] = cpus;
		break;
	case 2:
	case 3:
		regs[0] = order(machine.n_cpus);
		regs[1] = machine.present;
		break;
	default:
		return;
	}
	if (machine.hybrid && level < 3)
		regs[0] |= HETEROGENEOUS;
	regs[2] |= (level + 1) << 8;
}

bool amd_cpuid(const struct cpu *c, uint32_t leaf, uint32_t sub, uint32_t regs[4])
{
	switch (leaf) {
	case 0:
		regs[0] = 0x10;
		return true;
	case 0x80000001:
		regs[2] &= ~(1u << 2 | 1 << 10 | 1 << 24 | 1 << 28); /* no SVM, IBS, counters beside cores */
		regs[2] |= 1 << 22;                                  /* leaves on topology */
		regs[2] |= (c->type->counters != 0) << 23;           /* six counters */
		return true;
	case 0x80000008:
		regs[1] |= 1 << 27; /* CPPC */
		regs[2] = order(machine.n_cpus) << 12 | (machine.present - 1);
		return true;
	case 0x80000002 ... 0x80000006: /* name, and caches of long ago */
		return false;
	}
	if (leaf < 0x80000000 && leaf != 6)
		return false;
	/* QEMU would answer a leaf that it does not know with another. */
	memset(regs, 0, 4 * sizeof *regs);
	switch (leaf) {
	case 6:
		regs[0] = 1 << 2; /* the timer never stops */
		regs[2] = 1;      /* APERF and MPERF */
		break;
	case 0x80000000:
		regs[0] = 0x80000026;
		memcpy(regs + 1, "Auth", 4);
		memcpy(regs + 3, "enti", 4);
		memcpy(regs + 2, "cAMD", 4);
		break;
	case 0x80000007:
		regs[3] = 1 << 7 | 1 << 8 | 1 << 9; /* P-states; the TSC never changes; boost */
		break;
	case 0x8000001d:
		cache(c, sub, regs);
		break;
	case 0x8000001e:
		regs[0] = c->index;
		regs[1] = c->index / machine.ids_of_core | (c->cluster->threads - 1) << 8;
		break;
	case 0x80000022:
		regs[0] = c->type->counters != 0; /* version 2: global control and status */
		regs[1] = c->type->counters;
		break;
	case 0x80000026:
		topology(c, sub, regs);
		break;
	}
	return true;
}

uint64_t amd_request(unsigned cpu)
{
	return cppc[cpu].enabled ? cppc[cpu].request : 0;
}

void amd_window(double now_ns)
{
	bool changed = false;

	for (unsigned i = 0; i < machine.n_cpus; i++) {
		const struct cpu *c = &cpus[i];
		unsigned rank;

		if (!c->type)
			continue;
		rank = lround(c->type->ranking[c->core] *
			      fmin(1, heat_limit(c, now_ns) / c->type->turbo_mhz[0]));
		changed |= cppc[i].rank && rank != cppc[i].rank;
		cppc[i].rank = rank;
	}
	if (changed)
		ranking_changed();
}

bool amd_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val)
{
	const struct core_type *t = cpus[cpu].type;

	switch (msr) {
	case HWCR:
		*val = TSC_COUNTS_AT_P0;
		return true;
	case CPPC_CAP1:
		*val = t->lowest_level | t->nonlinear_level << 8 | t->guaranteed_level << 16 |
		       (cppc[cpu].rank ? cppc[cpu].rank : t->ranking[cpus[cpu].core]) << 24;
		return true;
	case CPPC_ENABLE:
		*val = cppc[cpu].enabled;
		return true;
	case CPPC_REQ:
		*val = cppc[cpu].request;
		return true;
	case CPPC_CAP2:
	case CPPC_STATUS:
		*val = 0;
		return true;
	}
	return false;
}

bool amd_wrmsr(unsigned cpu, uint32_t msr, uint64_t val)
{
	switch (msr) {
	case HWCR:
	case CPPC_STATUS:
		return true;
	case CPPC_ENABLE: /* one for the package, until the next reset */
		for (unsigned i = 0; i < machine.n_cpus; i++)
			cppc[i].enabled |= val & 1;
		return true;
	case CPPC_REQ:
		cppc[cpu].request = val;
		return true;
	}
	return false;
}
