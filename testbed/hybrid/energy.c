// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Energy: of each core by what it does, of the rest of the package and of memory,
 * and Intel's registers for it (RAPL), from which Linux' powercap and perf know.
 *
 * A core that runs takes leakage, so much for a cycle, and so much for what its
 * instructions do; one that sleeps takes the watts of a state that grows deeper
 * with time, or that the guest chose (idle.c). Energies hold at the voltage of the highest clock: switching goes
 * with its square, leakage with its cube. All this is settled from the totals, once
 * in a window, before clocks change, and when asked for.
 *
 * Two threads of a core have one leakage, one clock and one sleep: while both run, each
 * pays half, and the core sleeps when both do.
 *
 * testbed/machine has multiplied energies by the time scale, as the guest's second
 * has that many times fewer instructions: joules in a guest's second are real watts.
 */
#include <math.h>
#include <string.h>

#include "model.h"

enum {
	RAPL_POWER_UNIT = 0x606, PKG_POWER_LIMIT = 0x610, PKG_ENERGY_STATUS = 0x611,
	PKG_POWER_INFO = 0x614, DRAM_ENERGY_STATUS = 0x619, PP0_ENERGY_STATUS = 0x639,
};
/* Units as Alder Lake has them: 1/8 W, 2^-14 J, 2^-10 s. */
#define POWER_BITS 3
#define ENERGY_BITS 14
#define TIME_BITS 10
#define ENABLED (1u << 15)
/* Registers do not begin at 0: drivers take a meter that shows 0 for a missing one. */
#define BEFORE_J 1.0
#define LEAST_SHARE 0.1 /* of the highest clock, whatever the budget */

static struct meter {
	uint64_t seen[N_MODES][N_EVENTS], lines; /* what has been settled */
	double cycles, ref, ns;
	double slept_ns; /* how long it has been asleep */
	double nj;
	/* Of two threads: what is not settled, as the other has not come so far. */
	double wait_busy, wait_clock_nj;
	double shared_ns; /* of the first: until when both are settled */
} meters[MAX_CPUS];
struct sums {
	double cores_nj, uncore_nj, dram_nj;
};
static struct {
	double ns, idle_ns; /* settled until; all asleep since then */
	struct sums sum;
} package;
/* By the RMID of the task that ran (rdt.c): programs in monitoring groups of their own
 * are told apart by it. Idle CPUs' is the default group's, 0. */
static double rmid_nj[MAX_RMIDS];
static double charged_nj[MAX_CPUS]; /* of each CPU, what is in there */
/* What the guest has asked for, all of one moment. */
static struct {
	double cpu_nj[MAX_CPUS], rmid_nj[MAX_RMIDS];
	struct sums sum;
} shown;
static struct {
	uint64_t limit; /* the register */
	bool set;
	double ns, nj, average, recent, share;
} budget = { .share = 1 };

static double voltage(const struct type_energy *e, double mhz)
{
	unsigned i = 1;

	if (mhz <= e->volts[0].mhz || e->n_volts == 1)
		return e->volts[0].volt;
	while (i < e->n_volts - 1 && mhz > e->volts[i].mhz)
		i++;
	double part = (mhz - e->volts[i - 1].mhz) / (e->volts[i].mhz - e->volts[i - 1].mhz);
	return e->volts[i - 1].volt + fmin(part, 1) * (e->volts[i].volt - e->volts[i - 1].volt);
}

double energy_voltage(const struct core_type *t, double mhz)
{
	return voltage(&t->energy, mhz) / voltage(&t->energy, t->turbo_mhz[0]);
}

