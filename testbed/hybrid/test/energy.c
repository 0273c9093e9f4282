// SPDX-License-Identifier: GPL-2.0-or-later
/* What energy.c makes of work, clocks, sleep and budgets, by numbers worked out by hand;
 * `cargo test` compiles and runs it. */
#include <math.h>
#include <stdio.h>

#include "../model.h"

struct machine machine = { .n_types = 1, .n_cpus = 1, .ref_mhz = 100 };
struct cpu cpus[MAX_CPUS];
bool started = true;
static unsigned rmid; /* of CPU 0 */
static double now;
static int failures;

void cpu_flush(struct cpu *c) {}
double heat_leakage(void) { return 1; }
double heat_limit_w(void) { return INFINITY; }
unsigned rdt_rmid(unsigned cpu) { return cpu ? 0 : rmid; }
void heat_window(double watts, double ns) {}
bool heat_rdmsr(uint32_t msr, uint64_t *val) { return false; }

static void expect(const char *what, double got, double wanted)
{
	if (fabs(got - wanted) <= 1 + 1e-6 * wanted) /* whole microjoules */
		return;
	printf("%s: %f instead of %f\n", what, got, wanted);
	failures++;
}

static void check(const char *what, bool right)
{
	if (!right)
		printf("%s\n", what), failures++;
}

/* 1000 instructions, 2000 cycles and a written line, at the CPU's clock; how long it takes. */
static double run(struct cpu *c)
{
	double ns = 2000 * 1e3 / c->mhz;

	c->asleep = false;
	c->total[USER].n[INSN] += 1000;
	c->total[USER].cycles += 2000;
	c->total[USER].ref += ns * machine.ref_mhz / 1e3;
	c->lines += 2;
	return ns;
}

static void work(void)
{
	cpus[0].ns = now += run(&cpus[0]);
	energy_window(now);
}

static uint64_t msr(uint32_t number)
{
	uint64_t value = 0;

	if (!energy_rdmsr(0, number, &value))
		printf("no register %x\n", number), failures++;
	return value;
}

static double total(unsigned what)
{
	return energy_total(&cpus[0], what, 0);
}

/* What has been taken since the last time by CPUs 0 and 1, as Linux counts them. */
static void expect_both(const char *what, double first, double second)
{
	static double before[2];
	double is[2];

	total(TOTAL_PACKAGE_UJ);
	for (unsigned i = 0; i < 2; i++)
		is[i] = energy_total(&cpus[1], TOTAL_CPU_UJ, i);
	expect(what, is[0] - before[0], first);
	expect(what, is[1] - before[1], second);
	before[0] = is[0];
	before[1] = is[1];
}

/* Tasks with RMIDs of their own: what they take, and none of the idle CPU's. */
static void groups(void)
{
	double before[3], is[3];

	total(TOTAL_PACKAGE_UJ);
	for (unsigned i = 0; i < 3; i++)
		before[i] = energy_total(&cpus[0], TOTAL_RMID_UJ, i);
	energy_switch(0, 0);
	rmid = 1;
	work();
	cpus[0].ns = now += run(&cpus[0]); /* within a window */
	energy_switch(0, 1);
	rmid = 2;
	work();
	energy_switch(0, 2);
	rmid = 0;
	cpus[0].asleep = true;
	energy_window(now += 5e6);
	total(TOTAL_PACKAGE_UJ);
	for (unsigned i = 0; i < 3; i++)
		is[i] = energy_total(&cpus[0], TOTAL_RMID_UJ, i) - before[i];
	check("a group", is[1] > 100 && fabs(is[1] - 2 * is[2]) < 2);
	check("none of it idle", is[0] > 10 && is[0] < is[1]);
}

/* Ids 1 and 2 are a core's threads; id 0 has no CPU any more. */
static void two_threads(struct core_type *t)
{
	struct cpu *a = &cpus[1], *b = &cpus[2];

	machine.n_cpus = 3;
	cpus[0] = (struct cpu){ .ns = now };
	*a = (struct cpu){ .index = 1, .type = t, .mhz = 200, .ns = now, .smt.sibling = b };
	*b = (struct cpu){ .index = 2, .type = t, .mhz = 200, .ns = now, .smt.sibling = a };
	started = false; /* they are new: the time until now is not theirs */
	energy_window(now);
	started = true;
	expect_both("threads that have done nothing", 0, 0);

	/* 10 us: 50 uJ for what each does; 20 uJ for cycles and 100 of leakage once. */
	now += run(a);
	run(b);
	a->ns = b->ns = now;
	energy_window(now);
	expect_both("both threads", 50 + 60, 50 + 60);
	expect("a core type", energy_of(0) * 1e-3, 220);
	now += run(a);
	a->ns = now;
	b->asleep = true;
	energy_window(now);
	expect_both("one thread", 50 + 120, 0);
	/* The same with one ahead of the other for a while: it pays when both are there. */
	a->ns += run(a);
	b->ns = now;
	b->asleep = false;
	energy_window(now);
	expect_both("one ahead", 50, 0);
	b->ns = now += run(b);
	energy_window(now);
	expect_both("the other came", 60, 50 + 60);
	/* Each runs for half of 20 us, or of 10 us that they have in common: 5 of these. */
	now += 2 * run(a);
	run(b);
	a->ns = b->ns = now;
	energy_window(now);
	expect_both("half of the time each", 50 + 120 * 0.75 + 0.25, 50 + 120 * 0.75 + 0.25);
	a->asleep = b->asleep = true; /* 1 ms at 0.1 W, 9 ms at 0.01 W */
	energy_window(now += 10e6);
	expect_both("both asleep", 95, 95);
}

