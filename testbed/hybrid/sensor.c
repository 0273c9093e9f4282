// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Power sensors on an I2C bus, for boards that have one on each cluster's supply.
 *
 * They speak PMBus, as Debian's kernel has a driver for that, and not for the chips that
 * boards have. That driver wants a status, and the watts in LINEAR11: 11 bits of mantissa
 * and 5 of a power of two, so that a step is 0.2 % of the value or less from 16 mW on.
 *
 * As an INA231 under Linux, each shows the mean over its last conversion.
 */
#include <math.h>

#include "model.h"

enum { STATUS_BYTE = 0x78, STATUS_WORD = 0x79, READ_POUT = 0x96 };
#define CONVERSION_NS 35.2e6 /* voltage and current, 16 times, 1.1 ms each */
#define LEAST_EXPONENT -16
#define MOST_MANTISSA 1023

static struct {
	double nj, watts;
} sensors[MAX_SENSORS];
static double converted_ns;

static uint16_t linear11(double value)
{
	int exponent = LEAST_EXPONENT;

	while (lround(value * elementary_exp2(-exponent)) > MOST_MANTISSA)
		exponent++;
	return (uint16_t)((unsigned)exponent << 11) | (uint16_t)lround(value * elementary_exp2(-exponent));
}

void sensor_window(double now_ns)
{
	double ns = now_ns - converted_ns;

	if (!machine.energy.n_sensors || ns < CONVERSION_NS)
		return;
	converted_ns = now_ns;
	for (unsigned i = 0; i < machine.energy.n_sensors; i++) {
		double nj = energy_of(machine.energy.sensor[i].of);

		sensors[i].watts = (nj - sensors[i].nj) / ns;
		sensors[i].nj = nj;
	}
}

bool sensor_read(unsigned address, uint8_t command, uint32_t *value)
{
	for (unsigned i = 0; i < machine.energy.n_sensors; i++) {
		if (machine.energy.sensor[i].address != address)
			continue;
		*value = command == READ_POUT ? linear11(sensors[i].watts) : 0;
		return command == READ_POUT || command == STATUS_BYTE || command == STATUS_WORD;
	}
	return false;
}
