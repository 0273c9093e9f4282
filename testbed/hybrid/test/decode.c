// SPDX-License-Identifier: GPL-2.0-or-later
/* Checks ../decode.c on instructions of every kind; `cargo test` compiles and runs it. */
#include <stdio.h>
#include <string.h>

#include "../model.h"

#define CODE(...) (const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ })

static const struct {
	const char *name;
	const uint8_t *bytes;
	unsigned len;
	struct decoded is;
} cases[] = {
	{ "add %rax,%rbx", CODE(0x48, 0x01, 0xc3), { .n = { [INSN] = 1 } } },
	{ "mov (%rdi),%rax", CODE(0x48, 0x8b, 0x07),
	  { .n = { [INSN] = 1, [LOAD] = 1 }, .memory = true } },
	{ "mov (%rax),%rax", CODE(0x48, 0x8b, 0x00),
	  { .n = { [INSN] = 1, [LOAD] = 1 }, .memory = true, .chases = true } },
	{ "mov (%rdi,%r8,8),%r8", CODE(0x4e, 0x8b, 0x04, 0xc7),
	  { .n = { [INSN] = 1, [LOAD] = 1 }, .memory = true } },
	{ "mov (%rax,%rcx,8),%rax", CODE(0x48, 0x8b, 0x04, 0xc8),
	  { .n = { [INSN] = 1, [LOAD] = 1 }, .memory = true, .chases = true } },
	{ "mov %rax,(%rdi)", CODE(0x48, 0x89, 0x07),
	  { .n = { [INSN] = 1, [STORE] = 1 }, .memory = true } },
	{ "add %rax,(%rdi)", CODE(0x48, 0x01, 0x07),
	  { .n = { [INSN] = 1, [LOAD] = 1, [STORE] = 1 }, .memory = true } },
	{ "cmp %rax,(%rdi)", CODE(0x48, 0x39, 0x07),
	  { .n = { [INSN] = 1, [LOAD] = 1 }, .memory = true } },
	{ "mov 8(%rsp),%rax", CODE(0x48, 0x8b, 0x44, 0x24, 0x08),
	  { .n = { [INSN] = 1, [LOAD] = 1 } } },
	{ "mov 8(%rip),%rax", CODE(0x48, 0x8b, 0x05, 8, 0, 0, 0),
	  { .n = { [INSN] = 1, [LOAD] = 1 } } },
	{ "lea 8(%rdi),%rax", CODE(0x48, 0x8d, 0x47, 0x08), { .n = { [INSN] = 1 } } },
	{ "push %rbp", CODE(0x55), { .n = { [INSN] = 1, [STORE] = 1 } } },
	{ "pop %rbp", CODE(0x5d), { .n = { [INSN] = 1, [LOAD] = 1 } } },
	{ "ret", CODE(0xc3), { .n = { [INSN] = 1, [LOAD] = 1, [BRANCH] = 1 } } },
	{ "call", CODE(0xe8, 0, 0, 0, 0), { .n = { [INSN] = 1, [STORE] = 1, [BRANCH] = 1 } } },
	{ "jmp", CODE(0xeb, 0), { .n = { [INSN] = 1, [BRANCH] = 1 } } },
	{ "jne", CODE(0x75, 0), { .n = { [INSN] = 1, [BRANCH] = 1 }, .conditional = true } },
	{ "jne far", CODE(0x0f, 0x85, 0, 0, 0, 0),
	  { .n = { [INSN] = 1, [BRANCH] = 1 }, .conditional = true } },
	{ "imul %rbx,%rax", CODE(0x48, 0x0f, 0xaf, 0xc3), { .n = { [INSN] = 1, [MUL] = 1 } } },
	{ "div %rbx", CODE(0x48, 0xf7, 0xf3), { .n = { [INSN] = 1, [DIV] = 1 } } },
	{ "mulsd %xmm1,%xmm0", CODE(0xf2, 0x0f, 0x59, 0xc1), { .n = { [INSN] = 1, [FP] = 1 } } },
	{ "divsd %xmm1,%xmm0", CODE(0xf2, 0x0f, 0x5e, 0xc1),
	  { .n = { [INSN] = 1, [FP] = 1, [DIV] = 1 } } },
	{ "movsd (%rdi),%xmm0", CODE(0xf2, 0x0f, 0x10, 0x07),
	  { .n = { [INSN] = 1, [LOAD] = 1 }, .memory = true } },
	{ "movaps %xmm0,(%rdi)", CODE(0x0f, 0x29, 0x07),
	  { .n = { [INSN] = 1, [STORE] = 1 }, .memory = true } },
	{ "rep stosq", CODE(0xf3, 0x48, 0xab),
	  { .n = { [INSN] = 1, [STORE] = 1 }, .memory = true, .repeats = 8 } },
	{ "rep movsb", CODE(0xf3, 0xa4),
	  { .n = { [INSN] = 1, [LOAD] = 1, [STORE] = 1 }, .memory = true, .repeats = 1 } },
	{ "pause", CODE(0xf3, 0x90), { .n = { [INSN] = 1, [SYS] = 2 }, .pauses = true } },
	{ "nop", CODE(0x90), { .n = { [INSN] = 1 } } },
	{ "nopl (%rax)", CODE(0x0f, 0x1f, 0x00), { .n = { [INSN] = 1 } } },
	{ "syscall", CODE(0x0f, 0x05), { .n = { [INSN] = 1, [SYS] = 1 } } },
	{ "hlt", CODE(0xf4), { .n = { [INSN] = 1, [SYS] = 1 } } },
};

int main(void)
{
	int wrong = 0;

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct decoded d;

		decode(cases[i].bytes, cases[i].len, &d);
		if (memcmp(&d, &cases[i].is, sizeof d)) {
			printf("%s is taken for something else\n", cases[i].name);
			wrong++;
		}
		/* However it is cut off, nothing is read beyond its end. */
		for (unsigned len = 0; len < cases[i].len; len++) {
			uint8_t copy[16] = { 0 };

			memcpy(copy, cases[i].bytes, len);
			decode(copy, len, &d);
		}
	}
	printf("%zu instructions, %d wrong\n", sizeof cases / sizeof *cases, wrong);
	return wrong != 0;
}
