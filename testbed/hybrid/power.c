// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Clocks: what turbo, heat and the guest's wishes allow (AMD's registers: amd.c), and those of
 * Intel's hardware-controlled performance states (HWP). From these Linux's
 * intel_pstate learns how fast a core type can be and gives its scheduler CPU
 * capacities, as on real hybrid machines. They speak of the clocks of the machine
 * that is modelled; the model itself runs slower by its time scale.
 */
#include <math.h>

#include "model.h"

enum {
	PLATFORM_INFO = 0xce, TURBO_RATIO_LIMIT = 0x1ad, PM_ENABLE = 0x770,
	ATOM_RATIOS = 0x66a, ATOM_TURBO_RATIOS = 0x66c,
	HWP_CAPABILITIES = 0x771, HWP_REQUEST = 0x774, HWP_STATUS = 0x777,
};
#define LOWEST 4 /* performance level */
/* Energy performance preferences: Linux' "balance_performance" and "power"; and what part of its highest clock
 * a core has at the latter. */
#define BALANCED 128
#define MOST_FRUGAL 255
#define CLIPPED 0.5

static struct {
	uint64_t enabled, request;
} power[MAX_CPUS];
static double limits[MAX_TYPES]; /* 0: no window has ended yet */

/* 0 bits mean that the guest has no wish. */
static double level_mhz(const struct core_type *t, unsigned level)
{
	if (!level || level >= t->highest_level)
		return INFINITY;
	return t->turbo_mhz[0] * fmax(level, LOWEST) / t->highest_level;
}

/*
 * The highest clock that a core chooses by an energy performance preference (EPP): docs/testbed-model.md#energy-preference.
 * It chooses it as soon as it is busy, so utilization has no part in it.
 */
static double preferred_mhz(const struct cpu *c, unsigned preference)
{
	if (preference <= BALANCED)
		return INFINITY;
	double part = (double)(preference - BALANCED) / (MOST_FRUGAL - BALANCED);
	return c->type->turbo_mhz[0] * (1 - part * (1 - CLIPPED));
}

/* The clock that the guest has asked for, or what it leaves to the core between its bounds. */
static double wish_of(const struct cpu *c)
{
	uint64_t request = machine.amd ? amd_request(c->index) :
			   power[c->index].enabled ? power[c->index].request : 0;
	unsigned most = request >> (machine.amd ? 0 : 8) & 0xff;
	unsigned least = request >> (machine.amd ? 8 : 0) & 0xff;
	unsigned desired = request >> 16 & 0xff;

	if (desired)
		return level_mhz(c->type, desired);
	double chosen = preferred_mhz(c, request >> 24 & 0xff);
	return fmin(level_mhz(c->type, most), least ? fmax(level_mhz(c->type, least), chosen) : chosen);
}

/* A core has one clock: of two threads' wishes, the faster. */
static double wished(const struct cpu *c)
{
	return c->smt.sibling ? fmax(wish_of(c), wish_of(c->smt.sibling)) : wish_of(c);
}

double heat_limit(const struct cpu *c, double now_ns)
{
	const struct core_type *t = c->type;
	double mhz = INFINITY;

	for (unsigned e = 0; e < t->n_thermal; e++)
		if (started && now_ns - started_ns >= t->thermal[e].at_ns &&
		    now_ns - started_ns < t->thermal[e].until_ns && t->thermal[e].cores >> c->core & 1)
			mhz = fmin(mhz, t->thermal[e].mhz);
	return mhz;
}

void clock_window(double now_ns, double ns)
{
	double busy[MAX_TYPES] = { 0 }, most[MAX_TYPES];

	for (unsigned i = 0; i < machine.n_cpus; i++) {
		const struct cpu *c = &cpus[i], *s = c->smt.sibling;

		if (c->type && (!s || s > c)) /* each core once */
			busy[c->type - machine.type] +=
				fmin(fmax(c->busy_ns, s ? s->busy_ns : 0) / ns, 1);
	}
	for (unsigned i = 0; i < machine.n_types; i++) {
		const struct core_type *t = &machine.type[i];
		unsigned n = (unsigned)lround(busy[i]);

		most[i] = fmin(t->turbo_mhz[n < 1 ? 0 : n > t->n_turbo ? t->n_turbo - 1 : n - 1],
			       energy_limit(t));
		limits[i] = 0;
	}
	for (unsigned i = 0; i < machine.n_cpus; i++) {
		struct cpu *c = &cpus[i];

		c->busy_ns = 0;
		if (!c->type)
			continue;
		unsigned type = c->type - machine.type;
		double mhz = fmin(most[type], heat_limit(c, now_ns));

		limits[type] = fmax(limits[type], mhz);
		c->mhz = fmin(mhz, wished(c));
		if (machine.noise.on)
			c->mhz *= c->noise;
	}
	if (machine.amd)
		amd_window(now_ns);
}

double clock_limit(const struct core_type *t)
{
	double mhz = limits[t - machine.type];

	return mhz > 0 ? mhz : t->turbo_mhz[0];
}

bool power_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val)
{
	const struct core_type *t = cpus[cpu].type;

	if (machine.amd)
		return amd_rdmsr(cpu, msr, val);
	switch (msr) {
	case PLATFORM_INFO:
		*val = 10 << 8 | (uint64_t)LOWEST << 40; /* the TSC's 1 GHz */
		return true;
	case TURBO_RATIO_LIMIT:
		*val = t->max_ratio * 0x0101010101010101;
		return true;
	/*
	 * Of Silvermont. On others reading them faults, and Linux goes on to the two above; QEMU reads 0
	 * instead, by which Linux knows no clocks, and has neither frequency invariance nor EAS.
	 */
	case ATOM_RATIOS:
		*val = 10 << 16;
		return true;
	case ATOM_TURBO_RATIOS:
		*val = t->max_ratio;
		return true;
	case PM_ENABLE:
		*val = power[cpu].enabled;
		return true;
	case HWP_CAPABILITIES:
		*val = t->highest_level | t->guaranteed_level << 8 | LOWEST << 16 | LOWEST << 24;
		return true;
	case HWP_REQUEST:
		*val = power[cpu].request;
		return true;
	case HWP_STATUS:
		*val = 0;
		return true;
	}
	return hfi_rdmsr(cpu, msr, val) || energy_rdmsr(cpu, msr, val);
}

bool power_wrmsr(unsigned cpu, uint32_t msr, uint64_t val)
{
	if (machine.amd)
		return amd_wrmsr(cpu, msr, val);
	switch (msr) {
	case PM_ENABLE:
		power[cpu].enabled |= val & 1; /* until the next reset */
		return true;
	case HWP_REQUEST:
		power[cpu].request = val;
		return true;
	case HWP_STATUS:
		return true;
	}
	return hfi_wrmsr(cpu, msr, val) || energy_wrmsr(cpu, msr, val);
}
