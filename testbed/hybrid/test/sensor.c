// SPDX-License-Identifier: GPL-2.0-or-later
/* What ../sensor.c answers, by energies made up here; `cargo test` compiles and runs it. */
#include <math.h>
#include <stdio.h>

#include "../model.h"

struct machine machine = { .n_types = 2, .energy = {
	.n_sensors = 2, .sensor = { { 0x40, 0 }, { 0x45, 2 } },
} };
static double nj[3];
static int failures;

double energy_of(unsigned type)
{
	return nj[type];
}

static void check(const char *what, bool right)
{
	if (!right)
		printf("%s\n", what), failures++;
}

/* Watts as Linux reads LINEAR11: a signed exponent of 5 bits, a signed mantissa of 11. */
static double watts(unsigned address)
{
	uint32_t word = 0;
	check("no watts", sensor_read(address, 0x96, &word) && word < 0x10000);
	int exponent = (int16_t)word >> 11;
	int mantissa = (int16_t)(word << 5) >> 5;
	return mantissa * exp2(exponent);
}

int main(void)
{
	uint32_t value = 1;

	check("a status", sensor_read(0x40, 0x78, &value) && value == 0);
	check("a word of status", sensor_read(0x45, 0x79, &value) && value == 0);
	check("a page", !sensor_read(0x40, 0, &value));
	check("an address without sensor", !sensor_read(0x41, 0x96, &value));
	check("watts before anything", watts(0x40) == 0);
	for (double w = 1e-3, ns = 0; w < 500; w *= 1.37) {
		for (int i = 0; i < 800; i++) { /* 40 ms, a conversion and a little more */
			nj[0] += w * 50e3;
			nj[1] += 1e9;
			nj[2] += w / 2 * 50e3;
			sensor_window(ns += 50e3);
		}
		for (int i = 0; i < 800; i++) {
			nj[0] += w * 50e3;
			nj[2] += w / 2 * 50e3;
			sensor_window(ns += 50e3);
		}
		check("a type's watts", fabs(watts(0x40) - w) <= fmax(w * 0.001, 8e-6));
		check("memory's watts", fabs(watts(0x45) - w / 2) <= fmax(w * 0.0005, 8e-6));
		/* What comes after the last conversion is not in it. */
		double before = watts(0x40);
		nj[0] += 1e12;
		sensor_window(ns);
		check("in the middle of a conversion", watts(0x40) == before);
		nj[0] -= 1e12;
	}
	return failures != 0;
}
