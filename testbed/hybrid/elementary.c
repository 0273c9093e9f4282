// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Elementary functions that are the same on every host.
 *
 * The C library's exp(), log2() and pow() run other code on a CPU that multiplies and adds at once than on one
 * that does not, and their last bits differ: the same boot takes another course there. These are only of what
 * IEEE 754 settles to the bit: + - * / and scaling by a power of two, compiled without contraction (plugin).
 * How far they are from the library's, test/elementary.c says.
 */
#include <math.h>

#include "model.h"

#define LN2 0x1.62e42fefa39efp-1
#define LN2_HIGH 0x1.62e42feep-1 /* times a whole number it is exact */
#define LN2_REST 0x1.a39ef35793c76p-33
#define LOG2_E 0x1.71547652b82fep+0

/* e to a power of at most ln 2 / 2, which is where this series is exact to the last bits. */
static double exp_near_0(double x)
{
	static const double of[] = { /* 1 over the factorial */
		1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
		1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200,
	};
	double sum = 0;

	for (int i = 14; i >= 0; i--)
		sum = sum * x + of[i];
	return sum;
}

double elementary_exp2(double x)
{
	if (x < -1100)
		return 0;
	if (x > 1100)
		return INFINITY;
	double whole = rint(x);

	return ldexp(exp_near_0((x - whole) * LN2), (int)whole);
}

double elementary_exp(double x)
{
	if (x < -760)
		return 0;
	if (x > 760)
		return INFINITY;
	double whole = rint(x * LOG2_E);

	return ldexp(exp_near_0(x - whole * LN2_HIGH - whole * LN2_REST), (int)whole);
}

/* For x > 0. */
double elementary_log2(double x)
{
	int whole;
	double part = frexp(x, &whole);

	if (part < M_SQRT1_2) { /* sqrt(1/2) to sqrt(2): so that a power of two is exact */
		part *= 2;
		whole--;
	}
	double s = (part - 1) / (part + 1), sum = 0;

	for (int i = 23; i > 0; i -= 2)
		sum = sum * s * s + 1.0 / i;
	return whole + 2 * s * sum / LN2;
}

/* For x > 0. */
double elementary_pow(double x, double y)
{
	return elementary_exp2(y * elementary_log2(x));
}
