// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The whole plugin without QEMU: `cargo test` compiles it with this, which stands in for QEMU and a
 * guest, and runs it more than once. Made-up programs compute, load, store, branch, spin, sleep until a
 * time that they are told, wake each other and read their counters. What they come to is printed to the
 * last bit, and with one seed is the same in each process, wherever its memory lies.
 */
#include <qemu-plugin.h>
#include <stdio.h>
#include <stdlib.h>

#include "../model.h"

#define BLOCKS 24
#define INSNS 12
#define OPS 64
#define KERNEL_HALF (1ull << 63)

struct op { /* what the plugin wants done where a block or an instruction is run */
	bool adds, stores;
	int cond; /* or -1 */
	uint64_t *of[MAX_CPUS], value;
	qemu_plugin_vcpu_udata_cb_t cb;
	qemu_plugin_vcpu_mem_cb_t access;
	unsigned rw;
	void *data;
};
struct ops {
	struct op op[OPS];
	unsigned n;
};
struct qemu_plugin_insn {
	const char *bytes;
	unsigned len, access; /* QEMU_PLUGIN_MEM_R, _W, or both, or 0 */
	uint64_t address;
	struct ops ops;
};
struct qemu_plugin_tb {
	uint64_t address;
	struct qemu_plugin_insn insn[INSNS];
	unsigned n;
	bool translated;
	struct ops ops;
};
struct qemu_plugin_hwaddr {
	uint64_t address;
};
struct qemu_plugin_scoreboard {
	char *entries;
	size_t size;
};

/* Instructions, and what they access. */
static const struct {
	const char *bytes;
	unsigned len, access;
} code[] = {
	{ "\x48\x01\xc8", 3, 0 },                     /* add rax, rcx */
	{ "\x48\x8b\x07", 3, QEMU_PLUGIN_MEM_R },     /* mov rax, [rdi] */
	{ "\x48\x89\x06", 3, QEMU_PLUGIN_MEM_W },     /* mov [rsi], rax */
	{ "\x48\x8b\x00", 3, QEMU_PLUGIN_MEM_R },     /* mov rax, [rax] */
	{ "\xf2\x0f\x58\xc1", 4, 0 },                 /* addsd xmm0, xmm1 */
	{ "\x48\x0f\xaf\xc1", 4, 0 },                 /* imul rax, rcx */
	{ "\xf0\x48\x0f\xc1\x07", 5, QEMU_PLUGIN_MEM_RW }, /* lock xadd [rdi], rax */
};
static const char jump[] = "\x75\xf0", spin[] = "\xf3\x90"; /* jne, pause */

static struct qemu_plugin_tb blocks[BLOCKS];
static qemu_plugin_vcpu_tb_trans_cb_t translate;
static const struct qemu_plugin_hybrid_ops *model;
static bool ended;
static uint64_t told; /* to the guest, by interrupts and writes into its memory */

struct program { /* one on each CPU */
	uint64_t random, at, counted;
	int64_t until_ns; /* it sleeps; 0: it does not */
};
static struct program programs[MAX_CPUS];

static unsigned draw(struct program *p, unsigned n)
{
	p->random = p->random * 6364136223846793005 + 1442695040888963407;
	return (p->random >> 33) % n;
}

/* --- QEMU's part ------------------------------------------------------------------ */

static struct op *add(struct ops *ops)
{
	if (ops->n == OPS)
		fail("too many operations");
	struct op *op = &ops->op[ops->n++];
	*op = (struct op){ .cond = -1 };
	return op;
}

static void entries(struct op *op, qemu_plugin_u64 entry)
{
	for (unsigned i = 0; i < MAX_CPUS; i++)
		op->of[i] = (uint64_t *)(entry.board->entries + i * entry.board->size + entry.offset);
}

static void inline_op(struct op *op, enum qemu_plugin_op what, qemu_plugin_u64 entry, uint64_t value)
{
	entries(op, entry);
	op->adds = what == QEMU_PLUGIN_INLINE_ADD_U64;
	op->stores = !op->adds;
	op->value = value;
}

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_tb_trans_cb_t cb)
{
	translate = cb;
}

void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, enum qemu_plugin_op op,
						       qemu_plugin_u64 entry, uint64_t value)
{
	inline_op(add(&tb->ops), op, entry, value);
}

void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb, qemu_plugin_vcpu_udata_cb_t cb,
					       enum qemu_plugin_cb_flags flags, enum qemu_plugin_cond cond,
					       qemu_plugin_u64 entry, uint64_t value, void *data)
{
	struct op *op = add(&tb->ops);

	entries(op, entry);
	op->cond = cond;
	op->cb = cb;
	op->value = value;
	op->data = data;
}

