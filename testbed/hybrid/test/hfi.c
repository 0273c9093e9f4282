// SPDX-License-Identifier: GPL-2.0-or-later
/* The bytes of hfi.c's table, and when the guest hears of them, by numbers worked out by
 * hand; `cargo test` compiles and runs it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../model.h"

#define MS 1e6
#define PAGE 0x7000

struct machine machine = { .n_cpus = 3, .n_types = 2, .memory_ns = 1000 };
struct cpu cpus[MAX_CPUS];
static uint8_t memory[0x8000];
static double mhz[2], now;
static unsigned interrupts;
static int failures;

/* Volts are 1 at every clock. */
double energy_voltage(const struct core_type *t, double at)
{
	return 1;
}

double clock_limit(const struct core_type *t)
{
	return mhz[t - machine.type];
}

void guest_write(uint64_t address, const void *from, size_t size)
{
	memcpy(memory + address, from, size);
}

void thermal_interrupt(unsigned cpu)
{
	interrupts += cpu + 1;
}

static void expect(const char *what, uint64_t got, uint64_t wanted)
{
	if (got == wanted)
		return;
	printf("%s: %#llx instead of %#llx\n", what, (unsigned long long)got, (unsigned long long)wanted);
	failures++;
}

static uint64_t rd(uint32_t msr)
{
	uint64_t value = ~0ull;

	if (!hfi_rdmsr(0, msr, &value))
		printf("no register %x\n", msr), failures++;
	return value;
}

static void wr(uint32_t msr, uint64_t value)
{
	if (!hfi_wrmsr(0, msr, value))
		printf("no register %x\n", msr), failures++;
}

static void pass(unsigned ms)
{
	for (unsigned i = 0; i < ms; i++)
		hfi_window(now += MS, MS);
}

/* Performance and efficiency of class 0 in a CPU's row. */
static unsigned row(unsigned cpu)
{
	return memory[PAGE + 16 + 8 * cpu] << 8 | memory[PAGE + 16 + 8 * cpu + 1];
}

static unsigned changed(void) /* the same two, in the header */
{
	return memory[PAGE + 8] << 8 | memory[PAGE + 9];
}

static unsigned seen(void) /* interrupts since it was last asked */
{
	unsigned n = interrupts;

	interrupts = 0;
	return n;
}

