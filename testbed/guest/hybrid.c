// SPDX-License-Identifier: GPL-2.0-only
/*
 * hybrid - ask the virtual hybrid machine, from inside it.
 *
 *   hybrid start      turn the model on (until then the guest boots unmodelled)
 *   hybrid stop       turn it off
 *   hybrid totals     what the machine has counted on each CPU: the ground truth
 *                     for the counters that Linux shows
 *   hybrid name       the machine's name; exit status 1 on any other machine
 *
 * It speaks by CPUID leaves that no real CPU has (see hybrid/cpuid.c).
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CONTROL = 0x48590000, START, STOP, TOTAL, BUS };

static const struct {
	unsigned sub;
	const char *name;
} total[] = {
	{ 0, "instructions" }, { 1, "loads" }, { 2, "stores" }, { 3, "branches" },
	{ 4, "fp" }, { 5, "mul" }, { 6, "div" },
	{ 8, "l1-misses" }, { 9, "l2-misses" }, { 10, "llc-misses" }, { 11, "branch-misses" },
	{ 0x40, "cycles" }, { 0x41, "stalled-cycles" }, { 0x42, "ref-cycles" }, { 0x43, "mhz" },
};

static uint64_t ask(unsigned leaf, unsigned sub)
{
	unsigned a, b, c, d;

	__cpuid_count(leaf, sub, a, b, c, d);
	return a | (uint64_t)d << 32;
}

int main(int argc, char **argv)
{
	unsigned a, b, c, d;
	char name[13] = "";

	__cpuid_count(CONTROL, 0, a, b, c, d);
	if (a != 0x48594252) {
		fputs("hybrid: this is not a virtual hybrid machine\n", stderr);
		return 1;
	}
	memcpy(name, &b, 4);
	memcpy(name + 4, &c, 4);
	memcpy(name + 8, &d, 4);
	const char *what = argc == 2 ? argv[1] : "";

	if (!strcmp(what, "start")) {
		ask(START, 0);
	} else if (!strcmp(what, "stop")) {
		ask(STOP, 0);
	} else if (!strcmp(what, "name")) {
		puts(name);
	} else if (!strcmp(what, "totals")) {
		for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++) {
			cpu_set_t one;

			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			if (sched_setaffinity(0, sizeof one, &one))
				continue; /* offline */
			for (unsigned mode = 0; mode < 2; mode++) {
				printf("cpu%d %s", cpu, mode ? "kernel" : "user");
				for (unsigned i = 0; i < sizeof total / sizeof *total; i++)
					printf(" %s=%llu", total[i].name,
					       (unsigned long long)ask(TOTAL, total[i].sub | mode << 8));
				putchar('\n');
			}
		}
	} else {
		fputs("usage: hybrid start|stop|totals|name\n", stderr);
		return 2;
	}
	return 0;
}
