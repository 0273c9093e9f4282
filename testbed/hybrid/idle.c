// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Idle states. On most machines a CPU falls deeper asleep by itself, the longer it sleeps. Where
 * ACPI tells the guest of states (`cpuidle`: see acpi.py), Linux' acpi_idle chooses, by reading a port;
 * a CPU that halts is in the first one.
 */
#include "model.h"

double idle_exit_ns(const struct cpu *c, double slept_ns)
{
	const struct core_type *t = c->type;
	double ns = 0;

	if (t->n_states)
		return t->state[c->state].exit_ns;
	for (unsigned i = 0; i < t->n_exits && slept_ns >= t->exit[i].after_ns; i++)
		ns = t->exit[i].exit_ns;
	return ns;
}

bool idle_ask(unsigned cpu, uint32_t port)
{
	unsigned state = port - IDLE_PORT;

	if (state >= cpus[cpu].type->n_states)
		return false;
	cpus[cpu].asked = state;
	return true;
}

void idle_enter(struct cpu *c)
{
	if (c->asked != c->state)
		energy_settle_core(c);
	c->state = c->asked;
	c->asked = 0;
}
