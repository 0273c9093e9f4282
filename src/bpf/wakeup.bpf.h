/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose turn it is, and who need not wait for it. Queues are ordered by deadline, see
 * deadline_of(). A task that wakes up and is brief (it runs for less than LATENCY_BURST_NS each
 * time) preempts a CPU whose task is not, if its own deadline is earlier by PREEMPT_MARGIN_NS.
 * It is charged for what it runs like everybody, so its deadlines pass those of others once it
 * has had its share, and then it queues.
 */
#ifndef __HETERO_WAKEUP_BPF_H
#define __HETERO_WAKEUP_BPF_H

#include "idle.bpf.h"
#include "account.bpf.h"

/* What a preemption costs both must be worth it. */
#define PREEMPT_MARGIN_NS	(1ULL * 1000 * 1000)

/*
 * A brief task may come back from sleep with this many slices owed, not one: what computes is
 * ahead of the clock now and behind it then by as much as it runs at a time.
 */
#define BRIEF_CREDIT		4

/* How many CPUs besides its last one a waking task looks at. */
#define MAX_VICTIMS		4

/* What it asks for: as long as it mostly runs, or longer, if it does so now. */
static u64 burst_of(struct task_ctx *tctx)
{
	u64 now = tctx->run_ns - tctx->woke_at_ns;

	return tctx->burst_ns > now || !tctx->burst_ns ? tctx->burst_ns : now;
}

/* Where @tctx stands among those that wait, no earlier and no later than is fair. */
static u64 queue_position(struct task_ctx *tctx, bool slept)
{
	u64 credit = is_latency_sensitive(tctx) ? BRIEF_CREDIT * slice_ns : slice_ns;

	tctx->period_ns = vtime_of(tctx, slice_ns);
	tctx->vtime = place_vtime(tctx->vtime, clock_of(tctx->domain), credit, tctx->period_ns,
				  slept);
	return deadline_of(tctx->vtime, burst_of(tctx), slice_ns, tctx->period_ns);
}

/* The deadline of a task that runs, by what its period was when it was queued last. */
static u64 current_deadline(struct task_ctx *tctx)
{
	u64 period = tctx->period_ns > slice_ns ? tctx->period_ns : slice_ns;

	return deadline_of(tctx->vtime, burst_of(tctx), slice_ns, period);
}

/* @p runs on @cpu: may others preempt it, and whose deadlines must be how early? */
static void note_runner(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	if (!cctx)
		return;
	/* Fields of the CPU's own, that others read now and then: races cost a preemption. */
	if (is_latency_sensitive(tctx) || p->tgid == agent_tgid ||
	    ((p->flags & PF_KTHREAD) && tctx->pinned_cpu != NO_CPU)) {
		cctx->preemptible = false;
		return;
	}
	cctx->deadline = current_deadline(tctx);
	cctx->preemptible = true;
}

/*
 * A task that computes begins to run on @cpu, and a brief one may have begun to wait when all
 * CPUs ran brief ones, or were about to change tasks: it must not wait for a tick.
 */
static void give_way(struct task_ctx *tctx, s32 cpu)
{
	struct domain_ctx *dctx = domain_ctx_of(tctx->domain);
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	if (dctx && dctx->nr_brief && cctx && cctx->preemptible &&
	    works(MECHANISM_WAKEUP_PREEMPT) &&
	    vtime_before(dctx->brief_deadline + PREEMPT_MARGIN_NS, cctx->deadline))
		arm_rescue(cpu);
}

/* How to put @p on an idle CPU: a brief one goes before what else has come there meanwhile. */
static u64 idle_flags(struct task_ctx *tctx)
{
	return is_latency_sensitive(tctx) && works(MECHANISM_WAKEUP_PREEMPT) ? SCX_ENQ_PREEMPT : 0;
}

/*
 * @p, brief, is woken by a task, brief, too, that says that it is about to sleep. Then it stays near,
 * where its data are: on an idle CPU of the waker's domain, or else on the waker's own if nothing
 * waits there. < 0: no reason to.
 */
static s32 cpu_near_waker(struct task_struct *p, struct task_ctx *tctx, s32 prev_cpu,
			  u64 wake_flags)
{
	s32 cpu = bpf_get_smp_processor_id(), idle;
	struct task_struct *waker = bpf_get_current_task_btf();
	u32 domain = domain_of_cpu(cpu), hint = hint_of(tctx);
	struct domain_ctx *dctx = domain_ctx_of(domain);
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	struct task_ctx *wctx;
	struct mask_ctx *masks;

	if (!(wake_flags & SCX_WAKE_SYNC) || !works(MECHANISM_SYNC) || !dctx || !cctx ||
	    !is_latency_sensitive(tctx) || (waker->flags & PF_EXITING) ||
	    (hint != NO_TYPE && hint != type_of_cpu(cpu)) ||
	    !bpf_cpumask_test_cpu(cpu, p->cpus_ptr) || is_parked_for(p, cpu))
		return -ENOENT;
	wctx = task_ctx_of(waker);
	if (!wctx || !is_latency_sensitive(wctx) || better_idle_exists(p, tctx, cpu))
		return -ENOENT;
	if (domain_of_cpu(prev_cpu) == domain && bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) &&
	    !is_parked_for(p, prev_cpu) && scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		return prev_cpu;
	masks = bpf_map_lookup_elem(&domain_masks, &domain);
	idle = masks ? claim_idle_in(p, masks->cpus, 0) : -ENOENT;
	if (idle >= 0)
		return idle;
	if (cctx->nr_waiting || dctx->nr_waiting || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu))
		return -ENOENT;
	return cpu;
}

static void forget_runner(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	if (cctx)
		cctx->preemptible = false;
}

/* May a task with this deadline preempt what runs on @cpu? Then nobody else may, from now on. */
static bool claim_victim(s32 cpu, u64 deadline)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	return cctx && cctx->preemptible &&
	       vtime_before(deadline + PREEMPT_MARGIN_NS, cctx->deadline) &&
	       __sync_val_compare_and_swap(&cctx->preemptible, true, false);
}

/* The CPU that @p, which just woke up, takes over from who runs there; < 0 if it is to queue. */
static s32 claim_cpu_by_preemption(struct task_struct *p, struct task_ctx *tctx, s32 prev_cpu,
				   u64 deadline)
{
	u32 domain = tctx->domain, i;
	struct bpf_cpumask *cpus;
	struct mask_ctx *masks;

	if (!works(MECHANISM_WAKEUP_PREEMPT) || !is_latency_sensitive(tctx))
		return -ENOENT;
	/* Deadlines of one domain go by one clock. */
	if (bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) && domain_of_cpu(prev_cpu) == domain &&
	    claim_victim(prev_cpu, deadline))
		return prev_cpu;
	if (tctx->pinned_cpu != NO_CPU)
		return -ENOENT;
	masks = bpf_map_lookup_elem(&domain_masks, &domain);
	cpus = masks ? masks->cpus : NULL;
	if (!cpus)
		return -ENOENT;
	bpf_for(i, 0, MAX_VICTIMS) {
		u32 cpu = bpf_cpumask_any_and_distribute(cast_mask(cpus), p->cpus_ptr);

		if (cpu >= nr_cpu_ids)
			break;
		if (claim_victim(cpu, deadline))
			return cpu;
	}
	return -ENOENT;
}

#endif /* __HETERO_WAKEUP_BPF_H */
