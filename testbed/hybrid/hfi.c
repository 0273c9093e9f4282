// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Intel's hardware feedback (HFI) with Thread Director's classes: a table in the guest's
 * memory that says how fast and how efficient each CPU is at present, for each class of
 * instructions, and an interrupt when it has changed.
 *
 * A class is a mix of instructions. What a core type takes for it, in time and energy,
 * follows from the model's costs at the mean clock that turbo limits, heat and budget
 * have left in the last interval: not from what the guest has asked for, which says
 * nothing of what a CPU could do. 255 is the best that any core type does in that class
 * on a cool and idle machine, so two CPUs compare by their values in one class.
 */
#include <math.h>
#include <string.h>

#include "model.h"

enum {
	PACKAGE_THERM_STATUS = 0x1b1, PACKAGE_THERM_INTERRUPT = 0x1b2, FEEDBACK_PTR = 0x17d0,
	FEEDBACK_CONFIG = 0x17d1, THREAD_FEEDBACK_CHAR = 0x17d2, THREAD_CONFIG = 0x17d4,
};
#define UPDATED (1ull << 26)    /* of the status */
#define INTERRUPT (1ull << 25)  /* of the interrupt register: tell the guest */
#define VALID 1ull              /* of the pointer */
#define ENABLED 1ull            /* of the configuration: class 0 */
#define CLASSIFIED 2ull         /* of the configuration: the other classes, too */
#define CHAR_VALID (1ull << 63) /* of a thread's class */
#define THREAD_ENABLED 1ull
#define HEADER 16               /* bytes: the time, and what has changed */
#define ROW (HFI_CLASSES * 2)

/* Of an instruction. LLC_MISS stands for whatever waits, whose end no core hastens. */
static const double mix[HFI_CLASSES][N_EVENTS] = {
	{ [INSN] = 1, [LOAD] = 0.25, [STORE] = 0.1, [BRANCH] = 0.15, [BRANCH_MISS] = 0.005 },
	{ [INSN] = 1, [LOAD] = 0.3, [STORE] = 0.1, [BRANCH] = 0.05, [FP] = 0.4 },
	{ [INSN] = 1, [LOAD] = 0.3, [STORE] = 0.1, [BRANCH] = 0.05, [FP] = 0.6, [MUL] = 0.4 },
	{ [INSN] = 1, [LOAD] = 0.25, [STORE] = 0.1, [BRANCH] = 0.15, [LLC_MISS] = 0.05 },
};
#define FP_SHARE 0.2   /* of instructions, and a thread is of class 1 */
#define WAIT_SHARE 0.5 /* of cycles, and it is of class 3 */
#define BRIEF 1000     /* cycles that say nothing of a thread */

enum { SPEED, EFFICIENCY, N_CAPABILITIES };
static struct {
	uint64_t pointer, config, status, interrupt;
	double ns, mhz_ns[MAX_TYPES]; /* of the interval so far; clock times time */
	double mhz[MAX_TYPES];        /* mean of the last interval; 0: there was none */
	uint8_t shown[MAX_TYPES][HFI_CLASSES][N_CAPABILITIES];
} hfi;
static struct thread {
	uint64_t config;
	uint64_t insns, fp, sys;
	double cycles, stalled; /* seen at the interval's beginning */
	int class;              /* in the last interval; -1: it hardly ran */
} threads[MAX_CPUS];

/* What an instruction of a class takes at a clock: time, and energy. */
static double ns_of(const struct core_type *t, unsigned class, double mhz)
{
	double cycles = mix[class][BRANCH_MISS] * t->branch_miss;

	for (unsigned k = 0; k < N_CLASSES; k++)
		cycles += mix[class][k] * t->cost[k];
	return cycles * 1e3 / mhz + mix[class][LLC_MISS] * machine.memory_ns;
}

