// SPDX-License-Identifier: GPL-2.0-or-later
/* What ../heat.c makes of watts and time; `cargo test` compiles and runs it. */
#include <math.h>
#include <stdio.h>

#include "../model.h"

struct machine machine;
static int failures;

static void expect(const char *what, double got, double wanted)
{
	if (fabs(got - wanted) <= 1e-3 * wanted)
		return;
	printf("%s: %f instead of %f\n", what, got, wanted);
	failures++;
}

static double celsius(uint32_t msr)
{
	uint64_t status = 0, target = 0;

	if (!heat_rdmsr(msr, &status) || !heat_rdmsr(0x1a2, &target) || !(status >> 31 & 1))
		printf("no temperature\n"), failures++;
	return (target >> 16 & 0xff) - (double)(status >> 16 & 0x7f);
}

static void pass(double watts, double seconds)
{
	for (double ns = 0; ns < seconds * 1e9; ns += 50e3)
		heat_window(watts, 50e3);
}

int main(void)
{
	uint64_t value;

	pass(50, 1);
	expect("leakage without heat", heat_leakage(), 1);
	expect("registers without heat", heat_rdmsr(0x19c, &value), 0);
	machine.energy = (struct machine_energy){
		.thermal_r = 2, .thermal_s = 5, .ambient_c = 30, .max_c = 100,
	};
	expect("the air's", celsius(0x19c), 30);
	pass(15, 5); /* to 60 C, and 1 - 1/e of that by now */
	expect("after its time", celsius(0x1b1), floor(30 + 30 * (1 - exp(-1))));
	pass(15, 60);
	expect("leakage in the end", heat_leakage(), 1);
	pass(30, 60); /* to 90 C */
	expect("leakage 30 K hotter", heat_leakage(), 2);
	expect("no limit yet", isinf(heat_limit_w()), 1);
	pass(50, 60);
	expect("limit", heat_limit_w(), 35);
	expect("no hotter than it can show", celsius(0x19c), 100);
	return failures != 0;
}
