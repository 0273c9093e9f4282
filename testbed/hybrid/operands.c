// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which registers an x86-64 instruction reads and writes, and which unit it needs:
 * for chains of dependent instructions (pipeline.c). AVX is not there: the virtual
 * machines have none.
 *
 * The stack pointer of push, pop, call and ret is no dependence: cores keep track
 * of it apart.
 */
#include <string.h>

#include "insn.h"
#include "model.h"

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, XMM = 16, FLAGS = 32, X87 };

#define BIT(r) (1ull << (r))

struct parts {
	struct insn i;
	unsigned reg, rm;
	bool memory; /* rm is a memory operand */
	uint64_t address;
	struct operands *o;
};

static uint64_t address_of(const struct insn *i)
{
	unsigned mod = i->modrm >> 6, rm = i->modrm & 7;

	if (mod == 3)
		return 0;
	if (rm != 4)
		return mod == 0 && rm == 5 ? 0 : BIT(rm | i->rex_b << 3);
	uint8_t sib = i->p + 1 < i->end ? i->p[1] : 0;
	unsigned base = (sib & 7) | i->rex_b << 3, index = (sib >> 3 & 7) | i->rex_x << 3;
	uint64_t regs = mod == 0 && (sib & 7) == 5 ? 0 : BIT(base);
	return index == 4 ? regs : regs | BIT(index);
}

/* The ModRM operand; `file` is 0 for general registers, XMM for the others. */
static void reads_rm(struct parts *p, unsigned file)
{
	if (p->memory)
		p->o->load = true;
	else
		p->o->reads |= BIT(p->rm + file);
}

static void writes_rm(struct parts *p, unsigned file)
{
	if (p->memory)
		p->o->store = true;
	else
		p->o->writes |= BIT(p->rm + file);
}

/* A register is zero then, whatever was in it. */
static bool zeroes(const struct parts *p)
{
	return !p->memory && p->reg == p->rm;
}

static void arithmetic(struct parts *p)
{
	struct operands *o = p->o;
	uint8_t op = p->i.op, kind = op >> 3; /* add or adc sbb and sub xor cmp */

	o->writes |= BIT(FLAGS);
	if (kind == 2 || kind == 3)
		o->reads |= BIT(FLAGS);
	if ((op & 7) >= 4) {
		o->reads |= BIT(RAX);
		o->writes |= kind == 7 ? 0 : BIT(RAX);
		return;
	}
	if ((kind == 5 || kind == 6) && zeroes(p)) {
		o->writes |= BIT(p->reg);
		o->unit = NO_UNIT;
		return;
	}
	o->reads |= BIT(p->reg);
	reads_rm(p, 0);
	if (kind == 7)
		return;
	if (op & 2)
		o->writes |= BIT(p->reg);
	else
		writes_rm(p, 0);
}

/* Opcodes f6, f7, fe and ff: the ModRM byte says what they do. */
static void group(struct parts *p)
{
	struct operands *o = p->o;
	unsigned which = p->i.modrm >> 3 & 7;

	reads_rm(p, 0);
	if (p->i.op >= 0xfe) {
		if (which < 2) {
			writes_rm(p, 0);
			o->writes |= BIT(FLAGS);
		} else if (which == 6) {
			o->store = true;
		} else {
			o->store |= which < 4;
			o->unit = BRANCH_UNIT;
		}
		return;
	}
	if (which == 2 || which == 3)
		writes_rm(p, 0);
	if (which != 2)
		o->writes |= BIT(FLAGS);
	if (which < 4)
		return;
	o->unit = which < 6 ? MUL_UNIT : DIV_UNIT;
	o->reads |= BIT(RAX) | (which < 6 ? 0 : BIT(RDX));
	o->writes |= BIT(RAX) | BIT(RDX);
}

