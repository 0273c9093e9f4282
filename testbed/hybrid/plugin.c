// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A QEMU plugin that makes a hybrid machine out of identical vCPUs.
 *
 * Each translated block adds its instructions, by class, to counters of the vCPU
 * that runs it (inline code, no call). When a slice's budget of instructions is
 * spent, and whenever the guest looks at a clock or a counter, they become cycles
 * by the core type's costs, and cycles become virtual time by its clock. Loads
 * and stores of user programs go through the cache model, their conditional
 * branches through a branch predictor.
 *
 * QEMU asks which vCPU runs next (see qemu.patch): always the one whose clock is
 * farthest behind, and never past the others by more than a window, nor past the
 * next timer. So the host's speed and load change nothing that the guest can see.
 */
#include <math.h>
#include <qemu-plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/* Until the model is started, clocks are this much faster, and caches perfect. */
#define BOOT_SPEED 3
#define MAX_SLICE 30000  /* instructions: the packed counters have 16 bits */
#define FRACTION 64
#define MAX_BLOCK 512    /* instructions: TCG_MAX_INSNS */
#define MAX_PRICE (1 << 24) /* of a block, so that a slice's price has 32 bits */
#define BUDGET (1 << 20) /* `spent` at which a slice's budget is used up */

struct cpu cpus[MAX_CPUS];
bool started;
double started_ns;

/* Written by translated code, and found by it through the scoreboard. */
struct hot {
	uint64_t a[N_MODES]; /* INSN, LOAD, STORE, BRANCH: 16 bits each, INSN lowest */
	uint64_t b[N_MODES]; /* FP, MUL, DIV, SYS */
	uint64_t repeats[N_MODES]; /* bytes accessed by rep string instructions */
	uint64_t pipeline[N_MODES]; /* of two core types, 32 bits each, in 1 / FRACTION cycles */
	uint64_t spent;
	uint64_t branch; /* where the last conditional branch falls through to */
	uint64_t mispredicted;
	uint64_t pad[5]; /* a power of two is found quicker */
};
static struct qemu_plugin_scoreboard *board;
static struct hot *hots; /* the same, once all vCPUs are there */
static qemu_plugin_u64 hot_a[N_MODES], hot_b[N_MODES], hot_repeats[N_MODES], hot_pipeline[N_MODES],
	hot_spent, hot_branch;

#define BRANCHES 4096
static uint8_t predictor[MAX_CPUS][BRANCHES];
static unsigned core_mask = ~0u; /* siblings share one */

static double devices_ns; /* the devices' time: that of the slowest vCPU awake */
static double window_end_ns = WINDOW_NS;
static double limit_ns; /* of the running slice */
static double hold_ns = INFINITY; /* the next timer, if all that run are beyond it */
static double second_ns; /* the clock of the slowest vCPU that does not run */

/* --- from instructions to time ------------------------------------------------ */

static double cost_of(struct cpu *c, struct hot *h, enum mode m, struct width *used)
{
	struct totals *t = &c->total[m];
	const double *cost = c->type->cost;
	double cycles = 0;

	for (unsigned k = 0; k < N_CLASSES; k++) {
		uint64_t packed = k < 4 ? h->a[m] : h->b[m];
		uint16_t n = packed >> 16 * (k & 3);

		t->n[k] += n;
		cycles += n * cost[k];
	}
	used->waits = (uint16_t)(h->b[m] >> 16 * (SYS & 3)) * cost[SYS];
	used->fp = (uint16_t)(h->b[m] >> 16 * (FP & 3)) * cost[FP];
	if (c->type->pipeline.on) {
		unsigned type = c->type - machine.type;
		double priced = (double)(uint32_t)(h->pipeline[m] >> 32 * type) / FRACTION;

		cycles = priced + used->waits;
		used->fp = fmin(used->fp, priced);
		h->pipeline[m] = 0;
	}
	h->a[m] = h->b[m] = 0;
	/* A rep moves 16 bytes a cycle, or so; QEMU does one access at a time. */
	t->n[LOAD] += h->repeats[m] / 16;
	t->n[STORE] += h->repeats[m] / 16;
	cycles += h->repeats[m] / 16.0;
	h->repeats[m] = 0;

	return cycles;
}

