/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which task's turn it is, and which need not wait for it. Queues are ordered by deadline, see
 * deadline_of(). A task that wakes up, or was put aside by others since, is brief (it runs for
 * less than LATENCY_BURST_NS each time), has had no more than its fair share, and finds no idle
 * CPU takes over one whose task is not brief and whose slice costs more virtual time than that
 * run will. So what sleeps and wakes can neither be held up by what computes, nor hold it up for
 * longer than is fair; and what weighs a lot is not held up by what weighs little.
 */
#ifndef __HETERO_TURN_BPF_H
#define __HETERO_TURN_BPF_H

#include "idle.bpf.h"
#include "account.bpf.h"
#include "queues.bpf.h"

/* How many CPUs besides its last one a waking task looks at. */
#define MAX_VICTIMS		4

/*
 * What computes on a CPU is put aside no sooner than so long after the last time. A task that many
 * messages wake would else cost two switches for each; the kernel's own scheduler lets some come
 * together.
 */
#define PREEMPT_INTERVAL_NS	(1000ULL * 1000)

/* That of a task that may use no other CPU: it cannot go where nothing was put aside lately. */
#define PINNED_INTERVAL_NS	(PREEMPT_INTERVAL_NS / 8)

/* A task preempted by one that runs for less than that need not go elsewhere: caches cost more. */
#define MOVE_NS			(100ULL * 1000)

/* Where no tick has found a task that computes for so long, no search for one. */
#define COMPUTED_NS		(25ULL * 1000 * 1000)

static u64 clock_now(void)
{
	return scx_bpf_now() + READ_ONCE(clock_offset);
}

/* From the tick: the clock follows those that run, see arith.h. */
static void set_clock(struct task_ctx *tctx, u64 run_ns)
{
	s64 step;

	if (tctx->pinned_cpu != NO_CPU || tctx->is_agent || is_latency_sensitive(tctx) ||
	    session_of(tctx))
		return;
	step = clock_step(tctx->vtime - clock_now(), run_ns, nr_present);
	if (step)
		__sync_fetch_and_add(&clock_offset, step);
}

/*
 * What it asks for: as long as it mostly runs, or longer, if it does so now. A task that has never
 * run may turn out to be brief: half a slice.
 */
static u64 burst_of(struct task_ctx *tctx)
{
	u64 now = burst_so_far(tctx);

	if (!tctx->run_ns && works(MECHANISM_NEWCOMER))
		return slice_ns / 2;
	return tctx->burst_ns > now || !tctx->burst_ns ? tctx->burst_ns : now;
}

/*
 * Threads whose allotment is not used up come first: others have what the allotments leave, which is
 * the agent's to see to. Should it allot too much, they wait for as long as the furthest lead lasts.
 * Those of the session that has most left go first: one that lets many go at once does not keep another
 * from its own. Those that were held until it was paid come first though another thread has spent some since.
 */
static u64 entitled_deadline(struct task_ctx *tctx, u64 deadline)
{
	u32 session = session_of(tctx);
	u64 first, lead;

	if (!session)
		return deadline;
	lead = lead_of(session, tctx->held_since, tctx->pinned_cpu, tctx->cpu_set);
	if (!lead)
		return deadline;
	first = clock_now() - lead;
	return vtime_before(first, deadline) ? first : deadline;
}

static u64 current_deadline(struct task_ctx *tctx)
{
	return entitled_deadline(tctx, deadline_of(tctx->vtime, burst_of(tctx), slice_ns,
						   vtime_of(tctx, slice_ns)));
}

/*
 * Was @p preempted inside an RCU read-side section? Until it gets out of that, memory that the
 * kernel wants to free is kept, and after 21 s it complains, and ends the scheduler for it.
 */
static bool holds_rcu(struct task_struct *p)
{
	return works(MECHANISM_RCU) && bpf_core_field_exists(p->rcu_read_unlock_special) &&
	       p->rcu_read_unlock_special.b.blocked;
}

/*
 * Others may wait for what weighs little, which would wait for many seconds behind a crowd by its weight alone:
 * for kernel threads, and for what the agent does at idle priority. That holds its files open, as all its threads
 * do: if it is killed, the scheduler stays until the last of them has ended, and for that each has to run once more.
 */
static u64 waited_for_deadline(struct task_struct *p, struct task_ctx *tctx, u64 now, u64 deadline)
{
	u64 latest = now;

	if (p->flags & PF_KTHREAD)
		latest += MAX_KTHREAD_WAIT_NS;
	else if (p->tgid == agent_tgid && !tctx->is_agent)
		latest += MAX_AGENT_WAIT_NS;
	else
		return deadline;
	return vtime_before(latest, deadline) ? latest : deadline;
}

