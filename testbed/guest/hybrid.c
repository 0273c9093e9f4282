// SPDX-License-Identifier: GPL-2.0-only
/*
 * hybrid - ask the virtual hybrid machine, from inside it.
 *
 *   hybrid start      turn the model on (until then the guest boots unmodelled)
 *   hybrid stop       turn it off
 *   hybrid totals     what the machine has counted on each CPU: the ground truth
 *                     for the counters that Linux shows; and what `energy` prints
 *   hybrid energy     the energy taken since the model was started, and when that
 *                     was; where there is resctrl, also of the tasks of each monitoring
 *                     group (its RMID); nothing on a machine without
 *   hybrid hfi        each CPU's performance and efficiency at present, for each class of
 *                     instructions (0 to 255), and the class of what ran there lately;
 *                     nothing on a machine without hardware feedback
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
#include <time.h>
#include <unistd.h>

#include "../hybrid/model.h"

static const struct {
	unsigned sub;
	const char *name;
} total[] = {
	{ INSN, "instructions" }, { LOAD, "loads" }, { STORE, "stores" },
	{ BRANCH, "branches" }, { FP, "fp" }, { MUL, "mul" }, { DIV, "div" },
	{ L1_MISS, "l1-misses" }, { L2_MISS, "l2-misses" }, { LLC_MISS, "llc-misses" },
	{ BRANCH_MISS, "branch-misses" }, { TOTAL_CYCLES, "cycles" },
	{ TOTAL_STALLED, "stalled-cycles" }, { TOTAL_REF, "ref-cycles" }, { TOTAL_MHZ, "mhz" },
};

static uint64_t ask(unsigned leaf, unsigned sub)
{
	unsigned a, b, c, d;

	__cpuid_count(leaf, sub, a, b, c, d);
	return a | (uint64_t)d << 32;
}

static void print_energy(void)
{
	uint64_t package = ask(CONTROL_TOTAL, TOTAL_PACKAGE_UJ), uncore, dram;
	struct timespec now;

	if (!package)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	uncore = ask(CONTROL_TOTAL, TOTAL_UNCORE_UJ);
	dram = ask(CONTROL_TOTAL, TOTAL_DRAM_UJ);
	for (unsigned cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++)
		printf("cpu%u energy uj=%llu\n", cpu,
		       (unsigned long long)ask(CONTROL_TOTAL, TOTAL_CPU_UJ | cpu << 16));
	for (unsigned rmid = 0; rmid < MAX_RMIDS; rmid++) {
		uint64_t uj = ask(CONTROL_TOTAL, TOTAL_RMID_UJ | rmid << 16);

		if (uj)
			printf("rmid%u energy uj=%llu\n", rmid, (unsigned long long)uj);
	}
	printf("package energy uj=%llu uncore-uj=%llu\ndram energy uj=%llu\ntime energy ns=%llu\n",
	       (unsigned long long)package, (unsigned long long)uncore, (unsigned long long)dram,
	       now.tv_sec * 1000000000ull + now.tv_nsec);
}

static void print_hfi(void)
{
	if (!ask(CONTROL_TOTAL, TOTAL_HFI))
		return;
	for (unsigned cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++) {
		unsigned class = ask(CONTROL_TOTAL, TOTAL_HFI_CLASS | cpu << 16);

		printf("cpu%u hfi", cpu);
		for (unsigned of = 0; of < 2; of++) {
			printf(of ? " efficiency=" : " performance=");
			for (unsigned k = 0; k < HFI_CLASSES; k++)
				printf(k ? ",%u" : "%u",
				       (unsigned)ask(CONTROL_TOTAL, (TOTAL_HFI + 2 * k + of) | cpu << 16));
		}
		if (class)
			printf(" class=%u", class - 1);
		putchar('\n');
	}
}

int main(int argc, char **argv)
{
	unsigned a, b, c, d;
	char name[13] = "";

	__cpuid_count(CONTROL, 0, a, b, c, d);
	if (a != SIGNATURE) {
		fputs("hybrid: this is not a virtual hybrid machine\n", stderr);
		return 1;
	}
	memcpy(name, &b, 4);
	memcpy(name + 4, &c, 4);
	memcpy(name + 8, &d, 4);
	const char *what = argc == 2 ? argv[1] : "";

	if (!strcmp(what, "start")) {
		ask(CONTROL_START, 0);
	} else if (!strcmp(what, "stop")) {
		ask(CONTROL_STOP, 0);
	} else if (!strcmp(what, "name")) {
		puts(name);
	} else if (!strcmp(what, "energy")) {
		print_energy();
	} else if (!strcmp(what, "hfi")) {
		print_hfi();
	} else if (!strcmp(what, "totals")) {
		for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++) {
			cpu_set_t one;

			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			if (sched_setaffinity(0, sizeof one, &one))
				continue; /* offline */
			for (unsigned of = 0; of <= OF_KERNEL; of += OF_KERNEL) {
				printf("cpu%d %s", cpu, of ? "kernel" : "user");
				for (unsigned i = 0; i < sizeof total / sizeof *total; i++)
					printf(" %s=%llu", total[i].name,
					       (unsigned long long)ask(CONTROL_TOTAL, total[i].sub | of));
				putchar('\n');
			}
		}
		print_energy();
	} else {
		fputs("usage: hybrid start|stop|totals|energy|hfi|name\n", stderr);
		return 2;
	}
	return 0;
}
