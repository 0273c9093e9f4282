// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Intel's architectural performance monitoring, version 5, as far as Linux's own
 * driver uses it: general and fixed counters, global control and status, and the
 * overflow interrupt; and AMD's, version 2, which is the same at other registers, without
 * fixed counters. What is counted comes from the model's totals; the codes
 * are those of the real cores, from the makers' public event lists.
 */
#include <qemu-plugin.h>
#include <string.h>

#include "model.h"

#define WIDTH 48
#define MASK ((1ull << WIDTH) - 1)
#define MAX_GENERAL 8
#define MAX_FIXED 4
#define NOISE_NS 10e6 /* that a counter's error lasts */

enum {
	PERFCTR0 = 0xc1, MPERF = 0xe7, APERF = 0xe8, EVNTSEL0 = 0x186,
	FIXED_CTR0 = 0x309, FIXED_CTRL = 0x38d, GLOBAL_STATUS = 0x38e,
	GLOBAL_CTRL = 0x38f, GLOBAL_RESET = 0x390, GLOBAL_SET = 0x391,
	/* AMD's: a counter after each selector */
	AMD_EVNTSEL0 = 0xc0010200, AMD_GLOBAL_STATUS = 0xc0000300,
};
#define SEL_USER (1u << 16)
#define SEL_KERNEL (1u << 17)
#define SEL_INTERRUPT (1u << 20)
#define SEL_ENABLE (1u << 22)

/* What can be counted: sums and differences of the model's totals. */
enum meaning {
	NOTHING, INSTRUCTIONS, CYCLES, REF_CYCLES, SLOTS, BRANCHES, BRANCH_MISSES,
	LOADS, STORES, ACCESSES, L1_HITS, L1_MISSES, L2_HITS, L2_MISSES, LLC_REFERENCES,
	LLC_HITS, LLC_MISSES, FP_INSTRUCTIONS, DIVISIONS, STALLED_CYCLES,
};

struct code {
	uint32_t code; /* event, and umask << 8; the upper bits of AMD's events << 16 */
	enum meaning meaning;
};

