/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An x86-64 instruction up to its ModRM byte: what decode.c and operands.c begin with. */
#ifndef HYBRID_INSN_H
#define HYBRID_INSN_H

#include <stdbool.h>
#include <stdint.h>

struct insn {
	const uint8_t *p, *end; /* at the ModRM byte, if there is one */
	bool rep, rex_b, rex_r, rex_x, rex_w, vex;
	unsigned map; /* 0: one byte, 1: 0f, 2: 0f38, 3: 0f3a */
	uint8_t op, modrm;
};

void insn_parse(struct insn *i, const uint8_t *bytes, unsigned len);

#endif