/* How many instructions may run before the clock reaches limit_ns. */
static uint64_t allowance(const struct cpu *c, double per_insn_ns, uint64_t until_overflow)
{
	double n = (limit_ns - c->ns) / per_insn_ns;

	/* An event may come more than once in an instruction: creep up to it. */
	if (until_overflow != UINT64_MAX)
		n = fmin(n, until_overflow / 2);
	return fmin(fmax(n, 32), MAX_SLICE);
}

void cpu_flush(struct cpu *c)
{
	struct hot *h = &hots[c->index];
	uint64_t before = c->total[USER].n[INSN] + c->total[KERNEL].n[INSN];
	struct width used[N_MODES];
	double cycles[N_MODES];
	uint64_t user = c->total[USER].n[INSN];
	double mhz = started ? c->mhz : c->mhz * BOOT_SPEED;

	for (unsigned m = 0; m < N_MODES; m++)
		cycles[m] = cost_of(c, h, m, &used[m]);
	double compute = cycles[USER] - used[USER].waits;
	/* Only user programs go through the models of caches and branches. */
	c->total[USER].n[BRANCH_MISS] += h->mispredicted;
	cycles[USER] += h->mispredicted * c->type->branch_miss;
	h->mispredicted = 0;
	if (c->smt.sibling)
		smt_stretch(c, cycles, used, mhz);
	double stalled = c->pending_cycles + c->pending_ns * mhz * 1e-3;
	c->pending_cycles = c->pending_ns = 0;
	if (c->beside_misses > 0) {
		double beside = c->beside_cycles + c->beside_ns * mhz * 1e-3;

		stalled -= pipeline_hides(&c->type->pipeline, beside, c->beside_misses, compute,
					  c->total[USER].n[INSN] - user);
		c->beside_cycles = c->beside_ns = c->beside_misses = 0;
	}
	cycles[USER] += stalled;
	c->total[USER].stalled += stalled;
	for (unsigned m = 0; m < N_MODES; m++) {
		c->total[m].cycles += cycles[m];
		c->total[m].ref += cycles[m] * machine.ref_mhz / mhz;
	}
	double ns = (cycles[USER] + cycles[KERNEL]) * 1e3 / mhz;
	c->ns += ns;
	c->busy_ns += ns;
	c->smt.awake_ns += ns;

	uint64_t insns = c->total[USER].n[INSN] + c->total[KERNEL].n[INSN] - before;
	double per_insn = insns > 16 ? ns / insns : c->type->cost[INSN] * 1e3 / mhz;
	h->spent = BUDGET - allowance(c, per_insn, pmu_update(c));
	c->patience = (limit_ns - c->ns) / 2 * mhz * 1e-3;
	/* Here, not in on_budget(): who reads a clock in a loop never spends it. */
	if (c->ns >= limit_ns - 1000)
		qemu_plugin_hybrid_end_slice();
}

double cpu_now(const struct cpu *c)
{
	double insns = (uint16_t)hots[c->index].a[USER];
	double cycles = insns * c->type->cost[INSN] + c->pending_cycles;

	return c->ns + c->pending_ns + cycles * 1e3 / c->mhz;
}

static void on_budget(unsigned cpu, void *unused)
{
	cpu_flush(&cpus[cpu]);
}

/* --- what QEMU asks ------------------------------------------------------------- */

static void advance_devices(double ns)
{
	if (ns <= devices_ns)
		return;
	devices_ns = ns;
	if (devices_ns < window_end_ns)
		return;
	double length = devices_ns - (window_end_ns - WINDOW_NS);
	memory_window(length);
	energy_window(devices_ns);
	sensor_window(devices_ns);
	if (machine.noise.on)
		noise_window(length);
	clock_window(devices_ns, length);
	hfi_window(devices_ns, length);
	if (machine.ids_of_core > 1)
		smt_window(devices_ns);
	window_end_ns = devices_ns + WINDOW_NS;
}

