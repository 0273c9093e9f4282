/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When a task competes for CPUs, and counts wherever those that do are counted: in its domain, its
 * process and its cgroup.
 */
#ifndef __HETERO_COMPETE_BPF_H
#define __HETERO_COMPETE_BPF_H

#include "account.bpf.h"
#include "cgroup.bpf.h"
#include "spin.bpf.h"
#include "turn.bpf.h"

/*
 * It is runnable: from now on it counts wherever it competes for CPUs. Told by whichever comes first,
 * that a CPU is sought for it, that it is queued or that it runs; ops.runnable would cost every
 * wake-up 150 instructions more.
 */
static void compete(struct task_ctx *tctx, s32 cpu)
{
	struct process_ctx *pctx;

	if (tctx->competes)
		return;
	tctx->competes = true;
	tctx->vtime = wake_vtime(tctx->vtime, clock_now(), slice_ns);
	if (tctx->domain >= MAX_DOMAINS)
		tctx->domain = domain_of_cpu(cpu);
	pctx = process_ctx_of(tctx);
	if (pctx)
		__sync_fetch_and_add(&pctx->nr_runnable, 1);
	if (tctx->cgroup) {
		count_in_cgroup(tctx, task_share(tctx->weight));
		refresh_share(tctx);
	}
	count_share(tctx, tctx->share);
	note_sleep(tctx, false);
}

/* It sleeps, ends, or goes to another scheduling class. As little need for ops.quiescent. */
static void retire(struct task_ctx *tctx)
{
	struct process_ctx *pctx = process_ctx_of(tctx);
	struct task_slot *s = slot_of(tctx->slot);

	tctx->competes = false;
	uncount_waiting(tctx);
	note_spinning(tctx, false);
	if (pctx)
		__sync_fetch_and_add(&pctx->nr_runnable, -1);
	if (tctx->cgroup)
		count_in_cgroup(tctx, 0);
	count_share(tctx, 0);
	note_sleep(tctx, true);
	tctx->claimed_cpu = NO_CPU;
	if (!s)
		return;
	slot_write_begin(s);
	s->target_cpu = NO_CPU;
	s->state = TASK_BLOCKED;
	slot_write_end(s);
}

#endif /* __HETERO_COMPETE_BPF_H */
