// SPDX-License-Identifier: GPL-2.0-only
/*
 * Integer for a while, then stream, and again: what a scheduler has learned about
 * such a program is wrong a moment later. The default makes a phase last a few
 * hundred milliseconds where a core does a few hundred million instructions a
 * second; a real machine wants --phase-units 4096 for the same.
 */
#include <stdlib.h>

#include "programs.h"

struct phased {
	void *integer, *stream;
	uint64_t units;
	unsigned int phase_units;
};

static void *create(const struct options *options)
{
	struct phased *p = allocate(sizeof(*p));

	*p = (struct phased){
		.integer = integer.create(options),
		.stream = stream.create(options),
		.phase_units = options->phase_units,
	};
	return p;
}

static uint64_t unit(void *state)
{
	struct phased *p = state;

	if (p->units++ / p->phase_units % 2 == 0)
		return integer.unit(p->integer);
	return stream.unit(p->stream);
}

static void destroy(void *state)
{
	struct phased *p = state;

	integer.destroy(p->integer);
	stream.destroy(p->stream);
	free(p);
}

const struct program phased = {
	.name = "phased",
	.summary = "integer and stream in turns",
	.accepts = TAKES(OPT_WORKING_SET) | TAKES(OPT_PHASE_UNITS),
	.working_set_kib = 16384,
	.create = create,
	.unit = unit,
	.destroy = destroy,
};
