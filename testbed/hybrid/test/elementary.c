// SPDX-License-Identifier: GPL-2.0-or-later
/* What ../elementary.c makes of numbers: near to the C library's, and to the bit what it was. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../model.h"

static int failures;
static uint64_t bits = 1469598103934665603u; /* of all that came out: FNV-1a */

static void expect(const char *what, double x, double got, double wanted, double units)
{
	uint64_t value;

	memcpy(&value, &got, sizeof(value));
	bits = (bits ^ value) * 1099511628211u;
	if (fabs(got - wanted) <= units * 0x1p-52 * fabs(wanted))
		return;
	printf("%s(%.17g): %.17g instead of %.17g\n", what, x, got, wanted);
	failures++;
}

int main(void)
{
	for (int i = -40000; i <= 40000; i++) {
		double x = i * 0.00137, near = i * 1e-7;

		expect("exp2", x, elementary_exp2(x), exp2(x), 2);
		expect("exp", x, elementary_exp(x), exp(x), 2);
		expect("exp", near, elementary_exp(near), exp(near), 2);
		double y = elementary_exp2(x / 3);

		if (fabs(y - 1) > 1e-3)
			expect("log2", y, elementary_log2(y), log2(y), 4);
		expect("pow", x, elementary_pow(0.75, fabs(x)), pow(0.75, fabs(x)), 2 + fabs(x));
	}
	for (int i = -60; i <= 60; i++) {
		expect("exp2", i, elementary_exp2(i), exp2(i), 0);
		expect("log2", exp2(i), elementary_log2(exp2(i)), i, 0);
	}
	expect("exp", 0, elementary_exp(0), 1, 0);
	expect("exp", -1e9, elementary_exp(-1e9), 0, 0);
	expect("exp2", -1e9, elementary_exp2(-1e9), 0, 0);
	expect("pow", 0.5, elementary_pow(0.5, 0), 1, 0);
	if (bits != 0x4664820367b2dc2d) {
		printf("the bits are 0x%llx\n", (unsigned long long)bits);
		failures++;
	}
	return failures != 0;
}
