// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads a machine, as `testbed/machine` writes it: one `path = value` in a line,
 * for example `type.0.cost.div = 12`. What is missing or misspelt ends QEMU.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define MAX_LINES 1024

struct machine machine;

static struct {
	char key[64], value[64];
	bool used;
} line[MAX_LINES];
static unsigned n_lines;

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("hybrid plugin: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static const char *find(const char *key)
{
	for (unsigned i = 0; i < n_lines; i++)
		if (!strcmp(line[i].key, key)) {
			line[i].used = true;
			return line[i].value;
		}
	return NULL;
}

__attribute__((format(printf, 1, 2))) static const char *text(const char *format, ...)
{
	char key[64];
	va_list args;

	va_start(args, format);
	vsnprintf(key, sizeof key, format, args);
	va_end(args);
	const char *value = find(key);
	if (!value)
		fail("the machine has no %s", key);
	return value;
}

#define number(...) strtod(text(__VA_ARGS__), NULL)

static const char *const class[N_CLASSES] = {
	"insn", "load", "store", "branch", "fp", "mul", "div", "sys",
};

static void read_energy(struct machine_energy *e)
{
	e->on = number("energy");
	if (!e->on)
		return;
	e->uncore_w = number("energy.uncore_w");
	e->idle_w = number("energy.idle_w");
	e->dram_w = number("energy.dram_w");
	e->dram_nj = number("energy.dram_nj");
	e->pl1_w = number("energy.pl1_w");
	e->pl1_s = number("energy.pl1_s");
	e->pl2_w = number("energy.pl2_w");
	e->thermal_r = number("energy.thermal_r");
	e->thermal_s = number("energy.thermal_s");
	e->ambient_c = number("energy.ambient_c");
	e->max_c = number("energy.max_c");
	e->n_sensors = number("energy.sensors");
	if (e->n_sensors > MAX_SENSORS)
		fail("at most %u sensors", MAX_SENSORS);
	for (unsigned k = 0; k < e->n_sensors; k++) {
		e->sensor[k].address = number("energy.sensor.%u.address", k);
		e->sensor[k].of = number("energy.sensor.%u.of", k);
	}
}

static void read_hfi(struct machine_hfi *h)
{
	h->on = number("hfi");
	if (!h->on)
		return;
	h->interval_ns = number("hfi.interval_ms") * 1e6;
	h->step = number("hfi.step");
}

static void read_type_energy(unsigned i, struct type_energy *e)
{
	e->leakage_w = number("type.%u.energy.leakage_w", i);
	e->cycle_nj = number("type.%u.energy.cycle_nj", i);
	for (unsigned k = 0; k < N_CLASSES; k++)
		e->nj[k] = number("type.%u.energy.%s", i, class[k]);
	e->nj[BRANCH_MISS] = number("type.%u.energy.branch_miss", i);
	e->nj[L1_MISS] = number("type.%u.energy.l2", i); /* what an L1 lacks, it asks for there */
	e->nj[L2_MISS] = number("type.%u.energy.llc", i);
	e->n_volts = number("type.%u.energy.volts", i);
	e->n_idle = number("type.%u.energy.idle", i);
	if (!e->n_volts || !e->n_idle || e->n_volts > MAX_POINTS || e->n_idle > MAX_POINTS)
		fail("a core type needs 1 to %u clocks with volts, and idle states", MAX_POINTS);
	for (unsigned k = 0; k < e->n_volts; k++) {
		e->volts[k].mhz = number("type.%u.energy.volts.%u.mhz", i, k);
		e->volts[k].volt = number("type.%u.energy.volts.%u.volt", i, k);
	}
	for (unsigned k = 0; k < e->n_idle; k++) {
		e->idle[k].after_ns = number("type.%u.energy.idle.%u.after_us", i, k) * 1e3;
		e->idle[k].watts = number("type.%u.energy.idle.%u.watts", i, k);
	}
}

static void read_latency(struct latency *l)
{
	static const char *const name[N_DISTANCES] = { "sibling", "cluster", "llc", "other" };

	l->on = number("latency");
	for (unsigned i = 0; l->on && i < N_DISTANCES; i++)
		l->ns[i] = number("latency.%s_ns", name[i]);
}

static void read_noise(struct noise *n)
{
	n->on = number("noise");
	if (!n->on)
		return;
	n->counts = number("noise.counts");
	n->misses = number("noise.misses");
	n->clock = number("noise.clock");
	n->memory = number("noise.memory");
}

static void read_exits(unsigned i, struct core_type *t)
{
	t->n_states = number("type.%u.cpuidle", i);
	if (t->n_states > MAX_POINTS)
		fail("a core type has at most %u idle states", MAX_POINTS);
	for (unsigned k = 0; k < t->n_states; k++) {
		t->state[k].exit_ns = number("type.%u.cpuidle.%u.exit_us", i, k) * 1e3;
		t->state[k].watts = number("type.%u.cpuidle.%u.watts", i, k);
		machine.exits = true;
	}
	t->n_exits = number("type.%u.idle_exit", i);
	if (t->n_exits > MAX_POINTS)
		fail("a core type has at most %u idle states to leave", MAX_POINTS);
	for (unsigned k = 0; k < t->n_exits; k++) {
		t->exit[k].after_ns = number("type.%u.idle_exit.%u.after_us", i, k) * 1e3;
		t->exit[k].exit_ns = number("type.%u.idle_exit.%u.exit_us", i, k) * 1e3;
		machine.exits = true;
	}
}

static void read_pipeline(unsigned i, struct pipeline *p)
{
	static const char *const unit[N_UNITS] = {
		"alu", "branch", "mul", "div", "fp", "fdiv", "vector",
	};

	p->on = number("type.%u.pipeline", i);
	if (!p->on)
		return;
	p->width = number("type.%u.pipeline.width", i);
	p->window = number("type.%u.pipeline.window", i);
	p->fetch = number("type.%u.pipeline.fetch", i);
	p->hide = number("type.%u.pipeline.hide", i);
	p->load_ports = number("type.%u.pipeline.ports.load", i);
	p->store_ports = number("type.%u.pipeline.ports.store", i);
	p->load_latency = number("type.%u.pipeline.latency.load", i);
	for (unsigned k = 0; k < N_UNITS; k++) {
		p->ports[k] = number("type.%u.pipeline.ports.%s", i, unit[k]);
		p->latency[k] = number("type.%u.pipeline.latency.%s", i, unit[k]);
	}
}

static void read_type(unsigned i, struct core_type *t)
{
	snprintf(t->name, sizeof t->name, "%s", text("type.%u.name", i));
	t->cpuid_type = number("type.%u.cpuid_type", i);
	t->pmu = pmu_table(text("type.%u.pmu", i));
	t->counters = number("type.%u.counters", i);
	t->fixed_counters = number("type.%u.fixed_counters", i);
	for (unsigned k = 0; k < N_CLASSES; k++)
		t->cost[k] = number("type.%u.cost.%s", i, class[k]);
	t->branch_miss = number("type.%u.branch_miss_cycles", i);
	t->l2_cycles = number("type.%u.l2_cycles", i);
	t->llc_cycles = number("type.%u.llc_cycles", i);
	t->overlap = number("type.%u.overlap", i);
	t->walk_ns = number("type.%u.walk_ns", i);
	t->smt = number("type.%u.smt", i);
	t->prefetch = number("type.%u.prefetch", i);
	t->l1_kib = number("type.%u.l1_kib", i);
	t->l1_ways = number("type.%u.l1_ways", i);
	t->max_ratio = number("type.%u.max_ratio", i);
	t->highest_level = number("type.%u.highest_level", i);
	t->guaranteed_level = number("type.%u.guaranteed_level", i);
	t->n_turbo = number("type.%u.turbo", i);
	for (unsigned k = 0; k < t->n_turbo && k < MAX_CPUS; k++)
		t->turbo_mhz[k] = number("type.%u.turbo.%u", i, k);
	t->n_thermal = number("type.%u.thermal", i);
	for (unsigned k = 0; k < t->n_thermal && k < MAX_EVENTS; k++) {
		unsigned listed = number("type.%u.thermal.%u.cores", i, k);

		t->thermal[k] = (struct thermal){
			.at_ns = number("type.%u.thermal.%u.at_s", i, k) * 1e9,
			.until_ns = number("type.%u.thermal.%u.until_s", i, k) * 1e9,
			.mhz = number("type.%u.thermal.%u.mhz", i, k),
			.cores = listed ? 0 : UINT64_MAX,
		};
		for (unsigned j = 0; j < listed; j++) {
			unsigned core = number("type.%u.thermal.%u.cores.%u", i, k, j);

			t->thermal[k].cores |= 1ull << core % 64;
		}
	}
	if (machine.amd) {
		t->lowest_level = number("type.%u.lowest_level", i);
		t->nonlinear_level = number("type.%u.nonlinear_level", i);
		unsigned cores = number("type.%u.ranking", i);
		for (unsigned k = 0; k < cores && k < MAX_CPUS; k++)
			t->ranking[k] = number("type.%u.ranking.%u", i, k);
	}
	read_pipeline(i, &t->pipeline);
	if (machine.energy.on)
		read_type_energy(i, &t->energy);
	read_exits(i, t);
	if (!t->n_turbo || t->overlap < 1 || t->prefetch < 1)
		fail("core type %s needs a clock, and at least 1 miss in flight", t->name);
}

void machine_read(const char *path)
{
	struct machine *m = &machine;
	FILE *f = fopen(path, "r");
	char buffer[160];

	if (!f)
		fail("cannot read %s", path);
	while (fgets(buffer, sizeof buffer, f)) {
		if (n_lines == MAX_LINES ||
		    sscanf(buffer, "%63s = %63[^\n]", line[n_lines].key, line[n_lines].value) != 2)
			fail("%s: not a setting: %s", path, buffer);
		n_lines++;
	}
	fclose(f);

	snprintf(m->name, sizeof m->name, "%s", text("name"));
	m->family = number("cpuid.family");
	m->cpu_model = number("cpuid.model");
	m->stepping = number("cpuid.stepping");
	m->hybrid = number("cpuid.hybrid");
	m->amd = number("cpuid.amd");
	m->window_ns = number("window_ns");
	m->ref_mhz = number("ref_mhz");
	m->memory_ns = number("memory.latency_ns");
	m->memory.bytes_per_ns = number("memory.bandwidth_mb_s") / 1e3;
	m->memory.queue = 1;
	m->n_types = number("types");
	m->n_clusters = number("clusters");
	m->n_llcs = number("llcs");
	m->n_cpus = number("ids");
	m->ids_of_core = number("ids_of_core");
	m->present = number("cpus");
	if (m->n_types > MAX_TYPES || m->n_clusters > MAX_CPUS || m->n_llcs > MAX_DOMAINS)
		fail("%s is too large a machine", m->name);
	read_energy(&m->energy);
	read_latency(&m->latency);
	read_noise(&m->noise);
	m->resctrl.rmids = number("resctrl.rmids");
	m->resctrl.clos = number("resctrl.clos");
	if (m->resctrl.rmids > MAX_RMIDS || m->resctrl.clos > MAX_CLOS)
		fail("resctrl has up to %u rmids and %u clos", MAX_RMIDS, MAX_CLOS);
	read_hfi(&m->hfi);
	for (unsigned i = 0; i < m->n_types; i++)
		read_type(i, &m->type[i]);
	for (unsigned i = 0; i < m->n_llcs; i++) {
		struct llc *l = &m->llc[i];

		l->kib = number("llc.%u.kib", i);
		l->ways = number("llc.%u.ways", i);
		cache_init(&l->cache, l->kib, l->ways);
		rdt_init(l);
		l->bus.bytes_per_ns = number("llc.%u.bandwidth_mb_s", i) / 1e3;
		l->bus.queue = 1;
	}
	for (unsigned i = 0; i < m->n_clusters; i++) {
		struct cluster *c = &m->cluster[i];

		c->type = number("cluster.%u.type", i);
		c->llc = number("cluster.%u.llc", i);
		c->cpus = number("cluster.%u.cpus", i);
		c->threads = number("cluster.%u.threads", i);
		c->first = number("cluster.%u.first", i);
		c->shared_l2 = number("cluster.%u.shared_l2", i);
		c->l2_kib = number("cluster.%u.l2_kib", i);
		c->l2_ways = number("cluster.%u.l2_ways", i);
		c->ids = c->cpus / c->threads * m->ids_of_core;
		if (c->first + c->ids > m->n_cpus || m->n_cpus > MAX_CPUS ||
		    c->type >= m->n_types || c->llc >= m->n_llcs)
			fail("cluster %u of %s does not fit", i, m->name);
	}
	for (unsigned i = 0; i < n_lines; i++)
		if (!line[i].used)
			fail("%s: unknown setting %s", path, line[i].key);
}
