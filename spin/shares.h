/* SPDX-License-Identifier: GPL-2.0-only */
/* Which thread of a region is on which core type, how fast it is there, and what part of a loop it is due. */
#ifndef SCX_HETERO_SHARES_H
#define SCX_HETERO_SHARES_H

#include "../heartbeats/scx_hetero_advice.h"
#include "team.h"

#pragma GCC visibility push(hidden)

/* Where the program may run is noted. False: it cannot be found out. */
bool shares_begin(void);

/* What others leave of the core types is as this says. */
void shares_take(const struct scx_hetero_advice_record *advice);

/*
 * So many threads get core types, and these weights: how fast a body's threads are there; what is advised where `body` is NULL.
 * plan->shares stays false if all are alike.
 */
void shares_make(struct team_plan *plan, const struct kind *body, unsigned threads);

/* Takes in how fast a region's threads were on each core type. `equal`: all have as much to do. */
void shares_learn(const struct team_plan *plan, struct kind *body, bool equal);

/*
 * How many threads of `most` finish soonest where all have as much to do, by what was learnt; 0: nothing was. Where they
 * `meet` often none is to share a CPU: all would wait for it at each meeting.
 */
unsigned shares_equal(unsigned most, bool meet);

#pragma GCC visibility pop

#endif /* SCX_HETERO_SHARES_H */