/* What sleeping from `from` to `until` after falling asleep takes: of the core, in the shallower state of two. */
static double idle_nj(const struct cpu *c, double from, double until)
{
	const struct type_energy *e = &c->type->energy;
	unsigned state = c->state;
	double nj = 0;

	if (c->smt.sibling && c->smt.sibling->state < state)
		state = c->smt.sibling->state;
	if (c->type->n_states)
		return (until - from) * c->type->state[state].watts;
	for (unsigned i = 0; i < e->n_idle; i++) {
		double begin = fmax(from, e->idle[i].after_ns);
		double end = i + 1 < e->n_idle ? fmin(until, e->idle[i + 1].after_ns) : until;

		if (end > begin)
			nj += (end - begin) * e->idle[i].watts;
	}
	return nj;
}

static void take(struct meter *m, double nj)
{
	if (!started)
		return;
	m->nj += nj;
	package.sum.cores_nj += nj;
}

static void settle_cpu(struct cpu *c, double now_ns)
{
	struct meter *m = &meters[c->index];
	const struct type_energy *e = &c->type->energy;
	double volts = energy_voltage(c->type, c->mhz);
	double switching = 0, cycles = 0, ref = 0;

	for (unsigned mode = 0; mode < N_MODES; mode++) {
		const struct totals *t = &c->total[mode];

		for (unsigned k = 0; k < N_EVENTS; k++) {
			switching += (t->n[k] - m->seen[mode][k]) * e->nj[k];
			m->seen[mode][k] = t->n[k];
		}
		cycles += t->cycles;
		ref += t->ref;
	}
	double clock = (cycles - m->cycles) * e->cycle_nj;
	double busy = (ref - m->ref) * 1e3 / machine.ref_mhz;
	/* A sleeper's own clock stands still until it wakes. */
	double ns = c->asleep ? fmax(c->ns, now_ns) : c->ns;
	double idle = fmax(ns - m->ns - busy, 0);
	double lines = c->lines - m->lines;

	m->cycles = cycles;
	m->ref = ref;
	m->ns += busy + idle; /* asked for between windows, it may be ahead */
	m->lines = c->lines;
	if (started)
		package.sum.dram_nj += lines * machine.energy.dram_nj;
	double leakage = busy * e->leakage_w * volts * volts * volts * heat_leakage();
	if (c->smt.sibling) { /* the rest is the core's: settle_core() */
		m->wait_busy += busy;
		m->wait_clock_nj += clock * volts * volts + leakage;
		take(m, switching * volts * volts);
		return;
	}
	if (busy > 0)
		m->slept_ns = 0;
	take(m, (switching + clock) * volts * volts + leakage +
		idle_nj(c, m->slept_ns, m->slept_ns + idle));
	m->slept_ns = c->asleep ? m->slept_ns + idle : 0;
}

/*
 * What two threads share, until the time that both have come to. How their busy times
 * lay within that is not known, so they are taken for independent of each other.
 */
static void settle_core(const struct cpu *c)
{
	const struct cpu *thread[2] = { c, c->smt.sibling };
	struct meter *first = &meters[c->index];
	double from = first->shared_ns, until = INFINITY;
	double busy[2], nj[2];

	for (unsigned i = 0; i < 2; i++)
		until = fmin(until, meters[thread[i]->index].ns);
	double span = until - from;
	if (span <= 0)
		return;
	for (unsigned i = 0; i < 2; i++) {
		struct meter *m = &meters[thread[i]->index];
		double part = span / (m->ns - from);

		busy[i] = fmin(part * m->wait_busy, span);
		nj[i] = part * m->wait_clock_nj;
		m->wait_busy -= part * m->wait_busy;
		m->wait_clock_nj -= nj[i];
	}
	double both = busy[0] * busy[1] / span;
	double idle = span - (busy[0] + busy[1] - both);

	if (busy[0] + busy[1] > 0)
		first->slept_ns = 0;
	double idle_each = idle_nj(c, first->slept_ns, first->slept_ns + idle) / 2;
	for (unsigned i = 0; i < 2; i++)
		take(&meters[thread[i]->index],
		     idle_each + (busy[i] > 0 ? nj[i] * (1 - both / busy[i] / 2) : 0));
	first->slept_ns = thread[0]->asleep && thread[1]->asleep ? first->slept_ns + idle : 0;
	first->shared_ns = until;
}

