// SPDX-License-Identifier: GPL-2.0-or-later
/* Which registers ../operands.c sees, and what ../pipeline.c makes of blocks, by numbers worked
 * out by hand; `cargo test` compiles and runs it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../model.h"

#define CODE(...) (const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ })
#define BIT(r) (1ull << (r))

enum { AX, CX, DX, BX, SP, BP, SI, DI, R8, X0 = 16, X1, FL = 32, ST };

static int failures;

struct code {
	const char *name;
	const uint8_t *bytes;
	unsigned len;
	struct operands is;
};

static const struct code cases[] = {
	{ "add %rax,%rbx", CODE(0x48, 0x01, 0xc3),
	  { .reads = BIT(AX) | BIT(BX), .writes = BIT(BX) | BIT(FL) } },
	{ "cmp %rax,%rbx", CODE(0x48, 0x39, 0xc3), { .reads = BIT(AX) | BIT(BX), .writes = BIT(FL) } },
	{ "adc %rax,%rbx", CODE(0x48, 0x11, 0xc3),
	  { .reads = BIT(AX) | BIT(BX) | BIT(FL), .writes = BIT(BX) | BIT(FL) } },
	{ "xor %eax,%eax", CODE(0x31, 0xc0), { .writes = BIT(AX) | BIT(FL), .unit = NO_UNIT } },
	{ "add (%rdi,%r8,8),%rax", CODE(0x4a, 0x03, 0x04, 0xc7),
	  { .address = BIT(DI) | BIT(R8), .reads = BIT(AX), .writes = BIT(AX) | BIT(FL), .load = true } },
	{ "add %rax,(%rdi)", CODE(0x48, 0x01, 0x07),
	  { .address = BIT(DI), .reads = BIT(AX), .writes = BIT(FL), .load = true, .store = true } },
	{ "mov (%rax),%rax", CODE(0x48, 0x8b, 0x00),
	  { .address = BIT(AX), .writes = BIT(AX), .load = true, .unit = NO_UNIT } },
	{ "mov %rax,8(%rsp)", CODE(0x48, 0x89, 0x44, 0x24, 0x08),
	  { .address = BIT(SP), .reads = BIT(AX), .store = true, .unit = NO_UNIT } },
	{ "mov 8(%rip),%rax", CODE(0x48, 0x8b, 0x05, 8, 0, 0, 0),
	  { .writes = BIT(AX), .load = true, .unit = NO_UNIT } },
	{ "mov %rax,%r8", CODE(0x49, 0x89, 0xc0), { .reads = BIT(AX), .writes = BIT(R8), .unit = NO_UNIT } },
	{ "mov $1,%ecx", CODE(0xb9, 1, 0, 0, 0), { .writes = BIT(CX) } },
	{ "lea 8(%rdi,%rsi),%rax", CODE(0x48, 0x8d, 0x44, 0x37, 0x08),
	  { .reads = BIT(DI) | BIT(SI), .writes = BIT(AX) } },
	{ "push %rbp", CODE(0x55), { .reads = BIT(BP), .store = true, .unit = NO_UNIT } },
	{ "pop %rbp", CODE(0x5d), { .writes = BIT(BP), .load = true, .unit = NO_UNIT } },
	{ "ret", CODE(0xc3), { .load = true, .unit = BRANCH_UNIT } },
	{ "call", CODE(0xe8, 0, 0, 0, 0), { .store = true, .unit = BRANCH_UNIT } },
	{ "jne", CODE(0x75, 0), { .reads = BIT(FL), .unit = BRANCH_UNIT } },
	{ "shl %cl,%rax", CODE(0x48, 0xd3, 0xe0),
	  { .reads = BIT(AX) | BIT(CX), .writes = BIT(AX) | BIT(FL) } },
	{ "cmove %rbx,%rax", CODE(0x48, 0x0f, 0x44, 0xc3),
	  { .reads = BIT(AX) | BIT(BX) | BIT(FL), .writes = BIT(AX) } },
	{ "imul %rbx,%rax", CODE(0x48, 0x0f, 0xaf, 0xc3),
	  { .reads = BIT(AX) | BIT(BX), .writes = BIT(AX) | BIT(FL), .unit = MUL_UNIT } },
	{ "div %rbx", CODE(0x48, 0xf7, 0xf3),
	  { .reads = BIT(AX) | BIT(DX) | BIT(BX), .writes = BIT(AX) | BIT(DX) | BIT(FL), .unit = DIV_UNIT } },
	{ "movzbl (%rsi),%eax", CODE(0x0f, 0xb6, 0x06),
	  { .address = BIT(SI), .writes = BIT(AX), .load = true } },
	{ "mulsd %xmm1,%xmm0", CODE(0xf2, 0x0f, 0x59, 0xc1),
	  { .reads = BIT(X0) | BIT(X1), .writes = BIT(X0), .unit = FP_UNIT } },
	{ "divsd %xmm1,%xmm0", CODE(0xf2, 0x0f, 0x5e, 0xc1),
	  { .reads = BIT(X0) | BIT(X1), .writes = BIT(X0), .unit = FDIV_UNIT } },
	{ "pxor %xmm0,%xmm0", CODE(0x66, 0x0f, 0xef, 0xc0), { .writes = BIT(X0), .unit = NO_UNIT } },
	{ "movsd (%rdi),%xmm0", CODE(0xf2, 0x0f, 0x10, 0x07),
	  { .address = BIT(DI), .writes = BIT(X0), .load = true, .unit = NO_UNIT } },
	{ "movaps %xmm0,(%rdi)", CODE(0x0f, 0x29, 0x07),
	  { .address = BIT(DI), .reads = BIT(X0), .store = true, .unit = NO_UNIT } },
	{ "cvtsi2sd %rax,%xmm0", CODE(0xf2, 0x48, 0x0f, 0x2a, 0xc0),
	  { .reads = BIT(AX), .writes = BIT(X0), .unit = FP_UNIT } },
	{ "ucomisd %xmm1,%xmm0", CODE(0x66, 0x0f, 0x2e, 0xc1),
	  { .reads = BIT(X0) | BIT(X1), .writes = BIT(FL), .unit = FP_UNIT } },
	{ "fadd %st(1),%st", CODE(0xd8, 0xc1), { .reads = BIT(ST), .writes = BIT(ST), .unit = FP_UNIT } },
	{ "nopl (%rax)", CODE(0x0f, 0x1f, 0x00), { .unit = NO_UNIT } },
};

static void decoded(void)
{
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct operands *is = &cases[i].is;
		struct operands o;

		operands(cases[i].bytes, cases[i].len, &o);
		if (o.address != is->address || o.reads != is->reads || o.writes != is->writes ||
		    o.load != is->load || o.store != is->store || o.unit != is->unit)
			printf("%s is taken for something else\n", cases[i].name), failures++;
		/* However it is cut off, nothing is read beyond its end. */
		for (unsigned len = 0; len < cases[i].len; len++) {
			uint8_t copy[16] = { 0 };

			memcpy(copy, cases[i].bytes, len);
			operands(copy, len, &o);
		}
	}
}

