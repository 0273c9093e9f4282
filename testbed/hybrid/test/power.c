// SPDX-License-Identifier: GPL-2.0-or-later
/* Clocks by what the guest asks for and prefers. `cargo test` compiles and runs it. */
#include <math.h>
#include <stdio.h>

#include "../model.h"

struct machine machine = { .n_types = 1, .n_cpus = 3,
	.type = { { .turbo_mhz = { 400 }, .n_turbo = 1, .highest_level = 40 } } };
struct cpu cpus[MAX_CPUS];
bool started = true;
double started_ns;
static uint64_t of_amd;
static double now;
static int failures;

double energy_limit(const struct core_type *t)
{
	return INFINITY;
}

uint64_t amd_request(unsigned cpu)
{
	return of_amd;
}

void amd_window(double now_ns) { }

#define MSR(name, ...) bool name(unsigned cpu, uint32_t msr, __VA_ARGS__) { return false; }
MSR(amd_rdmsr, uint64_t *val)
MSR(amd_wrmsr, uint64_t val)
MSR(hfi_rdmsr, uint64_t *val)
MSR(hfi_wrmsr, uint64_t val)
MSR(energy_rdmsr, uint64_t *val)
MSR(energy_wrmsr, uint64_t val)

static void request(unsigned least, unsigned most, unsigned desired, unsigned preference)
{
	power_wrmsr(0, 0x774, least | most << 8 | desired << 16 | (uint64_t)preference << 24);
}

/* CPU 0's clock in the next window. */
static void expect(const char *what, double mhz)
{
	clock_window(now += WINDOW_NS, WINDOW_NS);
	if (fabs(cpus[0].mhz - mhz) < 0.01)
		return;
	printf("%s: %g MHz, not %g\n", what, cpus[0].mhz, mhz);
	failures++;
}

int main(void)
{
	for (unsigned i = 0; i < 3; i++)
		cpus[i] = (struct cpu){ .index = i, .type = &machine.type[0] };
	request(4, 20, 0, 255);
	expect("before it counts", 400);
	power_wrmsr(0, 0x770, 1);
	/* Up to balance_performance the highest that the guest allows */
	for (unsigned preference = 0; preference <= 128; preference += 64) {
		request(4, 40, 0, preference);
		expect("not frugal", 400);
		request(4, 20, 0, preference);
		expect("no more than the most", 200);
	}
	request(4, 40, 0, 192);
	expect("balance_power", 400 * (1 - 64 / 127.0 / 2));
	request(4, 40, 0, 255);
	expect("power", 200);
	/* The guest's bounds hold, and what it desires is not the core's to choose */
	request(4, 12, 0, 255);
	expect("power, and no more than the most", 120);
	request(30, 40, 0, 255);
	expect("power, and no less than the least", 300);
	request(40, 40, 0, 255);
	expect("the governor performance", 400);
	request(4, 40, 32, 255);
	expect("desired", 320);
	/* Two threads of a core: the faster wish */
	cpus[0].smt.sibling = &cpus[1];
	cpus[1].smt.sibling = &cpus[0];
	request(4, 40, 0, 255);
	expect("the other thread has no wish", 400);
	power_wrmsr(1, 0x770, 1);
	power_wrmsr(1, 0x774, 4 | 40 << 8 | 255u << 24);
	expect("both are frugal", 200);
	cpus[0].smt.sibling = cpus[1].smt.sibling = 0;
	/* AMD's register has the bounds the other way round */
	machine.amd = true;
	of_amd = 40 | 30 << 8 | 255u << 24;
	expect("AMD, frugal", 300);
	of_amd = 40 | 12 << 8 | 128u << 24;
	expect("AMD, not frugal", 400);
	return failures != 0;
}
