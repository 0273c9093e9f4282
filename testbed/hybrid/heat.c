// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Heat: one temperature of the package, to which its watts lead by a thermal resistance
 * and a time, and from which leakage grows. Where it would pass the highest one, clocks
 * fall as for any other limit (energy.c). The guest reads it by Intel's registers, as of
 * all cores alike.
 */
#include <math.h>

#include "model.h"

enum { THERM_STATUS = 0x19c, TEMPERATURE_TARGET = 0x1a2, PACKAGE_THERM_STATUS = 0x1b1 };
#define VALID (1u << 31)
#define RESOLUTION_1K (1u << 27)
/* Of the usual order, not measured. */
#define LEAKAGE_AT_C 60.0 /* as the machine's file has it */
#define DOUBLES_K 30.0

static double above_k; /* the package over the air */

static double celsius(void)
{
	return machine.energy.ambient_c + above_k;
}

void heat_window(double watts, double ns)
{
	const struct machine_energy *e = &machine.energy;

	if (e->thermal_r > 0)
		above_k += (1 - elementary_exp(-ns / 1e9 / e->thermal_s)) * (watts * e->thermal_r - above_k);
}

double heat_leakage(void)
{
	return machine.energy.thermal_r > 0 ? elementary_exp2((celsius() - LEAKAGE_AT_C) / DOUBLES_K) : 1;
}

double heat_limit_w(void)
{
	const struct machine_energy *e = &machine.energy;

	if (e->thermal_r <= 0 || celsius() < e->max_c)
		return INFINITY;
	return (e->max_c - e->ambient_c) / e->thermal_r; /* with these it stays there */
}

bool heat_rdmsr(uint32_t msr, uint64_t *val)
{
	if (machine.energy.thermal_r <= 0)
		return false;
	switch (msr) {
	case THERM_STATUS:
	case PACKAGE_THERM_STATUS: /* how far below the highest */
		*val = VALID | RESOLUTION_1K |
		       (uint64_t)fmin(fmax(machine.energy.max_c - floor(celsius()), 0), 127) << 16;
		return true;
	case TEMPERATURE_TARGET:
		*val = (uint64_t)machine.energy.max_c << 16;
		return true;
	}
	return false;
}