static void settle(double now_ns)
{
	double passed = fmax(now_ns - package.ns, 0);
	double idle = fmin(package.idle_ns, passed);

	for (unsigned i = 0; i < machine.n_cpus; i++)
		if (cpus[i].type)
			settle_cpu(&cpus[i], now_ns);
	for (unsigned i = 0; i < machine.n_cpus; i++)
		if (cpus[i].smt.sibling > &cpus[i]) /* each core once */
			settle_core(&cpus[i]);
	package.ns = fmax(package.ns, now_ns);
	package.idle_ns = 0;
	if (!started)
		return;
	package.sum.uncore_nj += idle * machine.energy.idle_w + (passed - idle) * machine.energy.uncore_w;
	package.sum.dram_nj += passed * machine.energy.dram_w;
}

void energy_settle_core(struct cpu *c)
{
	struct cpu *s = c->smt.sibling;

	if (!machine.energy.on)
		return;
	settle_cpu(c, c->ns);
	if (s) {
		settle_cpu(s, c->ns);
		settle_core(s < c ? s : c);
	}
}

void energy_warp(double ns)
{
	package.idle_ns += fmax(ns, 0);
}

/* --- the package's budget -------------------------------------------------------- */

static uint64_t watts_field(double watts)
{
	return (uint64_t)lround(watts * (1 << POWER_BITS)) & 0x7fff;
}

/* 2^y (1 + z/4) units of time: the nearest below. */
static uint64_t time_field(double seconds)
{
	double units = fmax(seconds * (1 << TIME_BITS), 1);
	unsigned y = fmin(floor(elementary_log2(units)), 31);
	unsigned z = fmin(floor((units / elementary_exp2(y) - 1) * 4), 3);

	return y | z << 5;
}

static double seconds_of(unsigned field)
{
	return elementary_exp2(field & 0x1f) * (1 + (field >> 5 & 3) / 4.0) / (1 << TIME_BITS);
}

static uint64_t limit(void)
{
	const struct machine_energy *e = &machine.energy;

	if (!budget.set) {
		budget.set = true;
		if (e->pl1_w > 0)
			budget.limit |= watts_field(e->pl1_w) | ENABLED |
					time_field(e->pl1_s) << 17;
		if (e->pl2_w > 0)
			budget.limit |= (watts_field(e->pl2_w) | ENABLED) << 32;
	}
	return budget.limit;
}

/*
 * Two budgets: PL2 now, PL1 on average. What is left of the average's may be spent,
 * less and less of it, so that the average comes to PL1 from below and stays.
 */
static void spend(double now_ns)
{
	double ns = now_ns - budget.ns;
	double nj = package.sum.cores_nj + package.sum.uncore_nj;
	double allowed = INFINITY;
	uint64_t l = limit();

	if (ns <= 0)
		return;
	double watts = (nj - budget.nj) / ns;
	budget.ns = now_ns;
	budget.nj = nj;
	heat_window(watts, ns);
	budget.recent += (1 - elementary_exp(-ns / 1e6)) * (watts - budget.recent);
	if (l & ENABLED) {
		double pl1 = (l & 0x7fff) / (double)(1 << POWER_BITS);

		budget.average += (1 - elementary_exp(-ns / 1e9 / seconds_of(l >> 17 & 0x7f))) *
				  (watts - budget.average);
		allowed = pl1 + 8 * fmax(pl1 - budget.average, 0);
	}
	if (l >> 32 & ENABLED)
		allowed = fmin(allowed, (l >> 32 & 0x7fff) / (double)(1 << POWER_BITS));
	allowed = fmin(allowed, heat_limit_w());
	double step = 0.01 * (allowed / fmax(budget.recent, 1e-3) - 1);
	budget.share *= 1 + fmin(fmax(step, -0.05), 0.02);
	budget.share = fmin(fmax(budget.share, LEAST_SHARE), 1);
}