/* @p is about to be queued: no earlier and no later than is fair, unless others wait for it. */
static u64 next_deadline(struct task_struct *p, struct task_ctx *tctx)
{
	u64 period = vtime_of(tctx, slice_ns), now = clock_now(), deadline;

	tctx->vtime = place_vtime(tctx->vtime, now, period);
	deadline = entitled_deadline(tctx, deadline_of(tctx->vtime, burst_of(tctx), slice_ns, period));
	deadline = waited_for_deadline(p, tctx, now, deadline);
	if (!holds_rcu(p)) {
		tctx->rcu_since = 0;
		return deadline;
	}
	if (!tctx->rcu_since)
		tctx->rcu_since = now;
	return rcu_deadline(deadline, now, tctx->rcu_since);
}

/* May others preempt @p, which runs on @cpu? Races cost a preemption. */
static void note_runner(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	struct domain_ctx *dctx;

	cctx->share = tctx->share;
	cctx->slot = tctx->slot;
	if (cctx->taken)
		set_taken(cpu, false);
	cctx->preemptible = !is_latency_sensitive(tctx) && !tctx->is_agent &&
			    !((p->flags & PF_KTHREAD) && tctx->pinned_cpu != NO_CPU);
	if (cctx->preemptible && (dctx = domain_ctx_of(tctx->domain)))
		dctx->computed_at = scx_bpf_now();
}

static void forget_runner(s32 cpu)
{
	cpu_ctx_of(cpu)->preemptible = false;
}

static void note_put_aside(struct cpu_ctx *cctx, struct task_ctx *by, u64 now)
{
	cctx->preempted_at = now;
	cctx->soon_free = !by || by->burst_ns < MOVE_NS;
}

/* The task that computes on @cpu, if any does, makes room for what may not wait. */
static void put_aside(s32 cpu, struct task_ctx *by)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	if (cctx->preemptible) {
		cctx->preemptible = false;
		note_put_aside(cctx, by, scx_bpf_now());
	}
}

/*
 * Take over @cpu from what runs there, if a burst of @tctx costs less virtual time than a slice
 * of that, and none did within @interval_ns. Then no other task can, for now.
 */
static bool claim_runner(s32 cpu, struct task_ctx *tctx, u64 interval_ns)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	u64 now;

	if (!cctx->preemptible || tctx->burst_ns * cctx->share >= slice_ns * tctx->share)
		return false;
	now = scx_bpf_now();
	if (vtime_before(now, cctx->preempted_at + interval_ns) ||
	    !__sync_val_compare_and_swap(&cctx->preemptible, true, false))
		return false;
	note_put_aside(cctx, tctx, now);
	return true;
}

/* Does the agent want what runs on @cpu on another core type, where that may run? */
static bool has_guest(s32 cpu)
{
	struct task_slot *s = slot_of(cpu_ctx_of(cpu)->slot);

	return s && s->hint < nr_types && s->hint != type_of_cpu(cpu) &&
	       s->allowed_types >> (s->hint & 7) & 1;
}

/*
 * Does @p, which wakes up, take its last CPU back from a guest? An idle CPU outranks a hint, so what the
 * agent wants elsewhere goes on where threads wait for each other for a moment; left there it would keep
 * the place, and progress would not be even whatever is decided. It costs throughput, so that policies
 * that are for that do without.
 */
static bool takes_back(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	u32 type = type_of_cpu(cpu);

	return hosts_first && cctx->preemptible && works(MECHANISM_TAKE_BACK) && has_guest(cpu) &&
	       wished_type(tctx) == type && !has_idle(type) && may_use_cpu(p, cpu) &&
	       !is_parked_for(p, cpu) &&
	       __sync_val_compare_and_swap(&cctx->preemptible, true, false);
}