static const struct code golden_cove[] = {
	{ 0x00c0, INSTRUCTIONS }, { 0x003c, CYCLES }, { 0x013c, REF_CYCLES },
	{ 0x4f2e, LLC_REFERENCES }, { 0x412e, LLC_MISSES },
	{ 0x00c4, BRANCHES }, { 0x00c5, BRANCH_MISSES },
	{ 0x81d0, LOADS }, { 0x82d0, STORES }, { 0x83d0, ACCESSES },
	{ 0x01d1, L1_HITS }, { 0x08d1, L1_MISSES }, { 0x02d1, L2_HITS }, { 0x10d1, L2_MISSES },
	{ 0x04d1, LLC_HITS }, { 0x20d1, LLC_MISSES },
	{ 0x0151, L1_MISSES },       /* L1D.REPLACEMENT */
	{ 0xff24, L1_MISSES },       /* L2_RQSTS.REFERENCES */
	{ 0x3f24, L2_MISSES },       /* L2_RQSTS.MISS */
	{ 0x1f25, L2_MISSES },       /* L2_LINES_IN.ALL */
	{ 0x01c7, FP_INSTRUCTIONS }, /* FP_ARITH_INST_RETIRED.SCALAR_DOUBLE */
	{ 0x03c7, FP_INSTRUCTIONS }, { 0xffc7, FP_INSTRUCTIONS }, { 0xfcc7, NOTHING },
	{ 0x09b0, DIVISIONS },       /* ARITH.DIV_ACTIVE: the model counts them whole */
	{ 0x06a3, STALLED_CYCLES },  /* CYCLE_ACTIVITY.STALLS_L3_MISS */
	{ 0x05a3, STALLED_CYCLES },  /* CYCLE_ACTIVITY.STALLS_L2_MISS */
	{ 0x01a4, SLOTS },           /* TOPDOWN.SLOTS_P */
	{ 0 },
};
static const struct code gracemont[] = {
	{ 0x00c0, INSTRUCTIONS }, { 0x003c, CYCLES }, { 0x013c, REF_CYCLES },
	{ 0x4f2e, LLC_REFERENCES }, { 0x412e, LLC_MISSES },
	{ 0x00c4, BRANCHES }, { 0x00c5, BRANCH_MISSES },
	{ 0x81d0, LOADS }, { 0x82d0, STORES },
	{ 0x01d1, L1_HITS }, { 0x02d1, L2_HITS }, { 0x04d1, LLC_HITS }, { 0x80d1, LLC_MISSES },
	{ 0x08d1, L1_MISSES },
	{ 0x0024, L1_MISSES },       /* L2_REQUEST.ALL */
	{ 0x0124, L2_MISSES },       /* L2_REQUEST.MISS */
	{ 0x0634, STALLED_CYCLES },  /* MEM_BOUND_STALLS: beyond the L2 */
	{ 0x0734, STALLED_CYCLES },
	{ 0x03cd, DIVISIONS },       /* ARITH.DIV_ACTIVE: the model counts them whole */
	{ 0 },
};
/* Of Lunar Lake's P cores, whose L1 the model has as one. */
static const struct code lion_cove[] = {
	{ 0x00c0, INSTRUCTIONS }, { 0x003c, CYCLES }, { 0x013c, REF_CYCLES },
	{ 0x4f2e, LLC_REFERENCES }, { 0x412e, LLC_MISSES },
	{ 0x00c4, BRANCHES }, { 0x00c5, BRANCH_MISSES },
	{ 0x81d0, LOADS }, { 0x82d0, STORES }, { 0x87d0, ACCESSES },
	{ 0x01d1, L1_HITS }, { 0x08d1, L1_MISSES }, { 0x02d1, L2_HITS }, { 0x10d1, L2_MISSES },
	{ 0x04d1, LLC_HITS }, { 0x20d1, LLC_MISSES },
	{ 0x0151, L1_MISSES }, { 0x0551, L1_MISSES }, /* L1D.REPLACEMENT, L1D.L0_REPLACEMENT too */
	{ 0xff24, L1_MISSES },       /* L2_RQSTS.REFERENCES */
	{ 0x3f24, L2_MISSES },       /* L2_RQSTS.MISS */
	{ 0x1f25, L2_MISSES },       /* L2_LINES_IN.ALL */
	{ 0x3fc7, FP_INSTRUCTIONS }, /* FP_ARITH_OPS_RETIRED: scalar and vector */
	{ 0x09b0, DIVISIONS },       /* ARITH.DIV_ACTIVE: the model counts them whole */
	{ 0x21a6, STALLED_CYCLES },  /* EXE_ACTIVITY.BOUND_ON_LOADS */
	{ 0x01a4, SLOTS },           /* TOPDOWN.SLOTS_P */
	{ 0 },
};
/* Of Meteor Lake's E and LP-E cores, and of Lunar Lake's: Skymont has a few more. */
static const struct code crestmont[] = {
	{ 0x00c0, INSTRUCTIONS }, { 0x003c, CYCLES }, { 0x013c, REF_CYCLES },
	{ 0x4f2e, LLC_REFERENCES }, { 0x412e, LLC_MISSES },
	{ 0x00c4, BRANCHES }, { 0x00c5, BRANCH_MISSES },
	{ 0x81d0, LOADS }, { 0x82d0, STORES }, { 0x83d0, ACCESSES },
	{ 0x01d1, L1_HITS }, { 0x02d1, L2_HITS }, { 0x1cd1, LLC_HITS }, { 0x80d1, L2_MISSES },
	{ 0x40d1, L1_MISSES },
	{ 0x0724, L1_MISSES },       /* L2_REQUEST.ALL */
	{ 0x0124, L2_MISSES },       /* L2_REQUEST.MISS */
	{ 0x7e34, STALLED_CYCLES },  /* MEM_BOUND_STALLS_LOAD.L2_MISS */
	{ 0x2fc7, FP_INSTRUCTIONS }, { 0x3fc7, FP_INSTRUCTIONS }, /* FP_INST_RETIRED */
	{ 0x03cd, DIVISIONS },       /* ARITH.DIV_ACTIVE: the model counts them whole */
	{ 0 },
};
/* AMD's Zen 5 and Zen 5c, which dispatch loads and stores: the model counts retired ones. */
static const struct code zen5[] = {
	{ 0x00c0, INSTRUCTIONS }, { 0x0076, CYCLES }, { 0x10120, REF_CYCLES },
	{ 0x00c2, BRANCHES }, { 0x00c3, BRANCH_MISSES },
	{ 0x0129, LOADS }, { 0x0529, LOADS }, { 0x0229, STORES }, { 0x0629, STORES },
	{ 0x0729, ACCESSES }, { 0x0040, ACCESSES },
	{ 0xff44, L1_MISSES },       /* LS_ANY_FILLS_FROM_SYS: from anywhere, */
	{ 0x0144, L2_HITS }, { 0x0244, LLC_HITS }, { 0x0844, LLC_MISSES },
	{ 0x5e44, L2_MISSES },       /* beyond the L2, */
	{ 0x5c44, LLC_MISSES },      /* and beyond the L3 */
	{ 0xff60, L1_MISSES },       /* L2_REQUEST_G1 */
	{ 0xc860, L1_MISSES },
	{ 0xff64, L1_MISSES },       /* L2_CACHE_REQ_STAT */
	{ 0xf664, L2_HITS }, { 0xf064, L2_HITS }, { 0x0964, L2_MISSES }, { 0x0864, L2_MISSES },
	{ 0xff0a, FP_INSTRUCTIONS }, /* FP_OPS_RETIRED_BY_TYPE */
	{ 0xa2d6, STALLED_CYCLES },  /* EX_NO_RETIRE.LOAD_NOT_COMPLETE */
	{ 0x00d3, DIVISIONS },       /* EX_DIV_BUSY: the model counts them whole */
	{ 0 },
};
static const struct {
	const char *name;
	const struct code *code;
} table[] = {
	{ "golden-cove", golden_cove }, { "redwood-cove", golden_cove },
	{ "lion-cove", lion_cove },
	{ "gracemont", gracemont },
	{ "crestmont", crestmont }, { "skymont", crestmont },
	{ "zen5", zen5 },
};

