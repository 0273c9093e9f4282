// SPDX-License-Identifier: GPL-2.0-or-later
/* Which accesses are transfers from another CPU, and from how far; `cargo test` compiles and
 * runs it. */
#include <stdio.h>
#include <stdlib.h>

#include "../cache.c"

struct machine machine = { .n_cpus = 6, .n_types = 2, .latency = { .on = true } };
struct cpu cpus[MAX_CPUS];
static int failures;

static double clock_ns;

double cpu_now(const struct cpu *c)
{
	return clock_ns;
}

void fail(const char *format, ...)
{
	exit(1);
}

static void check(const char *what, bool right)
{
	if (!right)
		printf("%s\n", what), failures++;
}

/* CPU 0 and 1 are threads of a core, 2 is a core like it; 3 and 4 share an L2, 5 has another. */
static void build(void)
{
	static struct cluster big, small[2];
	static struct llc llc;
	static struct cache l2[3];

	small[0].shared_l2 = small[1].shared_l2 = true;
	for (unsigned i = 0; i < 3; i++)
		cache_init(&l2[i], 16, 4);
	for (unsigned i = 0; i < 6; i++) {
		cpus[i] = (struct cpu){ .index = i, .type = &machine.type[i > 2], .llc = &llc,
					.paused_ns = -1e9 };
		cpus[i].cluster = i < 3 ? &big : &small[i == 5];
		cpus[i].l2 = &l2[i < 3 ? i / 2 : 2];
		cache_init(&cpus[i].l1, 4, 4);
	}
	cpus[5].l2 = NULL;
	cpus[0].smt.sibling = &cpus[1];
	cpus[1].smt.sibling = &cpus[0];
	coherence_init();
}

static struct transfer last;

/* As the plugin does it: true if the line comes from another CPU. */
static bool access_at(unsigned cpu, uint32_t line, uint32_t tag, bool store, double now)
{
	struct cpu *c = &cpus[cpu];
	uint32_t address = tag ^ c->space;
	bool hit = cache_access(&c->l1, address & (c->l1.sets - 1), tag);

	if (coherence_known(c, tag, store, hit))
		return false;
	if (c->l2)
		cache_access(c->l2, cache_set(c->l2, line), line);
	clock_ns = now;
	return coherence_access(c, address, line, store, &last);
}

static bool reads(unsigned cpu, uint32_t line)
{
	return access_at(cpu, line, line + 7, false, 0);
}

static bool writes(unsigned cpu, uint32_t line)
{
	return access_at(cpu, line, line + 7, true, 0);
}

int main(void)
{
	build();
	check("threads of a core", cpu_distance(&cpus[0], &cpus[1]) == SIBLING);
	check("cores with an L2 each", cpu_distance(&cpus[1], &cpus[2]) == LLC);
	check("cores that share an L2", cpu_distance(&cpus[3], &cpus[4]) == CLUSTER);
	check("core types", cpu_distance(&cpus[2], &cpus[3]) == OTHER);

	check("nothing is written yet", !reads(0, 50) && !reads(2, 50));
	check("its own", !writes(0, 50) && !reads(0, 50) && !writes(0, 50));
	check("written by another CPU", reads(2, 50) && last.from == &cpus[0]);
	check("once", !reads(2, 50) && reads(3, 50) && !reads(3, 50));
	check("readers disturb no reader", !reads(0, 50));
	check("telling readers is free", !writes(0, 50));
	check("each has to read anew", reads(2, 50) && reads(3, 50));
	check("written by one that has read it", !writes(2, 50));
	check("taken over", reads(0, 50) && last.from == &cpus[2]);
	check("written by one that has not", writes(4, 50) && last.from == &cpus[2]);
	check("a sibling, too, has to ask", !writes(0, 51) && reads(1, 51) && last.from == &cpus[0]);

	/* The writer's time is ahead, or the reader's, which has spun until it saw it or not. */
	access_at(0, 60, 67, true, 1000);
	access_at(2, 60, 67, false, 400);
	check("waits for the write", last.wait_ns == 600 && last.contended);
	access_at(0, 60, 67, true, 1100);
	access_at(2, 60, 67, false, 1500);
	check("came later", last.wait_ns == 0 && last.contended);
	access_at(0, 60, 67, true, 2000);
	cpus[2].paused_ns = 2100;
	access_at(2, 60, 67, false, 2300);
	check("has spun meanwhile", last.wait_ns == -300);
	access_at(0, 60, 67, true, 3000);
	access_at(2, 60, 67, false, 3000 + 2 * WINDOW_NS);
	check("long ago", last.wait_ns == 0 && !last.contended);

	/* Another process has the same line elsewhere. */
	access_at(0, 70, 1000, true, 0);
	check("by another address", access_at(2, 70, 2000, false, 0));
	check("what it has seen, it has", !access_at(0, 70, 1000, false, 0) &&
	      !access_at(2, 70, 2000, false, 0));
	access_at(0, 70, 1000, true, 0);
	check("and is told of a write", access_at(2, 70, 2000, false, 0));

	writes(0, 80);
	for (uint32_t line = 1000; line < 3000; line++)
		cache_access(cpus[0].l2, cache_set(cpus[0].l2, line), line),
		cache_access(&cpus[0].l1, line & (cpus[0].l1.sets - 1), line);
	check("no longer in the writer's caches", !reads(2, 80));

	/* The directory still knows what the L1 has lost. */
	writes(0, 90);
	check("comes from the writer", reads(2, 90));
	cache_drop(&cpus[2].l1, 97 & (cpus[2].l1.sets - 1), 97);
	check("is seen beyond the L1", !reads(2, 90) && !writes(2, 90) && !writes(2, 90));
	check("and is another CPU's once that writes", reads(0, 90) && !writes(0, 90) && reads(2, 90));
	return failures != 0;
}