void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_udata_cb_t cb,
					    enum qemu_plugin_cb_flags flags, void *data)
{
	struct op *op = add(&insn->ops);

	op->cb = cb;
	op->data = data;
}

void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *insn,
							 enum qemu_plugin_op op, qemu_plugin_u64 entry,
							 uint64_t value)
{
	inline_op(add(&insn->ops), op, entry, value);
}

void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_mem_cb_t cb,
				      enum qemu_plugin_cb_flags flags, enum qemu_plugin_mem_rw rw, void *data)
{
	struct op *op = add(&insn->ops);

	op->access = cb;
	op->rw = rw;
	op->data = data;
}

void qemu_plugin_register_vcpu_mem_inline_per_vcpu(struct qemu_plugin_insn *insn, enum qemu_plugin_mem_rw rw,
						   enum qemu_plugin_op op, qemu_plugin_u64 entry, uint64_t value)
{
	fail("no program here repeats string instructions");
}

struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size)
{
	static struct qemu_plugin_scoreboard board;

	board = (struct qemu_plugin_scoreboard){ calloc(MAX_CPUS, size), size };
	if (!board.entries)
		fail("no memory");
	return &board;
}

void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *board, unsigned cpu)
{
	return board->entries + cpu * board->size;
}

uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb) { return tb->address; }
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb) { return tb->n; }
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn) { return insn->address; }
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *hw) { return false; }
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *hw) { return hw->address; }
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info) { return info; }
void qemu_plugin_hybrid_register(const struct qemu_plugin_hybrid_ops *ops) { model = ops; }
void qemu_plugin_hybrid_end_slice(void) { ended = true; }
void qemu_plugin_hybrid_pmi(unsigned cpu) { told = told * 31 + cpu + 1; }
void qemu_plugin_hybrid_thermal(unsigned cpu) { told = told * 31 + cpu + 100; }
void qemu_plugin_hybrid_gpe(void) { told = told * 31 + 200; }

struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i)
{
	return (struct qemu_plugin_insn *)&tb->insn[i];
}

size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t size)
{
	for (unsigned i = 0; i < insn->len && i < size; i++)
		((char *)to)[i] = insn->bytes[i];
	return insn->len;
}

struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address)
{
	static struct qemu_plugin_hwaddr hw;

	hw.address = address & 0xffffffffff;
	return &hw;
}

void qemu_plugin_hybrid_retranslate(void)
{
	for (unsigned i = 0; i < BLOCKS; i++)
		blocks[i].translated = false;
}

void qemu_plugin_hybrid_write(uint64_t address, const void *from, size_t size)
{
	for (size_t i = 0; i < size; i++)
		told = told * 31 + ((const uint8_t *)from)[i];
}

/* --- the guest's ------------------------------------------------------------------ */

static void make_blocks(void)
{
	struct program maker = { 7 };

	for (unsigned i = 0; i < BLOCKS; i++) {
		struct qemu_plugin_tb *tb = &blocks[i];
		uint64_t at = tb->address = (i % 4 ? 0 : KERNEL_HALF) + 0x400000 + i * 0x100;

		tb->n = 3 + draw(&maker, INSNS - 2);
		for (unsigned k = 0; k < tb->n; k++) {
			struct qemu_plugin_insn *insn = &tb->insn[k];
			unsigned which = draw(&maker, sizeof code / sizeof *code);

			insn->bytes = k + 1 == tb->n ? jump : code[which].bytes;
			insn->len = k + 1 == tb->n ? 2 : code[which].len;
			insn->access = k + 1 == tb->n ? 0 : code[which].access;
			if (!k && i % 7 == 1)
				insn->bytes = spin, insn->len = 2, insn->access = 0;
			insn->address = at;
			at += insn->len;
		}
	}
}

/* A third is shared by all; what is a CPU's own is 4 MiB. */
static uint64_t where(struct program *p, unsigned cpu)
{
	p->at += 64;
	switch (draw(p, 3)) {
	case 0:
		return 0x10000000 + draw(p, 64) * LINE;
	case 1:
		return 0x20000000 + ((uint64_t)cpu << 24) + (p->at & 0x3fffff);
	default:
		return 0x20000000 + ((uint64_t)cpu << 24) + draw(p, 1 << 22);
	}
}

