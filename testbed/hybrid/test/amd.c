// SPDX-License-Identifier: GPL-2.0-or-later
/* What amd.c says of itself, beside a dump of a Ryzen AI 9 HX 370's CPUID (anrieff/libcpuid
 * 2d1e019); and how the ranking of cores follows heat. `cargo test` compiles and runs it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../model.h"

struct machine machine = {
	.hybrid = true, .amd = true, .n_types = 2, .n_clusters = 2, .n_llcs = 2,
	.n_cpus = 32, .ids_of_core = 2, .present = 24,
	.type = {
		{ .cpuid_type = 0, .counters = 6, .l1_kib = 48, .l1_ways = 12, .turbo_mhz = { 250 },
		  .lowest_level = 23, .nonlinear_level = 42, .guaranteed_level = 76,
		  .ranking = { 208, 203, 208, 198 } },
		{ .cpuid_type = 1, .counters = 6, .l1_kib = 48, .l1_ways = 12, .turbo_mhz = { 165 },
		  .ranking = { 132, 132 } },
	},
	.cluster = {
		{ .first = 0, .ids = 8, .cpus = 8, .threads = 2, .llc = 0, .l2_kib = 1024, .l2_ways = 16 },
		{ .first = 16, .ids = 16, .cpus = 16, .threads = 2, .llc = 1, .l2_kib = 1024, .l2_ways = 16 },
	},
	.llc = { { .kib = 16384, .ways = 16 }, { .kib = 8192, .ways = 16 } },
};
struct cpu cpus[MAX_CPUS];
static unsigned told;
static double hot_mhz = INFINITY;
static int failures;

unsigned order(unsigned n)
{
	return n > 16 ? 5 : n > 8 ? 4 : n > 4 ? 3 : n > 1;
}

unsigned llc_ids(const struct llc *l)
{
	return l == &machine.llc[0] ? 8 : 16;
}

double heat_limit(const struct cpu *c, double now_ns)
{
	return c->core == 0 && c->type == &machine.type[0] ? hot_mhz : INFINITY;
}

void ranking_changed(void)
{
	told++;
}

static void leaf(unsigned id, uint32_t leaf, uint32_t sub, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	uint32_t got[4] = { 1, 2, 3, 4 }, wanted[4] = { a, b, c, d };

	if (amd_cpuid(&cpus[id], leaf, sub, got) && !memcmp(got, wanted, sizeof got))
		return;
	printf("id %u, leaf %x, %u: %x %x %x %x\n", id, leaf, sub, got[0], got[1], got[2], got[3]);
	failures++;
}

static void rank(unsigned id, unsigned wanted)
{
	uint64_t caps = 0;

	if (amd_rdmsr(id, 0xc00102b0, &caps) && caps >> 24 == wanted)
		return;
	printf("id %u has rank %u, not %u\n", id, (unsigned)(caps >> 24), wanted);
	failures++;
}

static void check(const char *what, bool right)
{
	if (!right)
		printf("%s\n", what), failures++;
}

int main(void)
{
	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < machine.cluster[k].ids; i++) {
			unsigned id = machine.cluster[k].first + i;

			cpus[id] = (struct cpu){ .index = id, .core = i / 2 % 2, .type = &machine.type[k],
						 .cluster = &machine.cluster[k], .llc = &machine.llc[k] };
		}
	/* Topology, from threads to the socket */
	leaf(0, 0x80000026, 0, 0x60000001, 0x00000002, 0x100, 0);
	leaf(0, 0x80000026, 1, 0xc0000004, 0x00000008, 0x201, 0);
	leaf(0, 0x80000026, 2, 0x40000005, 0x00000018, 0x302, 0);
	leaf(0, 0x80000026, 3, 0x00000005, 0x00000018, 0x403, 0);
	leaf(16, 0x80000026, 0, 0x60000001, 0x10000002, 0x100, 0x10);
	leaf(16, 0x80000026, 1, 0xc0000004, 0x00000010, 0x201, 0x10);
	leaf(16, 0x80000026, 2, 0x40000005, 0x00000018, 0x302, 0x10);
	leaf(0, 0x8000001e, 0, 0, 0x100, 0, 0);
	leaf(16, 0x8000001e, 0, 0x10, 0x108, 0, 0);
	/* Caches, but for what the model lacks: L1 of instructions, inclusive or not */
	leaf(0, 0x8000001d, 0, 0x4121, 0x02c0003f, 0x3f, 0);
	leaf(0, 0x8000001d, 2, 0x4143, 0x03c0003f, 0x3ff, 0);
	leaf(0, 0x8000001d, 3, 0x1c163, 0x03c0003f, 0x3fff, 0);
	leaf(16, 0x8000001d, 3, 0x3c163, 0x03c0003f, 0x1fff, 0);
	leaf(16, 0x8000001d, 4, 0, 0, 0, 0);
	leaf(0, 6, 0, 4, 0, 1, 0);
	leaf(0, 0x80000022, 0, 1, 6, 0, 0);
	/* The same on all threads of a core that is hot, and told once each time */
	rank(0, 208);
	amd_window(0);
	check("told without a change", told == 0);
	hot_mhz = 200;
	amd_window(1);
	amd_window(2);
	rank(0, 166);
	rank(1, 166);
	rank(2, 203);
	rank(16, 132);
	check("not told once of heat", told == 1);
	hot_mhz = INFINITY;
	amd_window(3);
	rank(0, 208);
	check("not told of its end", told == 2);
	/* The guest's wishes count from when it has switched them on, for all at once */
	amd_wrmsr(2, 0xc00102b3, 0x7f);
	check("a wish before it counts", amd_request(2) == 0);
	amd_wrmsr(0, 0xc00102b1, 1);
	check("a wish is lost", amd_request(2) == 0x7f);
	return failures != 0;
}