static double slowest(void)
{
	double ns = INFINITY;

	for (unsigned i = 0; i < machine.n_cpus; i++)
		if (!cpus[i].asleep)
			ns = fmin(ns, cpus[i].ns);
	return ns;
}

/* A sleeper comes back at a given time, or as much later as its sleep is deep. */
static void rouse(struct cpu *c, double ns)
{
	double slept_ns = ns - c->ns;

	c->ns = fmax(c->ns, ns);
	if (started)
		c->ns += idle_exit_ns(c, slept_ns);
}

static unsigned pick(const bool *runnable, unsigned n, int64_t deadline)
{
	struct cpu *next = NULL;
	second_ns = INFINITY;
	hots = qemu_plugin_scoreboard_find(board, 0);
	for (unsigned i = 0; i < n; i++) {
		struct cpu *c = &cpus[i];

		if (runnable[i] && c->asleep)
			rouse(c, devices_ns);
		if (!runnable[i] && !c->asleep && c->type)
			idle_enter(c);
		c->asleep = !runnable[i];
		if (c->asleep)
			continue;
		if (!next || c->ns < next->ns) {
			if (next)
				second_ns = fmin(second_ns, next->ns);
			next = c;
		} else {
			second_ns = fmin(second_ns, c->ns);
		}
	}
	if (!next)
		return 0;
	/* All may be on their way out of sleep, and a timer due before they are there. */
	bool early = machine.exits && started && deadline > devices_ns && next->ns > deadline;
	/* INFINITY is a float, and would make one of an integer beside it: devices would come to a
	 * time up to a microsecond before the timer, and never farther. */
	hold_ns = early ? (double)deadline : INFINITY;
	advance_devices(fmin(next->ns, hold_ns));
	/* Here that may be: the slice ends a little sooner or later. What was measured depends on it. */
	limit_ns = fmin(second_ns + machine.window_ns, deadline == INT64_MAX ? INFINITY : deadline);
	/* Latencies must follow in time, or a lone program's traffic swings to and fro. */
	limit_ns = fmin(limit_ns, next->ns + WINDOW_NS);
	hots[next->index].spent = BUDGET; /* the first block's callback settles it */
	return next->index;
}

static void leave(unsigned cpu)
{
	cpu_flush(&cpus[cpu]);
	advance_devices(fmin(slowest(), hold_ns));
}

static int64_t now(int cpu)
{
	if (cpu < 0)
		return devices_ns;
	cpu_flush(&cpus[cpu]);
	return fmax(cpus[cpu].ns, devices_ns);
}

static bool wake(unsigned cpu, int by)
{
	struct cpu *c = &cpus[cpu];

	c->asked = 0; /* before it came to sleep, perhaps */
	if (!c->asleep)
		return false;
	rouse(c, now(by));
	c->asleep = false;
	/* The one who wakes it thought itself alone perhaps, with a long slice. */
	limit_ns = fmin(limit_ns, c->ns + machine.window_ns);
	if (by >= 0)
		hots[by].spent = BUDGET;
	return true;
}

static void warp(int64_t ns)
{
	energy_warp(ns - devices_ns);
	advance_devices(ns);
}

/* The L1 is indexed by virtual address: other programs' lines are not its own. */
static void mmu(unsigned cpu, uint64_t cr3)
{
	cpus[cpu].space = (uint32_t)(cr3 >> 12) * 2654435769u;
}

static bool on_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val)
{
	return pmu_rdmsr(cpu, msr, val) || power_rdmsr(cpu, msr, val) || rdt_rdmsr(cpu, msr, val);
}

static bool on_wrmsr(unsigned cpu, uint32_t msr, uint64_t val)
{
	return pmu_wrmsr(cpu, msr, val) || power_wrmsr(cpu, msr, val) || rdt_wrmsr(cpu, msr, val);
}

