// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What an x86-64 instruction costs by: enough of the opcode map to tell loads,
 * stores, branches, floating point, multiplications and divisions apart.
 *
 * Accesses relative to the stack or instruction pointer are taken as L1 hits:
 * they nearly always are, and looking each one up would cost the most.
 */
#include <string.h>

#include "insn.h"
#include "model.h"

enum access { NONE, READ, WRITE, UPDATE };

static bool is_prefix(uint8_t b)
{
	return b == 0x66 || b == 0x67 || b == 0x2e || b == 0x36 || b == 0x3e ||
	       b == 0x26 || b == 0x64 || b == 0x65 || b == 0xf0;
}

static uint8_t take(struct insn *i)
{
	return i->p < i->end ? *i->p++ : 0;
}

void insn_parse(struct insn *i, const uint8_t *bytes, unsigned len)
{
	*i = (struct insn){ .p = bytes, .end = bytes + len };
	while (i->p < i->end && (is_prefix(*i->p) || *i->p == 0xf2 || *i->p == 0xf3))
		i->rep |= *i->p == 0xf2 || *i->p == 0xf3, i->p++;
	if (i->p < i->end && (*i->p & 0xf0) == 0x40) {
		i->rex_b = *i->p & 1;
		i->rex_x = *i->p & 2;
		i->rex_r = *i->p & 4;
		i->rex_w = *i->p & 8;
		i->p++;
	}
	i->op = take(i);
	if (i->op == 0xc5) {
		i->vex = true;
		i->map = 1;
		take(i);
		i->op = take(i);
	} else if (i->op == 0xc4) {
		i->vex = true;
		i->map = take(i) & 0x1f;
		take(i);
		i->op = take(i);
	} else if (i->op == 0x0f) {
		i->map = 1;
		i->op = take(i);
		if (i->op == 0x38 || i->op == 0x3a) {
			i->map = i->op == 0x38 ? 2 : 3;
			i->op = take(i);
		}
	}
	i->modrm = i->p < i->end ? *i->p : 0;
}

/* Of the operands of a string instruction; even opcodes move bytes. */
static unsigned size_of(const struct insn *i)
{
	return !(i->op & 1) ? 1 : i->rex_w ? 8 : 4;
}

/* One-byte opcodes. Returns how the ModRM operand is accessed. */
static enum access one_byte(const struct insn *i, struct decoded *d)
{
	uint8_t op = i->op, reg = (i->modrm >> 3) & 7;

	if (op < 0x40 && (op & 7) < 4)
		return (op & 2) || (op & 0x38) == 0x38 ? READ : UPDATE;
	if ((op & 0xf0) == 0x50) { /* push, pop */
		d->n[op < 0x58 ? STORE : LOAD]++;
		return NONE;
	}
	if ((op & 0xf0) == 0x70 || (op >= 0xe0 && op <= 0xe3)) {
		d->n[BRANCH]++;
		d->conditional = true;
		return NONE;
	}
	switch (op) {
	case 0x63: case 0x84: case 0x85: case 0x8a: case 0x8b:
		return READ;
	case 0x69: case 0x6b:
		d->n[MUL]++;
		return READ;
	case 0x68: case 0x6a:
		d->n[STORE]++;
		return NONE;
	case 0x80: case 0x81: case 0x83:
		return reg == 7 ? READ : UPDATE;
	case 0x86: case 0x87:
		return UPDATE;
	case 0x88: case 0x89: case 0xc6: case 0xc7:
		return WRITE;
	case 0xa4: case 0xa5: case 0xa6: case 0xa7: /* movs, cmps */
		d->n[LOAD]++;
		d->n[op < 0xa6 ? STORE : LOAD]++;
		d->memory = true;
		d->repeats = i->rep ? size_of(i) : 0;
		return NONE;
	case 0xaa: case 0xab: case 0xac: case 0xad: case 0xae: case 0xaf:
		d->n[op < 0xac ? STORE : LOAD]++;
		d->memory = true;
		d->repeats = i->rep ? size_of(i) : 0;
		return NONE;
	case 0xc0: case 0xc1: case 0xd0: case 0xd1: case 0xd2: case 0xd3:
		return UPDATE;
	case 0xc2: case 0xc3:
		d->n[BRANCH]++;
		d->n[LOAD]++;
		return NONE;
	case 0xe8:
		d->n[BRANCH]++;
		d->n[STORE]++;
		return NONE;
	case 0xe9: case 0xeb:
		d->n[BRANCH]++;
		return NONE;
	case 0x90:
		d->pauses = i->rep;
		d->n[SYS] += i->rep ? 2 : 0; /* as long as on recent cores */
		return NONE;
	case 0xcd: case 0xcf: case 0xf4:
	case 0xe4: case 0xe5: case 0xe6: case 0xe7:
	case 0xec: case 0xed: case 0xee: case 0xef:
		d->n[SYS]++;
		return NONE;
	case 0xd8: case 0xd9: case 0xda: case 0xdb:
	case 0xdc: case 0xdd: case 0xde: case 0xdf:
		d->n[FP]++;
		return READ;
	case 0xf6: case 0xf7:
		if (reg == 4 || reg == 5)
			d->n[MUL]++;
		if (reg >= 6)
			d->n[DIV]++;
		return reg == 2 || reg == 3 ? UPDATE : READ;
	case 0xfe:
		return UPDATE;
	case 0xff:
		if (reg < 2)
			return UPDATE;
		if (reg < 6)
			d->n[BRANCH]++;
		if (reg == 2 || reg == 3 || reg == 6)
			d->n[STORE]++;
		return READ;
	}
	return NONE;
}