void energy_window(double now_ns)
{
	if (!machine.energy.on)
		return;
	settle(now_ns);
	spend(now_ns);
}

double energy_limit(const struct core_type *t)
{
	return budget.share < 1 ? budget.share * t->turbo_mhz[0] : INFINITY;
}

/* --- what the guest sees ----------------------------------------------------------- */

static uint64_t status(double nj)
{
	return (uint64_t)((nj * 1e-9 + BEFORE_J) * (1 << ENERGY_BITS)) & 0xffffffff;
}

/* Makes energies those of this moment, as a CPU sees it that runs. */
static void settle_now(unsigned cpu)
{
	cpu_flush(&cpus[cpu]);
	settle(cpus[cpu].ns);
}

static void charge(unsigned cpu, unsigned rmid)
{
	rmid_nj[rmid] += meters[cpu].nj - charged_nj[cpu];
	charged_nj[cpu] = meters[cpu].nj;
}

void energy_switch(unsigned cpu, unsigned from)
{
	if (!machine.energy.on)
		return;
	cpu_flush(&cpus[cpu]);
	settle_cpu(&cpus[cpu], cpus[cpu].ns);
	charge(cpu, from);
}

bool energy_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val)
{
	if (!machine.energy.on)
		return false;
	if (heat_rdmsr(msr, val))
		return true;
	switch (msr) {
	case RAPL_POWER_UNIT:
		*val = POWER_BITS | ENERGY_BITS << 8 | TIME_BITS << 16;
		return true;
	case PKG_POWER_LIMIT:
		*val = limit();
		return true;
	case PKG_POWER_INFO:
		*val = watts_field(machine.energy.pl1_w) | watts_field(machine.energy.pl2_w) << 32;
		return true;
	case PKG_ENERGY_STATUS:
		settle_now(cpu);
		*val = status(package.sum.cores_nj + package.sum.uncore_nj);
		return true;
	case PP0_ENERGY_STATUS:
		settle_now(cpu);
		*val = status(package.sum.cores_nj);
		return true;
	case DRAM_ENERGY_STATUS:
		settle_now(cpu);
		*val = status(package.sum.dram_nj);
		return true;
	}
	return false;
}

bool energy_wrmsr(unsigned cpu, uint32_t msr, uint64_t val)
{
	if (!machine.energy.on || msr != PKG_POWER_LIMIT)
		return false;
	budget.set = true;
	budget.limit = val;
	return true;
}

uint64_t energy_total(const struct cpu *asks, unsigned what, unsigned of)
{
	if (!machine.energy.on)
		return 0;
	switch (what) {
	case TOTAL_PACKAGE_UJ:
		settle_now(asks->index);
		for (unsigned i = 0, n = 0; i < machine.n_cpus; i++)
			if (cpus[i].type)
				shown.cpu_nj[n++] = meters[i].nj;
		for (unsigned i = 0; i < machine.n_cpus; i++)
			charge(i, rdt_rmid(i));
		memcpy(shown.rmid_nj, rmid_nj, sizeof rmid_nj);
		shown.sum = package.sum;
		return (shown.sum.cores_nj + shown.sum.uncore_nj) / 1e3;
	case TOTAL_UNCORE_UJ: return shown.sum.uncore_nj / 1e3;
	case TOTAL_DRAM_UJ: return shown.sum.dram_nj / 1e3;
	case TOTAL_RMID_UJ: return of < MAX_RMIDS ? shown.rmid_nj[of] / 1e3 : 0;
	case TOTAL_CPU_UJ: return of < MAX_CPUS ? shown.cpu_nj[of] / 1e3 : 0;
	}
	return 0;
}

double energy_of(unsigned type)
{
	double nj = 0;

	if (type == machine.n_types)
		return package.sum.dram_nj;
	for (unsigned i = 0; i < machine.n_cpus; i++)
		if (cpus[i].type == &machine.type[type])
			nj += meters[i].nj;
	return nj;
}