void model_start(void)
{
	for (unsigned i = 0; i < machine.n_cpus; i++)
		if (!cpus[i].asleep)
			cpu_flush(&cpus[i]);
	started = true;
	started_ns = devices_ns;
	qemu_plugin_hybrid_retranslate();
}

void model_stop(void)
{
	started = false;
	qemu_plugin_hybrid_retranslate();
}

void guest_write(uint64_t address, const void *from, size_t size)
{
	qemu_plugin_hybrid_write(address, from, size);
}

void thermal_interrupt(unsigned cpu)
{
	qemu_plugin_hybrid_thermal(cpu);
}

void ranking_changed(void)
{
	qemu_plugin_hybrid_gpe();
}

/* --- what translated code calls --------------------------------------------------- */

/* Misses can take the slice's time long before its instructions are run. */
static inline void mind_patience(const struct cpu *c)
{
	if (c->pending_cycles + c->pending_ns * c->mhz * 1e-3 > c->patience)
		hots[c->index].spent = BUDGET;
}

static void on_access(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *chases)
{
	struct cpu *c = &cpus[cpu];
	uint32_t line = address / LINE;
	uint32_t set = line & (c->l1.sets - 1), tag = line ^ c->space;

	if (__builtin_expect(c->l1.tags[set * c->l1.ways] == tag, 1))
		return;
	if (cache_access(&c->l1, set, tag))
		return;
	struct qemu_plugin_hwaddr *hw = qemu_plugin_get_hwaddr(info, address);
	if (!hw || qemu_plugin_hwaddr_is_io(hw))
		return;
	memory_access(c, line, qemu_plugin_hwaddr_phys_addr(hw) / LINE,
		      qemu_plugin_mem_is_store(info), chases != NULL);
	mind_patience(c);
}

static void catch_up(unsigned cpu, double ns);

/* The same on a machine on which it matters which CPU wrote a line. */
static inline void on_shared(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address,
			     bool store, bool chases)
{
	struct cpu *c = &cpus[cpu];
	uint32_t line = address / LINE;
	uint32_t set = line & (c->l1.sets - 1), tag = line ^ c->space;
	bool hit = c->l1.tags[set * c->l1.ways] == tag;
	struct transfer t;

	if (__builtin_expect(hit && coherence_known(c, tag, store, hit), 1))
		return;
	hit = hit || cache_access(&c->l1, set, tag);
	bool known = coherence_known(c, tag, store, hit);
	if (known && hit)
		return;
	struct qemu_plugin_hwaddr *hw = qemu_plugin_get_hwaddr(info, address);
	if (!hw || qemu_plugin_hwaddr_is_io(hw))
		return;
	uint32_t physical = qemu_plugin_hwaddr_phys_addr(hw) / LINE;
	if (!known && coherence_access(c, line, physical, store, &t)) {
		memory_transfer(c, line, physical, &t);
		if (t.contended)
			catch_up(cpu, t.now_ns);
	} else if (!hit) {
		memory_access(c, line, physical, store, chases);
	}
	mind_patience(c);
}

static void on_load(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *chases)
{
	on_shared(cpu, info, address, false, chases != NULL);
}

static void on_store(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *chases)
{
	on_shared(cpu, info, address, true, chases != NULL);
}

/*
 * A two-bit counter for each branch, by the address that it falls through to.
 * Without a branch of its own: what the guest cannot predict, the host cannot.
 */
static void on_branch_target(unsigned cpu, void *here)
{
	static const uint8_t next[2][4] = { { 0, 0, 1, 2 }, { 1, 2, 3, 3 } };
	struct hot *h = &hots[cpu];
	uint8_t *counter = &predictor[cpu & core_mask][(h->branch ^ h->branch >> 12) % BRANCHES];
	bool taken = (uint64_t)here != h->branch;

	h->branch = 0;
	h->mispredicted += taken ^ (*counter >> 1);
	*counter = next[taken][*counter];
}

