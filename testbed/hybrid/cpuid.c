// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What CPUID says where a hybrid machine differs from QEMU's CPU, and the few
 * leaves of our own by which guest programs reach the model (see guest/hybrid.c).
 */
#include <string.h>

#include "model.h"

unsigned order(unsigned n)
{
	unsigned o = 0;

	while (1u << o < n)
		o++;
	return o;
}

static void cache_leaf(uint32_t regs[4], unsigned kind, unsigned level, unsigned sharing,
		       unsigned kib, unsigned ways)
{
	unsigned ids = 1u << order(sharing);

	regs[0] = kind | level << 5 | 1 << 8 | (ids - 1) << 14 |
		  ((1u << order(machine.n_cpus)) - 1) << 26;
	regs[1] = (LINE - 1) | (ways - 1) << 22;
	regs[2] = kib * 1024 / LINE / ways - 1;
	regs[3] = 0;
}

/* The counters that all core types have: Linux' driver knows what some have beyond. */
static void common_counters(unsigned *general, unsigned *fixed)
{
	*general = *fixed = ~0u;
	for (unsigned i = 0; i < machine.n_types; i++) {
		const struct core_type *t = &machine.type[i];

		*general = t->counters < *general ? t->counters : *general;
		*fixed = t->fixed_counters < *fixed ? t->fixed_counters : *fixed;
	}
}

unsigned llc_ids(const struct llc *l)
{
	unsigned from = machine.n_cpus, to = 0;

	for (unsigned i = 0; i < machine.n_clusters; i++) {
		const struct cluster *c = &machine.cluster[i];

		if (&machine.llc[c->llc] != l)
			continue;
		from = c->first < from ? c->first : from;
		to = c->first + c->ids > to ? c->first + c->ids : to;
	}
	return to - from;
}

static void caches(const struct cpu *c, uint32_t sub, uint32_t regs[4])
{
	const struct cluster *l = c->cluster;
	unsigned core = machine.ids_of_core;

	memset(regs, 0, 4 * sizeof *regs);
	if (sub < 2)
		cache_leaf(regs, sub + 1, 1, core, c->type->l1_kib, c->type->l1_ways);
	else if (sub == 2 && l->l2_kib)
		cache_leaf(regs, 3, 2, l->shared_l2 ? l->ids : core, l->l2_kib, l->l2_ways);
	else if (sub == 2 + (l->l2_kib != 0))
		cache_leaf(regs, 3, l->l2_kib ? 3 : 2, llc_ids(c->llc), c->llc->kib, c->llc->ways);
}

static bool control(struct cpu *c, uint32_t leaf, uint32_t sub, uint32_t regs[4])
{
	uint64_t value = 0;

	switch (leaf) {
	case CONTROL:
		memset(regs, 0, 16);
		regs[0] = SIGNATURE;
		memcpy(regs + 1, machine.name, strnlen(machine.name, 12));
		return true;
	case CONTROL_START:
		model_start();
		break;
	case CONTROL_STOP:
		model_stop();
		break;
	case CONTROL_TOTAL: {
		cpu_flush(c);
		const struct totals *t = &c->total[sub & OF_KERNEL ? KERNEL : USER];
		unsigned e = sub & 0xff;

		value = e < N_EVENTS ? t->n[e] : e == TOTAL_CYCLES ? t->cycles :
			e == TOTAL_STALLED ? t->stalled : e == TOTAL_REF ? t->ref :
			e == TOTAL_MHZ ? c->mhz :
			e >= TOTAL_HFI ? hfi_total(e, sub >> 16) : energy_total(c, e, sub >> 16);
		break;
	}
	default:
		return false;
	}
	regs[0] = value;
	regs[1] = regs[2] = 0;
	regs[3] = value >> 32;
	return true;
}

bool cpuid_fix(unsigned cpu, uint32_t leaf, uint32_t sub, uint32_t regs[4])
{
	struct cpu *c = &cpus[cpu];
	unsigned general, fixed;

	if (leaf >= CONTROL && leaf <= CONTROL + 0xff)
		return control(c, leaf, sub, regs);
	if (leaf == 0xb) { /* QEMU has the shifts right, and takes all cores for equal */
		if (machine.ids_of_core == 1 || sub > 1)
			return false;
		regs[1] = sub ? machine.present : c->cluster->threads;
		return true;
	}
	if (machine.amd)
		return amd_cpuid(c, leaf, sub, regs);
	switch (leaf) {
	case 0:
		regs[0] = 0x1a; /* not higher: 0x1f would speak of the topology again */
		return true;
	case 1:
		hfi_cpuid(cpu, leaf, regs);
		return true;
	case 4:
		caches(c, sub, regs);
		return true;
	case 6:
		regs[0] |= 1 << 1 | 1 << 7 | 1 << 10; /* turbo; HWP with a preference */
		if (machine.energy.thermal_r > 0)
			regs[0] |= 1 << 0 | 1 << 6; /* thermometers of cores and package */
		regs[2] |= 1;                         /* APERF and MPERF */
		hfi_cpuid(cpu, leaf, regs);
		return true;
	case 7:
		if (sub == 0 && machine.hybrid)
			regs[3] |= 1 << 15;
		rdt_cpuid(c, leaf, sub, regs);
		return true;
	case 0xa:
		regs[0] = regs[1] = regs[2] = regs[3] = 0;
		if (!c->type->counters)
			return true; /* like most virtual machines: no PMU at all */
		common_counters(&general, &fixed);
		regs[0] = 5 | general << 8 | 48 << 16 | 8 << 24;
		regs[1] = 1 << 7; /* no topdown slots event */
		regs[2] = (1u << fixed) - 1;
		regs[3] = fixed | 48 << 5 | 1 << 15;
		return true;
	case 0xf:
	case 0x10:
		return rdt_cpuid(c, leaf, sub, regs);
	case 0x15: /* the TSC counts nanoseconds */
		regs[0] = regs[1] = 1;
		regs[2] = 1000000000;
		regs[3] = 0;
		return true;
	case 0x16:
		regs[0] = 1000;
		regs[1] = c->type->max_ratio * 100;
		regs[2] = 100;
		regs[3] = 0;
		return true;
	case 0x80000007:
		/* The TSC does not change with the clock; else Linux takes time for what clocks make of it. */
		regs[3] |= 1 << 8;
		return true;
	case 0x1a:
		regs[0] = machine.hybrid ? c->type->cpuid_type << 24 | 1 : 0;
		regs[1] = regs[2] = regs[3] = 0;
		return true;
	}
	return false;
}