static void one_byte(struct parts *p)
{
	struct operands *o = p->o;
	uint8_t op = p->i.op, low = (op & 7) | p->i.rex_b << 3;

	if (op < 0x40 && (op & 7) < 6) {
		arithmetic(p);
		return;
	}
	if ((op & 0xf0) == 0x50 || op == 0x68 || op == 0x6a || (op >= 0xa4 && op <= 0xaf) ||
	    op == 0xc2 || op == 0xc3 || op == 0xc9 || op == 0xe8)
		p->address = 0; /* no ModRM byte */
	switch (op) {
	case 0x50 ... 0x57:
		o->reads |= BIT(low);
		/* fall through */
	case 0x68: case 0x6a:
		o->store = true;
		o->unit = NO_UNIT;
		return;
	case 0x58 ... 0x5f:
		o->writes |= BIT(low);
		o->load = true;
		o->unit = NO_UNIT;
		return;
	case 0x63: case 0x8a: case 0x8b:
		reads_rm(p, 0);
		o->writes |= BIT(p->reg);
		if (op == 0x8a)
			o->reads |= BIT(p->reg);
		else if (op == 0x8b)
			o->unit = NO_UNIT; /* a load alone, or a renamed register */
		return;
	case 0x69: case 0x6b:
		reads_rm(p, 0);
		o->writes |= BIT(p->reg) | BIT(FLAGS);
		o->unit = MUL_UNIT;
		return;
	case 0x70 ... 0x7f:
		o->reads |= BIT(FLAGS);
		o->unit = BRANCH_UNIT;
		return;
	case 0x80: case 0x81: case 0x83: {
		unsigned kind = p->i.modrm >> 3 & 7;

		reads_rm(p, 0);
		if (kind == 2 || kind == 3)
			o->reads |= BIT(FLAGS);
		if (kind != 7)
			writes_rm(p, 0);
		o->writes |= BIT(FLAGS);
		return;
	}
	case 0x84: case 0x85:
		reads_rm(p, 0);
		o->reads |= BIT(p->reg);
		o->writes |= BIT(FLAGS);
		return;
	case 0x86: case 0x87:
		reads_rm(p, 0);
		writes_rm(p, 0);
		o->reads |= BIT(p->reg);
		o->writes |= BIT(p->reg);
		return;
	case 0x88: case 0x89:
		o->reads |= BIT(p->reg);
		writes_rm(p, 0);
		if (op == 0x88 && !p->memory)
			o->reads |= BIT(p->rm);
		else
			o->unit = NO_UNIT;
		return;
	case 0x8d:
		o->reads |= p->address;
		o->writes |= BIT(p->reg);
		return;
	case 0x90:
		o->unit = NO_UNIT;
		return;
	case 0x91 ... 0x97:
		o->reads |= BIT(RAX) | BIT(low);
		o->writes |= BIT(RAX) | BIT(low);
		return;
	case 0x98: case 0x99:
		o->reads |= BIT(RAX);
		o->writes |= BIT(op == 0x98 ? RAX : RDX);
		return;
	case 0xa4 ... 0xa7: case 0xaa ... 0xaf:
		o->load = op < 0xaa || op >= 0xac;
		o->store = op == 0xa4 || op == 0xa5 || op == 0xaa || op == 0xab;
		o->reads |= BIT(RDI) | (op < 0xa8 ? BIT(RSI) : BIT(RAX));
		o->writes |= o->reads;
		return;
	case 0xa8: case 0xa9:
		o->reads |= BIT(RAX);
		o->writes |= BIT(FLAGS);
		return;
	case 0xb0 ... 0xbf:
		o->writes |= BIT(low);
		return;
	case 0xc0: case 0xc1: case 0xd0 ... 0xd3:
		reads_rm(p, 0);
		writes_rm(p, 0);
		o->writes |= BIT(FLAGS);
		if (op == 0xd2 || op == 0xd3)
			o->reads |= BIT(RCX);
		return;
	case 0xc2: case 0xc3:
		o->load = true;
		o->unit = BRANCH_UNIT;
		return;
	case 0xc6: case 0xc7:
		writes_rm(p, 0);
		o->unit = p->memory ? NO_UNIT : ALU_UNIT;
		return;
	case 0xc9:
		o->reads |= BIT(RBP);
		o->writes |= BIT(RBP) | BIT(RSP);
		o->load = true;
		return;
	case 0xd8 ... 0xdf: {
		unsigned which = p->i.modrm >> 3 & 7;
		bool plain = p->memory && (op & 1) && which < 4; /* fld, fst, fild, fist */

		o->load = p->memory && !(plain && which);
		o->store = plain && which;
		o->reads |= plain && !which ? 0 : BIT(X87);
		o->writes |= BIT(X87);
		o->unit = plain ? VECTOR_UNIT : which >= 6 && !(op & 1) ? FDIV_UNIT : FP_UNIT;
		return;
	}
	case 0xe0 ... 0xe3:
		o->reads |= BIT(RCX);
		o->writes |= BIT(RCX);
		o->unit = BRANCH_UNIT;
		return;
	case 0xe8:
		o->store = true;
		/* fall through */
	case 0xe9: case 0xeb:
		o->unit = BRANCH_UNIT;
		return;
	case 0xf6: case 0xf7: case 0xfe: case 0xff:
		group(p);
		return;
	}
}