/* The CPU that @p, brief, takes over from a task that computes; < 0 if it is to queue. */
static s32 claim_cpu_of_other(struct task_struct *p, struct task_ctx *tctx, s32 prev_cpu)
{
	u32 hint = wished_type(tctx), domain = domain_of_cpu(prev_cpu), i;
	u64 interval_ns = tctx->pinned_cpu != NO_CPU ? PINNED_INTERVAL_NS : PREEMPT_INTERVAL_NS;
	u64 ran = tctx->run_ns - tctx->woke_at_ns;
	struct bpf_cpumask *cpus;
	struct domain_ctx *dctx;
	struct mask_ctx *masks;

	/* A preempted task is owed what it was owed when it woke up: that it ran is paid for. */
	if (!works(MECHANISM_PREEMPT) || !is_latency_sensitive(tctx) ||
	    vtime_before(clock_now(), tctx->vtime - (ran ? vtime_of(tctx, ran) : 0)))
		return -ENOENT;
	if (hint != NO_TYPE && type_of_domain(domain) != hint)
		domain = lightest_domain_for(p, hint);
	else if (may_use_cpu(p, prev_cpu) && claim_runner(prev_cpu, tctx, interval_ns))
		return prev_cpu;
	dctx = domain_ctx_of(domain);
	/* Each CPU's clock is its own: that of another may be ahead. */
	if (tctx->pinned_cpu != NO_CPU || !dctx ||
	    vtime_before(dctx->computed_at + COMPUTED_NS, scx_bpf_now()))
		return -ENOENT;
	masks = bpf_map_lookup_elem(&domain_masks, &domain);
	cpus = masks ? masks->cpus : NULL;
	if (!cpus)
		return -ENOENT;
	bpf_for(i, 0, MAX_VICTIMS) {
		u32 cpu = bpf_cpumask_any_and_distribute(cast_mask(cpus), p->cpus_ptr);

		if (cpu >= nr_cpu_ids)
			break;
		if (claim_runner(cpu, tctx, PREEMPT_INTERVAL_NS))
			return cpu;
	}
	return -ENOENT;
}

/*
 * Does what runs on @cpu, which was taken for one that is soon done, keep waiting what it put aside,
 * in a queue from which nothing is stolen? The agent has an allowance.
 */
static bool overstays(struct task_ctx *tctx, s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	if (!cctx->soon_free || cctx->preemptible || tctx->is_agent ||
	    tctx->run_ns - tctx->woke_at_ns < PREEMPT_INTERVAL_NS)
		return false;
	cctx->soon_free = false;
	return scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0;
}

/*
 * Has something just put @p aside on @cpu that will soon be done, and no other waits? Elsewhere,
 * on a CPU that idles for as short a time, @p would be without its data, and keep a task that comes
 * back there from going on; and what it holds of its CPU's others would wait for.
 */
static bool may_wait_here(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 enq_flags)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	u32 hint = hint_of(tctx);

	return works(MECHANISM_STAY) && !(enq_flags & (SCX_ENQ_WAKEUP | SCX_ENQ_LAST | SCX_ENQ_REENQ)) &&
	       !cctx->preemptible && cctx->soon_free && nobody_waits_for(cpu) &&
	       vtime_before(scx_bpf_now(), cctx->preempted_at + PREEMPT_INTERVAL_NS) &&
	       (hint == NO_TYPE || hint == type_of_cpu(cpu)) && may_use_cpu(p, cpu);
}

/*
 * @p, brief, is woken by a task, brief, too, that says that it is about to sleep: then @p stays
 * near, where its data are. On an idle CPU that ranks no lower than the waker's (its last one if
 * that shares the waker's cache, or another that does), or else behind the waker (@behind), if
 * nothing waits there. < 0: no reason to.
 */
static s32 cpu_near_waker(struct task_struct *p, struct task_ctx *tctx, s32 prev_cpu,
			  u64 wake_flags, bool *behind)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	s32 cpu = bpf_get_smp_processor_id(), near, idle;
	u32 order, hint;
	struct task_ctx *wctx;

	/* The waker may be a real-time task: what would wait behind it is not sent on any more. */
	if (!(wake_flags & SCX_WAKE_SYNC) || !works(MECHANISM_SYNC) || is_taken(cpu) ||
	    !is_latency_sensitive(tctx) || (waker->flags & PF_EXITING) ||
	    !may_use_cpu(p, cpu) || is_parked_for(p, cpu))
		return -ENOENT;
	hint = hint_of(tctx);
	wctx = task_ctx_of(waker);
	if ((hint != NO_TYPE && hint != type_of_cpu(cpu)) || !wctx ||
	    !is_latency_sensitive(wctx))
		return -ENOENT;
	order = order_of(tctx);
	near = domain_of_cpu(prev_cpu) == domain_of_cpu(cpu) ? prev_cpu : cpu;
	idle = claim_idle_before(p, tctx, near, order, rank_of(order, cpu) + 1);
	*behind = idle < 0;
	if (idle >= 0)
		return idle;
	if (!nobody_waits_for(cpu) || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu))
		return -ENOENT;
	return cpu;
}

#endif /* __HETERO_TURN_BPF_H */