static const struct pipeline wide = {
	.on = true, .width = 4, .window = 64, .fetch = 16, .hide = 1,
	.ports = { 4, 1, 1, 0.25, 2, 0.25, 2 }, .load_ports = 2, .store_ports = 1,
	.latency = { 1, 1, 3, 12, 4, 10, 1 }, .load_latency = 5,
};

static void expect(const char *what, double got, double wanted)
{
	if (fabs(got - wanted) <= 1e-9)
		return;
	printf("%s: %f instead of %f\n", what, got, wanted);
	failures++;
}

/* A block of so many of one of the instructions above. */
static double of(const struct pipeline *p, const char *name, unsigned n)
{
	struct operands insn[64];
	unsigned i = 0;

	while (strcmp(cases[i].name, name))
		i++;
	for (unsigned k = 0; k < n; k++)
		operands(cases[i].bytes, cases[i].len, &insn[k]);
	return pipeline_cycles(p, insn, n, n * cases[i].len);
}

int main(void)
{
	struct pipeline share = wide, narrow = wide, in_order = wide;

	decoded();
	/* Bounds of throughput: what depends on nothing. */
	expect("width", of(&wide, "xor %eax,%eax", 8), 8 / 4.0);
	expect("bytes of code", of(&wide, "lea 8(%rdi,%rsi),%rax", 8), 8 * 5 / 16.0);
	expect("loads", of(&wide, "pop %rbp", 8), 8 / 2.0);
	expect("stores", of(&wide, "movaps %xmm0,(%rdi)", 8), 8 / 1.0);
	expect("a taken branch", of(&wide, "jne", 1), 1);
	/* Chains: each waits for the one before. */
	expect("additions", of(&wide, "add %rax,%rbx", 8), 8);
	expect("multiplications", of(&wide, "imul %rbx,%rax", 2), 6);
	expect("divisions", of(&wide, "div %rbx", 1), 12);
	expect("pointers", of(&wide, "mov (%rax),%rax", 4), 20);
	/* A sum of what is loaded: loads do not wait for each other. */
	expect("sums", of(&wide, "add (%rdi,%r8,8),%rax", 8), 8);
	/* Of the lesser bound, the share that is not hidden comes on top. */
	share.hide = 0.75;
	expect("not all hidden", of(&share, "add %rax,%rbx", 8), 8 + 0.25 * 2);
	/* A window of 8 has two rounds of 4 loads in flight, one of 4 less than one. */
	narrow.window = 8;
	expect("two rounds in a window", of(&narrow, "mov 8(%rip),%rax", 4), 5 / 2.0);
	narrow.window = 2;
	expect("no whole round in a window", of(&narrow, "mov 8(%rip),%rax", 4), 5);
	/* In order, a result's user waits, and so does all behind it. */
	in_order.window = 0;
	expect("in order", of(&in_order, "add (%rdi,%r8,8),%rax", 4), 4 * 6);
	expect("in order, alone", of(&in_order, "xor %eax,%eax", 8), 8 / 4.0);

	/* 100 misses of 200 cycles beside 1000 cycles of 4000 instructions: a window of 64 holds
	 * 16 cycles of them for each miss. */
	expect("by the window", pipeline_hides(&wide, 20000, 50, 1000, 4000), 50 * 16);
	expect("by what there is to do", pipeline_hides(&wide, 20000, 100, 1000, 4000), 1000);
	expect("all of the stall", pipeline_hides(&wide, 10, 100, 1000, 4000), 10);
	expect("a share", pipeline_hides(&share, 20000, 100, 1000, 4000), 750);
	expect("in order: nothing", pipeline_hides(&in_order, 20000, 100, 1000, 4000), 0);
	expect("without instructions", pipeline_hides(&wide, 20000, 100, 0, 0), 0);
	return failures != 0;
}