/* Most have both operands in vector registers, and write the first. */
static void sse(struct parts *p)
{
	struct operands *o = p->o;
	uint8_t op = p->i.op;

	o->unit = VECTOR_UNIT;
	switch (op) {
	case 0x12: case 0x16: /* half a register */
		break;
	case 0x10: case 0x28: case 0x6f: case 0xf0:
		reads_rm(p, XMM);
		o->writes |= BIT(p->reg + XMM);
		o->unit = p->memory ? NO_UNIT : VECTOR_UNIT;
		return;
	case 0x11: case 0x13: case 0x17: case 0x29: case 0x2b: case 0x7f: case 0xd6: case 0xe7:
		o->reads |= BIT(p->reg + XMM);
		writes_rm(p, XMM);
		o->unit = p->memory ? NO_UNIT : VECTOR_UNIT;
		return;
	case 0x7e:
		if (p->i.rep) { /* movq xmm, xmm or memory */
			reads_rm(p, XMM);
			o->writes |= BIT(p->reg + XMM);
			return;
		}
		o->reads |= BIT(p->reg + XMM);
		writes_rm(p, 0);
		return;
	case 0x2a: case 0x6e:
		reads_rm(p, 0);
		o->writes |= BIT(p->reg + XMM);
		o->unit = op == 0x2a ? FP_UNIT : VECTOR_UNIT;
		return;
	case 0x2c: case 0x2d: case 0x50: case 0xc5: case 0xd7:
		reads_rm(p, XMM);
		o->writes |= BIT(p->reg);
		o->unit = FP_UNIT;
		return;
	case 0x2e: case 0x2f:
		reads_rm(p, XMM);
		o->reads |= BIT(p->reg + XMM);
		o->writes |= BIT(FLAGS);
		o->unit = FP_UNIT;
		return;
	case 0x51: case 0x52: case 0x53: case 0x5a: case 0x5b: case 0x70: case 0xe6:
		reads_rm(p, XMM);
		o->writes |= BIT(p->reg + XMM);
		o->unit = op == 0x70 ? VECTOR_UNIT : op == 0x51 ? FDIV_UNIT : FP_UNIT;
		return;
	case 0x71: case 0x72: case 0x73: /* shifts by a constant */
		o->reads |= BIT(p->rm + XMM);
		o->writes |= BIT(p->rm + XMM);
		return;
	case 0x57: case 0xef: /* xorps, pxor */
		if (zeroes(p)) {
			o->writes |= BIT(p->reg + XMM);
			o->unit = NO_UNIT;
			return;
		}
		break;
	case 0x58: case 0x59: case 0x5c: case 0x5d: case 0x5f: case 0xc2:
	case 0xd5: case 0xe4: case 0xe5: case 0xf4: case 0xf5: /* packed multiplications */
		o->unit = FP_UNIT;
		break;
	case 0x5e:
		o->unit = FDIV_UNIT;
		break;
	}
	reads_rm(p, op == 0xc4 ? 0 : XMM);
	o->reads |= BIT(p->reg + XMM);
	o->writes |= BIT(p->reg + XMM);
}

