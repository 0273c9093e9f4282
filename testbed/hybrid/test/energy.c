// SPDX-License-Identifier: GPL-2.0-or-later
/* What energy.c makes of work, clocks, sleep and budgets, by numbers worked out by hand;
 * `cargo test` compiles and runs it. */
#include <math.h>
#include <stdio.h>

#include "../model.h"

struct machine machine = { .n_cpus = 1, .ref_mhz = 100 };
struct cpu cpus[MAX_CPUS];
bool started = true;
static double now;
static int failures;

void cpu_flush(struct cpu *c) {}

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

/* 1000 instructions, 2000 cycles and a written line, at the CPU's clock. */
static void work(void)
{
	struct cpu *c = &cpus[0];
	double ns = 2000 * 1e3 / c->mhz;

	c->total[USER].n[INSN] += 1000;
	c->total[USER].cycles += 2000;
	c->total[USER].ref += ns * machine.ref_mhz / 1e3;
	c->lines += 2;
	c->ns = now += ns;
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
	return failures != 0;
}
