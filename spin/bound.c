// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether a thread that keeps to a core type is left where something else binds it meanwhile, as by taskset(1). Ends with
 * 1 if not. The first two CPUs where it may run are taken for two core types.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>

#include "shares.h"

uint64_t team_now(void)
{
	return 0;
}

static void region(struct team_plan *plan, uint8_t type)
{
	struct team_work work;

	plan->type[1] = type;
	team_work_begin(&work, plan, 1);
	team_work_end(&work, 1);
}

static int is_on(int cpu, const char *what)
{
	cpu_set_t cpus;

	if (!sched_getaffinity(0, sizeof(cpus), &cpus) && CPU_COUNT(&cpus) == 1 && CPU_ISSET(cpu, &cpus))
		return 1;
	printf("%s: it is not on CPU %d alone\n", what, cpu);
	return 0;
}

int main(void)
{
	static struct scx_hetero_advice_record advice;
	static struct team_plan plan = { .ours = true, .shares = true, .known = 2 };
	int cpus[2], found = 0;
	cpu_set_t may, one;

	if (!shares_begin() || sched_getaffinity(0, sizeof(may), &may))
		return 1;
	for (int cpu = 0; cpu < SCX_HETERO_ADVICE_CPUS && cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &may) && found < 2) {
			advice.type_of_cpu[cpu] = found + 1;
			cpus[found++] = cpu;
		}
	if (found < 2) {
		printf("skipped: there is one CPU\n");
		return 0;
	}
	advice.types = 2;
	shares_take(&advice);
	region(&plan, 1);
	if (!is_on(cpus[0], "the first type"))
		return 1;
	region(&plan, 2);
	if (!is_on(cpus[1], "the second type"))
		return 1;
	CPU_ZERO(&one);
	CPU_SET(cpus[0], &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		return 1;
	plan.shares = false;
	region(&plan, 0);
	plan.shares = true;
	region(&plan, 2);
	return !is_on(cpus[0], "bound by something else");
}