int main(void)
{
	struct core_type *p = &machine.type[0], *e = &machine.type[1];
	uint32_t regs[4] = { 4, 0, 1, 0 };
	uint64_t value, later;

	/* An instruction takes 1 and 2 cycles, and 8 and 2 nJ, whatever it is. */
	*p = (struct core_type){ .cost = { 1 }, .turbo_mhz = { 200 }, .n_turbo = 1,
		.energy = { .n_volts = 1, .volts = { { 200, 1 } }, .nj = { 8 } } };
	*e = (struct core_type){ .cost = { 2 }, .turbo_mhz = { 200 }, .n_turbo = 1,
		.energy = { .n_volts = 1, .volts = { { 200, 1 } }, .nj = { 2 } } };
	mhz[0] = mhz[1] = 200;
	cpus[0] = (struct cpu){ .type = p };
	cpus[2] = (struct cpu){ .type = e, .index = 2 }; /* no CPU has id 1 */

	expect("registers without", hfi_rdmsr(0, 0x17d0, &value) || hfi_wrmsr(0, 0x17d0, 0), 0);
	hfi_cpuid(2, 6, regs);
	expect("leaf 6 without", regs[0], 4);
	expect("truth without", hfi_total(TOTAL_HFI, 0), 0);
	machine.hfi = (struct machine_hfi){ .on = true, .interval_ns = 100 * MS, .step = 4 };
	hfi_cpuid(2, 6, regs);
	expect("leaf 6, eax", regs[0], 1 << 23 | 1 << 19 | 1 << 6 | 4);
	expect("leaf 6, ecx", regs[2], 4 << 8 | 1);
	expect("leaf 6, edx", regs[3], 2 << 16 | 3);

	pass(200);
	wr(0x1b2, 1 << 25);
	wr(0x17d0, PAGE | 1);
	expect("not before it is on", seen(), 0);
	memory[PAGE + 16 + 8] = 7; /* of no CPU: is cleared */
	wr(0x17d1, 1);
	expect("a CPU each", seen(), 1 + 3);
	expect("status", rd(0x1b1), 1 << 26);
	memcpy(&value, memory + PAGE, 8);
	expect("all has changed", changed(), 0x101);
	expect("P", row(0), 255 << 8 | 64); /* a quarter of the other's efficiency */
	expect("E", row(2), 128 << 8 | 255);
	expect("no CPU", row(1), 0);
	expect("class 1 is not on", memory[PAGE + 10] | memory[PAGE + 18], 0);

	mhz[0] = 100; /* not before the guest has read the table, and 100 ms have passed */
	pass(100);
	expect("unread", row(0), 255 << 8 | 64);
	wr(0x1b1, ~(1ull << 26));
	pass(99);
	expect("too early", seen() + row(0), 255 << 8 | 64);
	pass(1);
	expect("throttled", row(0), 128 << 8 | 64);
	expect("the other", row(2), 128 << 8 | 255);
	expect("performance alone has changed", changed(), 0x100);
	memcpy(&later, memory + PAGE, 8);
	expect("a later time", later > value, 1);
	expect("told", seen(), 1 + 3);

	wr(0x1b1, 0);
	mhz[0] = 102; /* 130: 2 of 255 are not worth an interrupt */
	pass(300);
	expect("little changed", seen(), 0);
	expect("as it was", row(0), 128 << 8 | 64);
	expect("the truth", hfi_total(TOTAL_HFI, 0), 130);
	expect("the truth of the second CPU", hfi_total(TOTAL_HFI + 1, 1), 255);
	mhz[0] = 200; /* for half an interval, and the mean counts */
	pass(50);
	mhz[0] = 100;
	pass(50);
	expect("the mean clock", row(0), 191 << 8 | 64);

	/* Classes. Where all wait for memory, 50 ns of it, 55 and 60 ns are not far apart. */
	wr(0x1b2, 0);
	mhz[0] = 200;
	pass(100);
	seen();
	wr(0x17d1, 3);
	expect("no interrupt unless asked for", seen(), 0);
	expect("P in class 3", memory[PAGE + 16 + 6], 255);
	expect("E in class 3", memory[PAGE + 16 + 16 + 6], 234);
	wr(0x17d4, 1);
	cpus[0].total[USER].cycles = 1e6;
	cpus[0].total[USER].n[INSN] = 1e6;
	pass(100);
	expect("computes", rd(0x17d2), 1ull << 63);
	cpus[0].total[USER].cycles += 1e6;
	cpus[0].total[USER].n[INSN] += 1e6;
	cpus[0].total[USER].n[FP] += 3e5;
	pass(100);
	expect("floating point", rd(0x17d2), 1ull << 63 | 1);
	cpus[0].total[USER].cycles += 1e6;
	cpus[0].total[USER].stalled += 6e5;
	pass(100);
	expect("waits", rd(0x17d2), 1ull << 63 | 3);
	expect("waits, in truth", hfi_total(TOTAL_HFI_CLASS, 0), 4);
	pass(100);
	expect("sleeps", rd(0x17d2), 0);

	wr(0x1b1, 0);
	wr(0x17d1, 0);
	expect("off, and says so", rd(0x1b1), 1 << 26);
	machine.energy = (struct machine_energy){ .thermal_r = 2, .ambient_c = 30, .max_c = 100 };
	expect("beside the temperature", rd(0x1b1), 1u << 31 | 1 << 27 | 70 << 16 | 1 << 26);
	mhz[0] = 50;
	wr(0x1b1, 0);
	pass(200);
	expect("off", row(0), 255 << 8 | 64);
	return failures != 0;
}