struct counter {
	uint64_t value;
	uint64_t seen; /* of what it counts, when `value` was right */
	enum meaning meaning;
	bool user, kernel, interrupt, on;
	/* With noise: the factor on what is counted, until when, and what is not yet whole. */
	double noise, noise_until_ns, part;
};

static struct pmu {
	struct counter counter[MAX_GENERAL + MAX_FIXED];
	uint64_t select[MAX_GENERAL], fixed_ctrl, global_ctrl, status;
	bool any; /* a counter is on */
} pmus[MAX_CPUS];

unsigned pmu_table(const char *name)
{
	for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
		if (!strcmp(table[i].name, name))
			return i;
	fail("no table of events named %s", name);
}

static uint64_t of(const struct totals *t, enum meaning meaning)
{
	switch (meaning) {
	case NOTHING: return 0;
	case INSTRUCTIONS: return t->n[INSN];
	case CYCLES: return t->cycles;
	case REF_CYCLES: return t->ref;
	case SLOTS: return t->cycles * 6;
	case BRANCHES: return t->n[BRANCH];
	case BRANCH_MISSES: return t->n[BRANCH_MISS];
	case LOADS: return t->n[LOAD];
	case STORES: return t->n[STORE];
	case ACCESSES: return t->n[LOAD] + t->n[STORE];
	/* The model misses by line, loads and stores alike. */
	case L1_HITS: return t->n[LOAD] > t->n[L1_MISS] ? t->n[LOAD] - t->n[L1_MISS] : 0;
	case L1_MISSES: return t->n[L1_MISS];
	case L2_HITS: return t->n[L1_MISS] - t->n[L2_MISS];
	case L2_MISSES:
	case LLC_REFERENCES: return t->n[L2_MISS];
	case LLC_HITS: return t->n[L2_MISS] - t->n[LLC_MISS];
	case LLC_MISSES: return t->n[LLC_MISS];
	case FP_INSTRUCTIONS: return t->n[FP];
	case DIVISIONS: return t->n[DIV];
	case STALLED_CYCLES: return t->stalled;
	}
	return 0;
}