/*
 * Who pauses waits for another vCPU. That one may have let go already, but at a
 * time that it has not come to yet: let it catch up, or every lock that is held
 * at the end of a slice would seem to be held for a window.
 */
static void catch_up(unsigned cpu, double ns)
{
	limit_ns = fmin(limit_ns, fmax(second_ns, ns) + 1000);
	hots[cpu].spent = BUDGET;
}

static void on_pause(unsigned cpu, void *unused)
{
	cpus[cpu].paused_ns = cpu_now(&cpus[cpu]);
	catch_up(cpu, cpus[cpu].ns);
}

/* Adds what a block costs on each core type; it is translated once for all of them. */
static void price(struct qemu_plugin_tb *tb, enum mode m, const struct operands *insn, size_t count,
		  unsigned bytes)
{
	uint64_t packed = 0;

	for (unsigned i = 0; i < machine.n_types; i++) {
		double cycles = pipeline_cycles(&machine.type[i].pipeline, insn, count, bytes);

		packed |= (uint64_t)lround(fmin(cycles * FRACTION, MAX_PRICE)) << 32 * i;
	}
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
		hot_pipeline[m], packed);
}

static void on_block(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t n[N_CLASSES] = { 0 };
	uint64_t here = qemu_plugin_tb_vaddr(tb);
	size_t count = qemu_plugin_tb_n_insns(tb);
	/* Linux lives in the upper half. */
	enum mode m = here >> 63 ? KERNEL : USER;
	bool modelled = started && m == USER;
	bool priced = machine.type[0].pipeline.on;
	struct operands around[MAX_BLOCK];
	unsigned size = 0;

	if (modelled)
		qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, on_branch_target, QEMU_PLUGIN_CB_NO_REGS,
			QEMU_PLUGIN_COND_NE, hot_branch, 0, (void *)here);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t bytes[16];
		size_t len = qemu_plugin_insn_data(insn, bytes, sizeof bytes);
		struct decoded d;

		decode(bytes, len, &d);
		if (priced)
			operands(bytes, len, &around[i % MAX_BLOCK]);
		size += len;
		for (unsigned k = 0; k < N_CLASSES; k++)
			n[k] += d.n[k];
		if (d.repeats)
			qemu_plugin_register_vcpu_mem_inline_per_vcpu(insn, QEMU_PLUGIN_MEM_RW,
				QEMU_PLUGIN_INLINE_ADD_U64, hot_repeats[m], d.repeats);
		if (d.pauses && started)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_pause,
				QEMU_PLUGIN_CB_NO_REGS, NULL);
		if (modelled && d.memory && machine.latency.on) {
			qemu_plugin_register_vcpu_mem_cb(insn, on_load, QEMU_PLUGIN_CB_NO_REGS,
				QEMU_PLUGIN_MEM_R, (void *)(uintptr_t)d.chases);
			qemu_plugin_register_vcpu_mem_cb(insn, on_store, QEMU_PLUGIN_CB_NO_REGS,
				QEMU_PLUGIN_MEM_W, (void *)(uintptr_t)d.chases);
		} else if (modelled && d.memory)
			qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_NO_REGS,
				QEMU_PLUGIN_MEM_RW, (void *)(uintptr_t)d.chases);
		if (modelled && d.conditional && i + 1 == count)
			qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn,
				QEMU_PLUGIN_INLINE_STORE_U64, hot_branch,
				qemu_plugin_insn_vaddr(insn) + len);
	}
	uint64_t a = n[INSN] | n[LOAD] << 16 | n[STORE] << 32 | n[BRANCH] << 48;
	uint64_t b = n[FP] | n[MUL] << 16 | n[DIV] << 32 | n[SYS] << 48;
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64, hot_a[m], a);
	if (priced)
		price(tb, m, around, count, size);
	if (b)
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
			hot_b[m], b);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64, hot_spent,
		count);
	qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, on_budget, QEMU_PLUGIN_CB_NO_REGS,
		QEMU_PLUGIN_COND_GE, hot_spent, BUDGET, NULL);
}

