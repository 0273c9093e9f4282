/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The agent's heartbeat. An agent that is stopped, or starved, must not leave threads for
 * good where it saw fit to put them last: after a second of silence its hints are void, and
 * the threads that run share the fastest core type by trading places. Its next word ends that.
 */
#ifndef __HETERO_HEARTBEAT_BPF_H
#define __HETERO_HEARTBEAT_BPF_H

#include "state.bpf.h"

#define STALL_NS		(1000ULL * 1000 * 1000)

/* The task on a fast CPU looks for one to trade places with once in this time at most ... */
#define SHARE_INTERVAL_NS	(20ULL * 1000 * 1000)

/* ... and does so if it is so far ahead: to move costs something, too. */
#define SHARE_SLACK_NS		(20LL * 1000 * 1000)

/* Part of the machine's CPUs that are of the fastest type, Q16. */
const volatile u32 big_part;

/* Written by the agent, all the time that it is awake; ns, monotonic. */
u64 agent_seen;

/* Set by the agent before it sleeps for long; see bell.bpf.h. */
u32 agent_sleeps;

u32 agent_stalled;
u32 nr_stalls;		/* so far, the present one included */

/* From every tick: notes how the agent does. */
static void watch_agent(void)
{
	bool stalled = works(MECHANISM_HEARTBEAT) && !agent_sleeps &&
		       vtime_before(agent_seen + STALL_NS, bpf_ktime_get_ns());

	if (stalled == agent_stalled)
		return;
	/* Each CPU's tick comes by here: one of them changes it. */
	if (__sync_val_compare_and_swap(&agent_stalled, !stalled, stalled) == !stalled && stalled) {
		__sync_fetch_and_add(&nr_stalls, 1);
		count_stat(STAT_STALLS);
	}
}

/* In this silence, every task begins with nothing owed. */
static s64 surplus_of(struct task_slot *s)
{
	return s->stall == nr_stalls ? s->surplus : 0;
}

static void note_share(struct task_slot *s, u64 run_ns, u32 core_type)
{
	s->surplus = charge_surplus(surplus_of(s), run_ns, core_type == 0, big_part);
	s->stall = nr_stalls;
}

/* May it be sent to @core_type? */
static bool may_trade(struct task_slot *s, u32 core_type)
{
	return s->state == TASK_IS_RUNNING && s->target_cpu == NO_CPU && !s->pinned &&
	       !s->kthread && (s->allowed_types >> (core_type & 7) & 1);
}

/*
 * Of the tasks that run on slower types, the one that is furthest behind. Global, so that
 * the verifier checks it once.
 */
__noinline u32 furthest_behind(u32 fast_cpu)
{
	u32 best = NO_SLOT, cpu;
	s64 least = 0;

	bpf_for(cpu, 0, nr_cpu_ids) {
		struct cpu_ctx *cctx = cpu_ctx_of(cpu);
		struct task_slot *s = slot_of(cctx->slot);

		if (!s || s->cpu != (s32)cpu || domain_of_cpu(cpu) >= MAX_DOMAINS ||
		    type_of_cpu(cpu) == 0 || !may_trade(s, 0) || is_parked(cpu))
			continue;
		if (best == NO_SLOT || surplus_of(s) < least) {
			best = cctx->slot;
			least = surplus_of(s);
		}
	}
	return best;
}

/*
 * The task with @slot has run on @cpu. If that is of the fastest type, and it was there for
 * longer than others, it trades places with the one furthest behind: both get the same note as
 * in a swap that the agent asks for.
 */
static void share_fastest(u32 slot, s32 cpu)
{
	struct task_slot *s = slot_of(slot), *other;
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	u64 now = bpf_ktime_get_ns();

	if (!s || nr_types < 2 || type_of_cpu(cpu) != 0 ||
	    now - cctx->shared_at < SHARE_INTERVAL_NS || s->target_cpu != NO_CPU || is_parked(cpu))
		return;
	/* Nor is it one that is behind: where it takes turns with one that is ahead it would come each time. */
	if (surplus_of(s) < 0)
		return;
	cctx->shared_at = now;
	other = slot_of(furthest_behind(cpu));
	if (!other || !may_trade(s, type_of_cpu(other->cpu)) ||
	    surplus_of(s) < surplus_of(other) + SHARE_SLACK_NS)
		return;
	s->target_cpu = other->cpu;
	other->target_cpu = cpu;
	count_stat(STAT_SHARED);
}

#endif /* __HETERO_HEARTBEAT_BPF_H */