static double nj_of(const struct core_type *t, unsigned class, double mhz)
{
	double ns = ns_of(t, class, mhz), volts = energy_voltage(t, mhz);
	double switching = ns * mhz * 1e-3 * t->energy.cycle_nj;

	for (unsigned k = 0; k < N_EVENTS; k++)
		switching += mix[class][k] * t->energy.nj[k];
	return switching * volts * volts + ns * t->energy.leakage_w * volts * volts * volts;
}

static uint8_t capability(double best, double now)
{
	return lround(fmin(fmax(255 * best / now, 1), 255)); /* 0 would be a CPU not to be used */
}

static void capabilities(uint8_t is[MAX_TYPES][HFI_CLASSES][N_CAPABILITIES])
{
	for (unsigned class = 0; class < HFI_CLASSES; class++) {
		double ns = INFINITY, nj = INFINITY;

		for (const struct core_type *t = machine.type; t < machine.type + machine.n_types; t++) {
			ns = fmin(ns, ns_of(t, class, t->turbo_mhz[0]));
			for (unsigned v = 0; v < t->energy.n_volts; v++)
				nj = fmin(nj, nj_of(t, class, fmin(t->energy.volts[v].mhz,
								   t->turbo_mhz[0])));
		}
		for (unsigned i = 0; i < machine.n_types; i++) {
			const struct core_type *t = &machine.type[i];
			double mhz = hfi.mhz[i] > 0 ? hfi.mhz[i] : clock_limit(t);

			is[i][class][SPEED] = capability(ns, ns_of(t, class, mhz));
			is[i][class][EFFICIENCY] = capability(nj, nj_of(t, class, mhz));
		}
	}
}

/* Writes the table, unless the guest still has the last one to read, or little is new. */
static void update(double now_ns, bool first)
{
	uint8_t is[MAX_TYPES][HFI_CLASSES][N_CAPABILITIES] = { 0 };
	uint8_t table[HEADER + MAX_CPUS * ROW] = { 0 };
	unsigned classes = hfi.config & CLASSIFIED ? HFI_CLASSES : 1;
	bool changed = first;

	if (!(hfi.config & ENABLED) || !(hfi.pointer & VALID) || (hfi.status & UPDATED && !first))
		return;
	capabilities(is);
	for (unsigned i = 0; i < machine.n_types; i++)
		for (unsigned k = 0; k < classes * N_CAPABILITIES; k++) {
			int by = is[i][k / 2][k % 2] - hfi.shown[i][k / 2][k % 2];

			table[8 + k] |= by != 0 || first;
			changed |= by >= (int)machine.hfi.step || -by >= (int)machine.hfi.step;
		}
	if (!changed)
		return;
	memcpy(hfi.shown, is, sizeof is);
	uint64_t stamp = now_ns;
	memcpy(table, &stamp, sizeof stamp);
	for (unsigned i = 0; i < machine.n_cpus; i++)
		if (cpus[i].type)
			memcpy(table + HEADER + i * ROW, is[cpus[i].type - machine.type],
			       classes * N_CAPABILITIES);
	guest_write(hfi.pointer & ~0xfffull, table, HEADER + machine.n_cpus * ROW);
	hfi.status |= UPDATED;
	/* As most processors do, it tells all CPUs, of which one takes the table. */
	if (hfi.interrupt & INTERRUPT)
		for (unsigned i = 0; i < machine.n_cpus; i++)
			if (cpus[i].type)
				thermal_interrupt(i);
}

static void classify(const struct cpu *c)
{
	struct thread *h = &threads[c->index];
	const struct totals *t = &c->total[USER];
	double cycles = t->cycles - h->cycles;
	double waits = t->stalled - h->stalled + (t->n[SYS] - h->sys) * c->type->cost[SYS];

	h->class = cycles < BRIEF ? -1 : waits > WAIT_SHARE * cycles ? 3 :
		   t->n[FP] - h->fp > FP_SHARE * (t->n[INSN] - h->insns) ? 1 : 0;
	h->insns = t->n[INSN];
	h->fp = t->n[FP];
	h->sys = t->n[SYS];
	h->cycles = t->cycles;
	h->stalled = t->stalled;
}