/* --- setting up --------------------------------------------------------------------- */

static void init_cpus(void)
{
	unsigned cores[MAX_TYPES] = { 0 };

	for (unsigned i = 0; i < machine.n_cpus; i++)
		cpus[i].asleep = true;
	for (unsigned k = 0; k < machine.n_clusters; k++) {
		const struct cluster *l = &machine.cluster[k];

		for (unsigned i = l->first; i < l->first + l->ids; i++) {
			struct cpu *c = &cpus[i];

			if (i % machine.ids_of_core >= l->threads)
				continue; /* an id that no CPU has */
			c->index = i;
			c->smt.flight = c->noise = 1;
			c->cluster = l;
			c->type = &machine.type[l->type];
			c->core = i % machine.ids_of_core ? cores[l->type] - 1 : cores[l->type]++;
			c->llc = &machine.llc[l->llc];
			c->mhz = c->type->turbo_mhz[0];
			if (i % machine.ids_of_core) {
				smt_pair(&cpus[i - 1], c);
				continue;
			}
			cache_init(&c->l1, c->type->l1_kib, c->type->l1_ways);
			if (c->l1.sets & (c->l1.sets - 1))
				fail("the L1 of %s needs a power of two of sets", c->type->name);
			if (l->l2_kib && (!l->shared_l2 || i == l->first)) {
				c->l2 = calloc(1, sizeof *c->l2);
				if (!c->l2)
					fail("no memory");
				cache_init(c->l2, l->l2_kib, l->l2_ways);
			} else if (l->l2_kib) {
				c->l2 = cpus[l->first].l2;
			}
		}
	}
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv)
{
	static const struct qemu_plugin_hybrid_ops ops = {
		.pick = pick, .leave = leave, .wake = wake, .now = now, .warp = warp,
		.cpuid = cpuid_fix, .rdmsr = on_rdmsr, .wrmsr = on_wrmsr,
		.rdpmc = pmu_rdpmc, .mmu = mmu, .sensor = sensor_read, .sleep = idle_ask,
	};

	if (argc < 1 || argc > 2 || strncmp(argv[0], "machine=", 8) ||
	    (argc == 2 && strncmp(argv[1], "seed=", 5)))
		fail("usage: -plugin libhybrid.so,machine=FILE (from testbed/machine)[,seed=N]");
	machine_read(argv[0] + 8);
	int vcpus = machine.ids_of_core > 1 ? info->system.max_vcpus : info->system.smp_vcpus;
	if (machine.n_cpus != (unsigned)vcpus)
		fail("%s has %u CPUs, not %d: see testbed/machine", machine.name, machine.n_cpus,
		     vcpus);
	if (machine.ids_of_core > 1)
		core_mask = ~1u;
	init_cpus();
	coherence_init();
	noise_seed(argc == 2 ? strtoull(argv[1] + 5, NULL, 0) : 1);

	board = qemu_plugin_scoreboard_new(sizeof(struct hot));
	for (unsigned m = 0; m < N_MODES; m++) {
		hot_a[m] = (qemu_plugin_u64){ board, offsetof(struct hot, a) + 8 * m };
		hot_b[m] = (qemu_plugin_u64){ board, offsetof(struct hot, b) + 8 * m };
		hot_pipeline[m] = (qemu_plugin_u64){ board, offsetof(struct hot, pipeline) + 8 * m };
		hot_repeats[m] = (qemu_plugin_u64){ board, offsetof(struct hot, repeats) + 8 * m };
	}
	hot_spent = qemu_plugin_scoreboard_u64_in_struct(board, struct hot, spent);
	hot_branch = qemu_plugin_scoreboard_u64_in_struct(board, struct hot, branch);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
	qemu_plugin_hybrid_register(&ops);
	return 0;
}