static void sleeps(struct cpu *c, unsigned state)
{
	check("a port for each state", idle_ask(c->index, IDLE_PORT + state) == (state < 2));
	idle_enter(c);
	c->asleep = true;
}

/* States that the guest chooses, however long it sleeps. Of a core's two threads the shallower one's counts. */
static void chosen(struct core_type *t)
{
	struct cpu *a = &cpus[1], *b = &cpus[2];

	expect("by how long", idle_exit_ns(a, 5e6), 0);
	t->n_states = 2;
	t->state[0].exit_ns = 2e3, t->state[0].watts = 0.5;
	t->state[1].exit_ns = 100e3, t->state[1].watts = 0.05;
	sleeps(a, 1);
	sleeps(b, 1);
	energy_window(now += 1e6);
	expect_both("the deeper state", 25, 25);
	expect("its exit", idle_exit_ns(a, 1), 100e3);
	b->asleep = false;
	now += run(b);
	b->ns = now;
	energy_window(now);
	expect_both("one thread runs", 0, 50 + 120);
	sleeps(b, 2); /* there is none: it halts */
	energy_window(now += 1e6);
	expect_both("one thread in the first state", 250, 250);
	expect("the first exit", idle_exit_ns(b, 5e6), 2e3);
	b->ns = now + 4e5; /* it wakes, and sleeps again, within a window */
	sleeps(b, 1);
	energy_window(now += 1e6);
	expect_both("both states in one window", 115, 115);
}

int main(void)
{
	struct core_type *t = &machine.type[0];

	*t = (struct core_type){ .turbo_mhz = { 200 }, .n_turbo = 1, .energy = {
		.n_volts = 2, .volts = { { 100, 0.5 }, { 200, 1.0 } },
		.n_idle = 2, .idle = { { 0, 0.1 }, { 1e6, 0.01 } },
		.leakage_w = 10, .cycle_nj = 10, .nj = { [INSN] = 50 },
	} };
	cpus[0] = (struct cpu){ .type = t, .mhz = 200 };
	uint64_t value;
	check("registers without energy", !energy_rdmsr(0, 0x611, &value));
	machine.energy = (struct machine_energy){
		.on = true, .uncore_w = 20, .idle_w = 2, .dram_w = 1, .dram_nj = 500,
	};

	work(); /* 10 us: 50 + 20 uJ, and 10 W; 20 W beside; 1 W and 1 uJ of memory */
	expect("package", total(TOTAL_PACKAGE_UJ), 170 + 200);
	expect("CPU", total(TOTAL_CPU_UJ), 170);
	expect("beside it", total(TOTAL_UNCORE_UJ), 200);
	expect("memory", total(TOTAL_DRAM_UJ), 11);
	cpus[0].mhz = 150; /* 0.75 V, 13.3 us */
	work();
	total(TOTAL_PACKAGE_UJ);
	expect("CPU at 3/4 of the voltage", total(TOTAL_CPU_UJ),
	       170 + 70 * 0.5625 + 10e3 / 750 * 10 * 0.421875);

	double before = total(TOTAL_CPU_UJ);
	cpus[0].asleep = true; /* 1 ms at 0.1 W, 9 ms at 0.01 W, in two windows */
	for (int i = 0; i < 2; i++) {
		energy_warp(5e6);
		energy_window(now += 5e6);
	}
	double beside = total(TOTAL_UNCORE_UJ);
	total(TOTAL_PACKAGE_UJ);
	expect("sleep", total(TOTAL_CPU_UJ) - before, 100 + 90);
	expect("all asleep", total(TOTAL_UNCORE_UJ) - beside, 10e3 * 2);
	groups();

	/* Units, and 32 bits that begin again: 2^18 J are all that there is room for. */
	expect("unit", exp2(msr(0x606) >> 8 & 0x1f), 1 << 14);
	uint64_t first = msr(0x611);
	machine.energy.uncore_w = 1e9;
	energy_window(now += 1e6); /* 10^6 J, three times around and more */
	uint64_t wrapped = (first + (uint64_t)(1e6 * (1 << 14))) & 0xffffffff;
	check("wrapped", fabs((double)msr(0x611) - wrapped) < 16 && msr(0x611) >> 32 == 0);

	/* A limit at once that cannot be kept: clocks fall as far as they may. Then none. */
	machine.energy.uncore_w = 50;
	energy_wrmsr(0, 0x610, (10ull * 8 | 1 << 15) << 32);
	for (int i = 0; i < 2000; i++)
		energy_window(now += 50e3);
	expect("clocks by PL2", energy_limit(t), 0.1 * 200);
	energy_wrmsr(0, 0x610, 0);
	for (int i = 0; i < 2000; i++)
		energy_window(now += 50e3);
	check("clocks without limit", isinf(energy_limit(t)));
	two_threads(t);
	chosen(t);
	return failures != 0;
}