static void carry_out(const struct ops *ops, unsigned cpu, unsigned access, uint64_t address)
{
	for (unsigned i = 0; i < ops->n; i++) {
		const struct op *op = &ops->op[i];

		if (op->adds)
			*op->of[cpu] += op->value;
		else if (op->stores)
			*op->of[cpu] = op->value;
		else if (op->access && access & op->rw)
			op->access(cpu, access & QEMU_PLUGIN_MEM_W ? 1 : 0, address, op->data);
		else if (op->cb && op->cond < 0)
			op->cb(cpu, op->data);
		else if (op->cond == QEMU_PLUGIN_COND_NE ? *op->of[cpu] != op->value :
			 op->cond == QEMU_PLUGIN_COND_GE && *op->of[cpu] >= op->value)
			op->cb(cpu, op->data);
	}
}

static void run_block(struct qemu_plugin_tb *tb, unsigned cpu)
{
	if (!tb->translated) {
		tb->translated = true;
		tb->ops.n = 0;
		for (unsigned i = 0; i < tb->n; i++)
			tb->insn[i].ops.n = 0;
		translate(1, tb);
	}
	carry_out(&tb->ops, cpu, 0, 0);
	for (unsigned i = 0; i < tb->n; i++)
		carry_out(&tb->insn[i].ops, cpu, tb->insn[i].access,
			  tb->insn[i].access ? where(&programs[cpu], cpu) : 0);
}

static void start(unsigned cpu)
{
	uint32_t regs[4];

	model->wrmsr(cpu, 0x186, 0x4300c0); /* instructions */
	model->wrmsr(cpu, 0x187, 0x43412e); /* misses of the last-level cache */
	model->wrmsr(cpu, 0x38f, 3);
	if (!started)
		model->cpuid(cpu, CONTROL_START, 0, regs);
}

/* Until a CPU's slice ends, or its program sleeps. */
static void run_slice(unsigned cpu, bool *runnable)
{
	struct program *p = &programs[cpu];

	for (ended = false; !ended;) {
		run_block(&blocks[draw(p, BLOCKS)], cpu);
		if (draw(p, 2000))
			continue;
		unsigned other = draw(p, machine.n_cpus);
		uint64_t value;

		for (unsigned i = 0; i < 2; i++)
			p->counted = p->counted * 31 + (model->rdpmc(cpu, i, &value) ? value : 1);
		if (cpus[other].type && programs[other].until_ns) {
			programs[other].until_ns = 0;
			runnable[other] = true;
			model->wake(other, cpu);
		}
		if (cpus[cpu].type->n_states)
			model->sleep(cpu, IDLE_PORT + draw(p, cpus[cpu].type->n_states + 1));
		p->until_ns = model->now(cpu) + 1000 + draw(p, 1 << draw(p, 22));
		runnable[cpu] = false;
		return;
	}
}

static void run(int64_t ns)
{
	static bool runnable[MAX_CPUS];

	for (unsigned i = 0; i < machine.n_cpus; i++) {
		runnable[i] = cpus[i].type;
		programs[i].random = i + 1;
	}
	while (model->now(-1) < ns) {
		int64_t deadline = INT64_MAX;
		bool any = false;

		for (unsigned i = 0; i < machine.n_cpus; i++) {
			int64_t until = programs[i].until_ns;

			if (until && until <= model->now(-1)) {
				programs[i].until_ns = until = 0;
				model->wake(i, -1);
				runnable[i] = true;
			}
			any = any || runnable[i];
			if (until && until < deadline)
				deadline = until;
		}
		if (!any) {
			model->warp(deadline);
			continue;
		}
		unsigned cpu = model->pick(runnable, machine.n_cpus, deadline);
		if (!started || !programs[cpu].at)
			start(cpu);
		run_slice(cpu, runnable);
		model->leave(cpu);
	}
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: plugin machine=FILE seed=N CPUS MILLISECONDS\n");
		return 2;
	}
	int vcpus = atoi(argv[3]);
	qemu_info_t info = { { vcpus, vcpus } };

	make_blocks();
	qemu_plugin_install(1, &info, 2, argv + 1);
	run(atoi(argv[4]) * (int64_t)1000000);
	for (unsigned i = 0; i < machine.n_cpus; i++) {
		struct cpu *c = &cpus[i];

		if (!c->type)
			continue;
		cpu_flush(c);
		printf("%u %a %a %lx %lx %lu", i, c->ns, c->mhz, programs[i].random, programs[i].counted,
		       energy_total(c, TOTAL_CPU_UJ, i));
		for (unsigned m = 0; m < N_MODES; m++) {
			for (unsigned k = 0; k < N_EVENTS; k++)
				printf(" %lu", c->total[m].n[k]);
			printf(" %a %a", c->total[m].cycles, c->total[m].stalled);
		}
		printf("\n");
	}
	printf("%lx %lu\n", told, energy_total(&cpus[0], TOTAL_PACKAGE_UJ, 0));
	return 0;
}