static void two_byte(struct parts *p)
{
	struct operands *o = p->o;
	uint8_t op = p->i.op;

	switch (op) {
	case 0x00 ... 0x0f: case 0x18 ... 0x23: case 0x30 ... 0x37: case 0xa2:
		o->unit = NO_UNIT; /* privileged, prefetches, nops */
		return;
	case 0x40 ... 0x4f:
		reads_rm(p, 0);
		o->reads |= BIT(p->reg) | BIT(FLAGS);
		o->writes |= BIT(p->reg);
		return;
	case 0x80 ... 0x8f:
		o->reads |= BIT(FLAGS);
		o->unit = BRANCH_UNIT;
		return;
	case 0x90 ... 0x9f:
		o->reads |= BIT(FLAGS);
		writes_rm(p, 0);
		return;
	case 0xa3: case 0xab: case 0xb3: case 0xbb: case 0xba:
		reads_rm(p, 0);
		o->reads |= op == 0xba ? 0 : BIT(p->reg);
		o->writes |= BIT(FLAGS);
		if (op == 0xba ? (p->i.modrm >> 3 & 7) > 4 : op != 0xa3)
			writes_rm(p, 0);
		return;
	case 0xa4: case 0xa5: case 0xac: case 0xad:
		reads_rm(p, 0);
		writes_rm(p, 0);
		o->reads |= BIT(p->reg) | (op & 1 ? BIT(RCX) : 0);
		o->writes |= BIT(FLAGS);
		o->unit = MUL_UNIT; /* as long as one */
		return;
	case 0xaf:
		reads_rm(p, 0);
		o->reads |= BIT(p->reg);
		o->writes |= BIT(p->reg) | BIT(FLAGS);
		o->unit = MUL_UNIT;
		return;
	case 0xb0: case 0xb1: case 0xc0: case 0xc1:
		reads_rm(p, 0);
		writes_rm(p, 0);
		o->reads |= BIT(p->reg) | (op < 0xc0 ? BIT(RAX) : 0);
		o->writes |= BIT(FLAGS) | (op < 0xc0 ? BIT(RAX) : BIT(p->reg));
		return;
	case 0xb6: case 0xb7: case 0xbe: case 0xbf:
		reads_rm(p, 0);
		o->writes |= BIT(p->reg);
		return;
	case 0xb8: case 0xbc: case 0xbd: /* popcnt, bsf, bsr */
		reads_rm(p, 0);
		o->writes |= BIT(p->reg) | BIT(FLAGS);
		o->unit = MUL_UNIT; /* as long as one */
		return;
	case 0xc8 ... 0xcf:
		p->rm = (op & 7) | p->i.rex_b << 3;
		o->reads |= BIT(p->rm);
		o->writes |= BIT(p->rm);
		return;
	case 0x10 ... 0x17: case 0x28 ... 0x2f: case 0x50 ... 0x7f: case 0xc2: case 0xc4 ... 0xc6:
	case 0xd0 ... 0xff:
		sse(p);
		return;
	}
}

static void three_byte(struct parts *p)
{
	struct operands *o = p->o;

	if (p->i.map == 2 && p->i.op >= 0xf0 && !p->i.vex) { /* crc32, movbe */
		reads_rm(p, 0);
		o->reads |= BIT(p->reg);
		o->writes |= BIT(p->reg);
		o->unit = p->i.rep ? MUL_UNIT : ALU_UNIT;
		return;
	}
	reads_rm(p, XMM);
	o->reads |= BIT(p->reg + XMM);
	o->writes |= BIT(p->reg + XMM);
	/* AES and SHA take as long as arithmetic does. */
	o->unit = p->i.map == 2 && p->i.op >= 0xc8 ? FP_UNIT : VECTOR_UNIT;
}

void operands(const uint8_t *bytes, unsigned len, struct operands *o)
{
	struct parts p = { .o = o };

	memset(o, 0, sizeof *o);
	insn_parse(&p.i, bytes, len);
	p.reg = (p.i.modrm >> 3 & 7) | p.i.rex_r << 3;
	p.rm = (p.i.modrm & 7) | p.i.rex_b << 3;
	p.memory = p.i.modrm >> 6 != 3;
	p.address = address_of(&p.i);
	if (p.i.map == 0)
		one_byte(&p);
	else if (p.i.map == 1)
		two_byte(&p);
	else
		three_byte(&p);
	if (o->load || o->store)
		o->address = p.address;
}