static uint64_t seen(const struct cpu *c, const struct counter *k)
{
	return (k->user ? of(&c->total[USER], k->meaning) : 0) +
	       (k->kernel ? of(&c->total[KERNEL], k->meaning) : 0);
}

/*
 * What a counter makes of `n` events. Each has an error of its own, the same for a
 * while: those of one sample would else cancel out.
 */
static uint64_t noisy(const struct cpu *c, struct counter *k, int64_t n)
{
	if (c->ns >= k->noise_until_ns) {
		bool miss = k->meaning == BRANCH_MISSES || (k->meaning >= L1_MISSES &&
							    k->meaning <= LLC_MISSES);

		k->noise = noise_draw(miss ? machine.noise.misses : machine.noise.counts);
		k->noise_until_ns = c->ns + NOISE_NS;
	}
	k->part += n * k->noise;
	int64_t whole = k->part;
	k->part -= whole;
	return whole;
}

static unsigned status_bit(unsigned i)
{
	return i < MAX_GENERAL ? i : 32 + i - MAX_GENERAL;
}

uint64_t pmu_update(struct cpu *c)
{
	struct pmu *p = &pmus[c->index];
	uint64_t left = UINT64_MAX;
	bool interrupt = false;

	if (!p->any)
		return left;
	for (unsigned i = 0; i < MAX_GENERAL + MAX_FIXED; i++) {
		struct counter *k = &p->counter[i];

		if (!k->on)
			continue;
		uint64_t now = seen(c, k);
		k->value += machine.noise.on ? noisy(c, k, now - k->seen) : now - k->seen;
		k->seen = now;
		if (k->value > MASK) {
			k->value &= MASK;
			p->status |= 1ull << status_bit(i);
			interrupt |= k->interrupt;
		}
		if (k->interrupt && MASK - k->value < left)
			left = MASK - k->value;
	}
	if (interrupt)
		qemu_plugin_hybrid_pmi(c->index);
	return left;
}

/* Settles which counters are on, from the control registers as they now are. */
static void configure(struct cpu *c)
{
	struct pmu *p = &pmus[c->index];

	p->any = false;
	for (unsigned i = 0; i < MAX_GENERAL + MAX_FIXED; i++) {
		struct counter *k = &p->counter[i];
		bool enabled;

		k->meaning = NOTHING;
		if (i < MAX_GENERAL) {
			uint64_t sel = p->select[i];
			uint32_t code = (sel & 0xffff) | (machine.amd ? sel >> 32 & 0xf : 0) << 16;

			enabled = sel & SEL_ENABLE;
			k->user = sel & SEL_USER;
			k->kernel = sel & SEL_KERNEL;
			k->interrupt = sel & SEL_INTERRUPT;
			for (const struct code *e = table[c->type->pmu].code; e->code; e++)
				if (e->code == code)
					k->meaning = e->meaning;
		} else {
			static const enum meaning fixed[MAX_FIXED] = {
				INSTRUCTIONS, CYCLES, REF_CYCLES, SLOTS,
			};
			unsigned ctrl = p->fixed_ctrl >> 4 * (i - MAX_GENERAL) & 0xf;

			enabled = ctrl & 3;
			k->kernel = ctrl & 1;
			k->user = ctrl & 2;
			k->interrupt = ctrl & 8;
			k->meaning = fixed[i - MAX_GENERAL];
		}
		k->on = enabled && p->global_ctrl >> status_bit(i) & 1;
		k->seen = seen(c, k);
		p->any |= k->on;
	}
}