static enum access sse(const struct insn *i, struct decoded *d)
{
	/* Plain moves between memory and a register are not arithmetic. */
	bool move = i->op == 0x10 || i->op == 0x11 || i->op == 0x28 || i->op == 0x29 ||
		    i->op == 0x6f || i->op == 0x7f || i->op == 0xe7;

	if (!move || i->modrm >> 6 == 3)
		d->n[FP]++;
	if (i->op == 0x5e || i->op == 0x51)
		d->n[DIV]++;
	switch (i->op) {
	case 0x11: case 0x13: case 0x17: case 0x29: case 0x2b:
	case 0x7e: case 0x7f: case 0xd6: case 0xe7:
		/* f3 0f 7e is movq xmm, mem */
		return i->op == 0x7e && i->rep ? READ : WRITE;
	}
	return READ;
}

static enum access two_byte(const struct insn *i, struct decoded *d)
{
	uint8_t op = i->op;

	if (!i->vex && (op & 0xf0) == 0x80) {
		d->n[BRANCH]++;
		d->conditional = true;
		return NONE;
	}
	switch (op) {
	case 0x00: case 0x01: case 0x05: case 0x07: case 0x20: case 0x21: case 0x22:
	case 0x23: case 0x30: case 0x31: case 0x32: case 0x33: case 0x34: case 0x35: case 0xa2:
		d->n[SYS]++;
		return NONE;
	case 0x0d: case 0x18: case 0x1e: case 0x1f: /* prefetches, nops */
		return NONE;
	}
	if (!i->vex) {
		if ((op & 0xf0) == 0x40)
			return READ;
		if ((op & 0xf0) == 0x90)
			return WRITE;
		switch (op) {
		case 0xaf:
			d->n[MUL]++;
			return READ;
		case 0xa3: case 0xb6: case 0xb7: case 0xb8: case 0xbc: case 0xbd: case 0xbe: case 0xbf:
			return READ;
		case 0xa4: case 0xa5: case 0xab: case 0xac: case 0xad: case 0xb0: case 0xb1:
		case 0xb3: case 0xba: case 0xbb: case 0xc0: case 0xc1: case 0xc7:
			return UPDATE;
		}
	}
	if ((op >= 0x10 && op <= 0x17) || (op >= 0x28 && op <= 0x2f) ||
	    (op >= 0x50 && op <= 0x7f) || op == 0xc2 || (op >= 0xc4 && op <= 0xc6) || op >= 0xd0)
		return sse(i, d);
	return NONE;
}

void decode(const uint8_t *bytes, unsigned len, struct decoded *d)
{
	struct insn i;
	enum access access;

	memset(d, 0, sizeof *d);
	d->n[INSN] = 1;
	insn_parse(&i, bytes, len);
	if (i.map == 0) {
		access = one_byte(&i, d);
	} else if (i.map == 1) {
		access = two_byte(&i, d);
	} else {
		d->n[FP]++;
		access = READ;
	}
	unsigned mod = i.modrm >> 6, rm = i.modrm & 7, reg = (i.modrm >> 3) & 7;
	if (access == NONE || mod == 3)
		return;
	if (access != WRITE)
		d->n[LOAD]++;
	if (access != READ)
		d->n[STORE]++;
	uint8_t sib = rm == 4 && i.p + 1 < i.end ? i.p[1] : 0;
	bool stack = rm == 4 && (sib & 7) == 4 && !i.rex_b;
	bool relative = mod == 0 && rm == 5;
	d->memory = !stack && !relative;
	/* mov (%rax,...),%rax: the next address comes from this load */
	unsigned base = (rm == 4 ? sib & 7 : rm) | i.rex_b << 3;
	d->chases = i.map == 0 && i.op == 0x8b && base == (reg | i.rex_r << 3);
}