void hfi_window(double now_ns, double ns)
{
	if (!machine.hfi.on)
		return;
	hfi.ns += ns;
	for (unsigned i = 0; i < machine.n_types; i++)
		hfi.mhz_ns[i] += clock_limit(&machine.type[i]) * ns;
	if (hfi.ns < machine.hfi.interval_ns)
		return;
	for (unsigned i = 0; i < machine.n_types; i++) {
		hfi.mhz[i] = hfi.mhz_ns[i] / hfi.ns;
		hfi.mhz_ns[i] = 0;
	}
	hfi.ns = 0;
	for (unsigned i = 0; i < machine.n_cpus; i++)
		if (cpus[i].type)
			classify(&cpus[i]);
	update(now_ns, false);
}

/* --- what the guest sees ----------------------------------------------------------- */

void hfi_cpuid(unsigned cpu, uint32_t leaf, uint32_t regs[4])
{
	if (!machine.hfi.on)
		return;
	if (leaf == 1) { /* Linux wants thermal monitoring before it looks for more */
		regs[3] |= 1 << 22 | 1 << 29;
		return;
	}
	regs[0] |= 1 << 6 | 1 << 19 | 1 << 23; /* the package's registers; HFI; classes */
	regs[2] |= HFI_CLASSES << 8;
	regs[3] = 3 | cpu << 16; /* both capabilities, in one page; this CPU's row */
}

bool hfi_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val)
{
	if (!machine.hfi.on)
		return false;
	switch (msr) {
	case PACKAGE_THERM_STATUS: /* which has the package's temperature, too */
		*val = (heat_rdmsr(msr, val) ? *val : 0) | hfi.status;
		return true;
	case PACKAGE_THERM_INTERRUPT:
		*val = hfi.interrupt;
		return true;
	case FEEDBACK_PTR:
		*val = hfi.pointer;
		return true;
	case FEEDBACK_CONFIG:
		*val = hfi.config;
		return true;
	case THREAD_FEEDBACK_CHAR:
		*val = hfi.config & CLASSIFIED && threads[cpu].config & THREAD_ENABLED &&
		       threads[cpu].class >= 0 ? CHAR_VALID | threads[cpu].class : 0;
		return true;
	case THREAD_CONFIG:
		*val = threads[cpu].config;
		return true;
	}
	return false;
}

bool hfi_wrmsr(unsigned cpu, uint32_t msr, uint64_t val)
{
	if (!machine.hfi.on)
		return false;
	switch (msr) {
	case PACKAGE_THERM_STATUS: /* zeroes clear */
		hfi.status &= val;
		return true;
	case PACKAGE_THERM_INTERRUPT:
		hfi.interrupt = val;
		return true;
	case FEEDBACK_PTR:
		hfi.pointer = val;
		return true;
	case FEEDBACK_CONFIG: {
		bool more = val & ~hfi.config & (ENABLED | CLASSIFIED);

		if (hfi.config & ~val & ENABLED)
			hfi.status |= UPDATED; /* the guest waits for it: the table is its own again */
		hfi.config = val & (ENABLED | CLASSIFIED);
		if (more)
			update(cpus[cpu].ns, true);
		return true;
	}
	case THREAD_CONFIG:
		threads[cpu].config = val & THREAD_ENABLED;
		return true;
	case THREAD_FEEDBACK_CHAR:
		return true; /* read only */
	}
	return false;
}

uint64_t hfi_total(unsigned what, unsigned of)
{
	uint8_t is[MAX_TYPES][HFI_CLASSES][N_CAPABILITIES] = { 0 };
	unsigned id = 0, k = what - TOTAL_HFI;

	/* Linux numbers the CPUs that there are by their ids. */
	while (id < machine.n_cpus && (!cpus[id].type || of--))
		id++;
	if (!machine.hfi.on || id == machine.n_cpus)
		return 0;
	if (what == TOTAL_HFI_CLASS)
		return threads[id].class + 1;
	capabilities(is);
	return k < HFI_CLASSES * N_CAPABILITIES ? is[cpus[id].type - machine.type][k / 2][k % 2] : 0;
}
