/* SPDX-License-Identifier: GPL-2.0-only */
/* Putting a task on a CPU, or in another queue, where something other than its turn decides. */
#ifndef __HETERO_PLACE_BPF_H
#define __HETERO_PLACE_BPF_H

#include "rescue.bpf.h"
#include "queues.bpf.h"

static bool is_pinned(struct task_ctx *tctx)
{
	return tctx->pinned_cpu != NO_CPU;
}

/* Send @p straight to @cpu's local queue. */
static void insert_on(struct task_struct *p, s32 cpu, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, slice_ns, enq_flags);
}

/*
 * The same, ahead of what runs and waits there. On its way from enqueue to another CPU 6.18 loses
 * the upper half of the flags, SCX_ENQ_PREEMPT with it: @p would wait for the end of a slice.
 */
static void preempt_on(struct task_struct *p, s32 cpu)
{
	insert_on(p, cpu, SCX_ENQ_PREEMPT | SCX_ENQ_HEAD);
	if (can_kick() && cpu != scx_bpf_task_cpu(p))
		scx_bpf_kick_cpu___optional(cpu, SCX_KICK_PREEMPT);
}

/* The CPU to which a swap sends @p, if it may go there; the note is used up when taken. */
static s32 swap_target(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	struct task_slot *s = slot_of(tctx->slot);
	s32 target = s ? s->target_cpu : NO_CPU;

	if (target == NO_CPU || target == cpu || domain_of_cpu(target) >= MAX_DOMAINS ||
	    is_taken(target) ||
	    is_parked_for(p, target) ||
	    !may_use_cpu(p, target))
		return NO_CPU;
	return target;
}

static void forget_swap(struct task_ctx *tctx)
{
	struct task_slot *s = slot_of(tctx->slot);

	if (s)
		s->target_cpu = NO_CPU;
}

static s32 take_swap_target(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	s32 target = swap_target(p, tctx, cpu);

	forget_swap(tctx);
	return target;
}

/*
 * Must @p stay on its CPU for now? While a BPF program runs, what the CPU runs may not migrate:
 * that is not meant. Of 6.18 and before, ops.cpu_release calls enqueue from within, so two run.
 */
static bool must_stay(struct task_struct *p, u64 enq_flags)
{
	if (!(enq_flags & SCX_ENQ_REENQ) || !bpf_ksym_exists(scx_bpf_reenqueue_local___v1) ||
	    !__scx_prolog_disables_migration || p != bpf_get_current_task_btf())
		return is_migration_disabled(p);
	return p->migration_disabled > 2;
}

/* For so many ticks a swap is left to the one that goes to the faster type: it may have to wait for a CPU first. */
#define FASTER_FIRST_TICKS	2

/*
 * Does the task on @cpu begin its swap, which sends it to @target? The one that goes to the faster type does: ticks
 * come on all CPUs at once, and a fast CPU that the other one left would stand empty at just the moment at which a
 * third task's tick looks for one. That would wait there until the partner's first slice is over, and stay. Of two
 * on one type it is the one that goes to the lower CPU.
 */
static bool begins_swap(struct task_ctx *tctx, s32 cpu, s32 target)
{
	u32 to, from;

	if (target == NO_CPU)
		return false;
	to = type_of_cpu(target);
	from = type_of_cpu(cpu);
	/* Where the partner of one on the same type does not come, neither goes: it has nothing to seek there. */
	if (to == from)
		return target < cpu;
	return to < from || tctx->swap_ticks > FASTER_FIRST_TICKS;
}

/*
 * What rescue() and sweep_queue() do to a task where they cannot see it (can_iterate()). It stays
 * counted as waiting: a CPU that falls idle meanwhile must see that.
 */
static bool requeue(struct task_struct *p, struct task_ctx *tctx, u64 enq_flags)
{
	u32 hint, domain = tctx->domain;
	u64 dsq = domain;
	s32 cpu;

	if (can_iterate() || !(enq_flags & SCX_ENQ_REENQ) || !tctx->waiting)
		return false;
	cpu = any_idle_for(p);
	if (cpu >= 0) {
		note_idle(cpu, false);
		count_stat(STAT_RESCUED);
		insert_on(p, cpu, 0);
		return true;
	}
	hint = wished_type(tctx);
	if (is_pinned(tctx)) {
		dsq = CPU_DSQ(tctx->pinned_cpu);
	} else if (hint != NO_TYPE && hint != type_of_domain(domain)) {
		domain = lightest_domain_for(p, hint);
		if (domain_ctx_of(domain)) {
			move_waiting(tctx, domain);
			dsq = domain;
		}
	}
	scx_bpf_dsq_insert_vtime(p, dsq, slice_ns, p->scx.dsq_vtime, enq_flags);
	return true;
}

/*
 * Should @prev leave this CPU for another? If so, the place is taken here and
 * enqueue, which the kernel calls next, sends it there: nothing else may stand
 * between, for with SCX_OPS_ENQ_LAST a task put back on its own CPU by enqueue
 * would wait for the next interrupt.
 */
static bool take_other_place(struct task_struct *prev, struct task_ctx *tctx, s32 cpu)
{
	s32 target;

	if (is_pinned(tctx) || is_migration_disabled(prev))
		return false;
	if (begins_swap(tctx, cpu, swap_target(prev, tctx, cpu)))
		return true;
	if (!tctx->upgrade)
		return false;
	tctx->upgrade = false;
	target = claim_better_idle(prev, tctx, cpu);
	if (target < 0)
		return false;
	tctx->claimed_cpu = target;
	return true;
}

#endif /* __HETERO_PLACE_BPF_H */