/* AMD's registers by Intel's names: what is not the PMU's stays what it is. */
static uint32_t of_amd(const struct cpu *c, uint32_t msr)
{
	static const uint32_t global[] = { GLOBAL_STATUS, GLOBAL_CTRL, GLOBAL_RESET, GLOBAL_SET };

	if (msr >= AMD_EVNTSEL0 && msr < AMD_EVNTSEL0 + 2 * c->type->counters)
		return (msr & 1 ? PERFCTR0 : EVNTSEL0) + (msr - AMD_EVNTSEL0) / 2;
	if (msr >= AMD_GLOBAL_STATUS && msr < AMD_GLOBAL_STATUS + 4)
		return global[msr - AMD_GLOBAL_STATUS];
	return msr;
}

/* The counter that an MSR holds, or -1. */
static int counter_of(const struct cpu *c, uint32_t msr)
{
	if (msr >= PERFCTR0 && msr < PERFCTR0 + c->type->counters)
		return msr - PERFCTR0;
	if (msr >= FIXED_CTR0 && msr < FIXED_CTR0 + c->type->fixed_counters)
		return MAX_GENERAL + msr - FIXED_CTR0;
	return -1;
}

bool pmu_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val)
{
	struct cpu *c = &cpus[cpu];
	struct pmu *p = &pmus[cpu];

	if (machine.amd)
		msr = of_amd(c, msr);
	int i = counter_of(c, msr);

	cpu_flush(c);
	if (i >= 0)
		*val = p->counter[i].value;
	else if (msr >= EVNTSEL0 && msr < EVNTSEL0 + c->type->counters)
		*val = p->select[msr - EVNTSEL0];
	else if (msr == FIXED_CTRL)
		*val = p->fixed_ctrl;
	else if (msr == GLOBAL_CTRL)
		*val = p->global_ctrl;
	else if (msr == GLOBAL_STATUS)
		*val = p->status;
	else if (msr == GLOBAL_RESET || msr == GLOBAL_SET)
		*val = 0;
	else if (msr == APERF)
		*val = c->total[USER].cycles + c->total[KERNEL].cycles;
	else if (msr == MPERF)
		*val = c->total[USER].ref + c->total[KERNEL].ref;
	else
		return false;
	return true;
}

bool pmu_wrmsr(unsigned cpu, uint32_t msr, uint64_t val)
{
	struct cpu *c = &cpus[cpu];
	struct pmu *p = &pmus[cpu];

	if (machine.amd)
		msr = of_amd(c, msr);
	int i = counter_of(c, msr);

	if (i < 0 && !(msr >= EVNTSEL0 && msr < EVNTSEL0 + c->type->counters) &&
	    (msr < FIXED_CTRL || msr > GLOBAL_SET))
		return false;
	cpu_flush(c);
	if (i >= MAX_GENERAL || (i >= 0 && machine.amd))
		p->counter[i].value = val & MASK;
	else if (i >= 0) /* without full-width writes: 32 bits, sign-extended */
		p->counter[i].value = (int32_t)val & MASK;
	else if (msr == FIXED_CTRL)
		p->fixed_ctrl = val;
	else if (msr == GLOBAL_CTRL)
		p->global_ctrl = val;
	else if (msr == GLOBAL_RESET)
		p->status &= ~val;
	else if (msr == GLOBAL_SET)
		p->status |= val;
	else if (msr != GLOBAL_STATUS)
		p->select[msr - EVNTSEL0] = val;
	configure(c);
	return true;
}

bool pmu_rdpmc(unsigned cpu, uint32_t index, uint64_t *val)
{
	struct cpu *c = &cpus[cpu];
	unsigned i = index & 0xff;

	if (index & 1u << 30) {
		if (i >= c->type->fixed_counters)
			return false;
		i += MAX_GENERAL;
	} else if (i >= c->type->counters) {
		return false;
	}
	cpu_flush(c);
	*val = pmus[cpu].counter[i].value;
	return true;
}
