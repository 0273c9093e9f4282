/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_hetero, the BPF half: mechanism only. One queue per core type and cache
 * cluster, ordered by deadline, and one per CPU for the tasks that may use
 * no other. Where threads should run is decided by the agent, which leaves a
 * hint per task; a hint is advice, and an idle CPU outranks it.
 */
#include <scx/common.bpf.h>

/* clang 18 cannot compile these for BPF. There is ctzll(). */
#pragma GCC poison __builtin_ctz __builtin_ctzll __builtin_clz __builtin_clzll __builtin_ffs __builtin_ffsll

#include "intf.h"
#include "arith.h"
#include "state.bpf.h"
#include "process.bpf.h"
#include "idle.bpf.h"
#include "rescue.bpf.h"
#include "cgroup.bpf.h"
#include "spin.bpf.h"
#include "account.bpf.h"
#include "cpuperf.bpf.h"
#include "turn.bpf.h"
#include "queues.bpf.h"
#include "bell.bpf.h"
#include "counters.bpf.h"
#include "actions.bpf.h"
#include "place.bpf.h"
#include "used_up.bpf.h"
#include "compete.bpf.h"
#include "lifetime.bpf.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

s32 BPF_STRUCT_OPS(hetero_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *tctx = task_ctx_of(p);
	bool behind = false;
	s32 cpu;

	if (!tctx)
		return prev_cpu;
	/* Before it preempts a task, which is then charged as one that shares with it. */
	compete(tctx, prev_cpu);
	if (waits_until(p, tctx))
		return prev_cpu;
	cpu = cpu_near_waker(p, tctx, prev_cpu, wake_flags, &behind);
	if (cpu < 0 && takes_back(p, tctx, prev_cpu)) {
		count_stat(STAT_PREEMPTED);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, SCX_ENQ_PREEMPT);
		return prev_cpu;
	}
	if (cpu < 0)
		cpu = claim_idle(p, tctx, prev_cpu);
	if (cpu >= 0) {
		count_stat(behind ? STAT_SYNC : STAT_DIRECT);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
		return cpu;
	}
	cpu = claim_cpu_of_other(p, tctx, prev_cpu);
	if (cpu < 0)
		return prev_cpu;
	count_stat(STAT_PREEMPTED);
	/* No longer than it is brief: the preempted task may wait here. */
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, brief_slice(cpu), SCX_ENQ_PREEMPT);
	return cpu;
}

void BPF_STRUCT_OPS(hetero_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *tctx = task_ctx_of(p);
	s32 cpu = scx_bpf_task_cpu(p), claimed, target, parked;
	u64 agents;
	u32 domain;

	/*
	 * Kernel threads that serve one CPU do short, urgent work for all tasks,
	 * and the agent must not wait for those it schedules. They go first when
	 * they wake up; one that uses up a slice queues like any task. Not on a CPU that a
	 * real-time task has just taken, which would hold them up; nor on one that has no other
	 * and that dispatch found a better place than, for it goes idle now and would not look.
	 */
	agents = tctx && !(enq_flags & (SCX_ENQ_REENQ | SCX_ENQ_LAST)) && !is_taken(cpu) ?
		 agent_slice(tctx) : 0;
	if (!tctx || agents || ((enq_flags & SCX_ENQ_WAKEUP) && (p->flags & PF_KTHREAD) &&
				is_pinned(tctx))) {
		if (!agents || (enq_flags & SCX_ENQ_WAKEUP)) {
			enq_flags |= SCX_ENQ_PREEMPT;
			put_aside(cpu, tctx);
		} else if (!must_stay(p, enq_flags)) {
			/* What preempted the agent is still to run here. */
			claimed = claim_idle_near(p, cpu);
			if (claimed >= 0) {
				tctx->claimed_cpu = claimed;
				insert_on(p, claimed, 0);
				return;
			}
		}
		if (agents)
			tctx->goes_first = true;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, agents ?: LATENCY_BURST_NS, enq_flags);
		return;
	}

	compete(tctx, cpu);
	/* Once it has been off its CPU, the kernel says that it may use no other. */
	if (!is_pinned(tctx) && must_stay(p, enq_flags)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}
	if (requeue(p, tctx, enq_flags))
		return;
	/* A task that was about to run on a CPU that a real-time task took is counted anew. */
	uncount_waiting(tctx);
	if (hold(p, tctx, cpu, enq_flags) || hold_used_up(p, tctx, enq_flags))
		return;
	/*
	 * A better idle CPU that dispatch claimed for it. Or one that was claimed here, from which a change
	 * of its affinity calls it back before it gets there: nothing else would look for that CPU. Not one
	 * that a real-time task has taken since.
	 */
	claimed = tctx->claimed_cpu;
	if (claimed != NO_CPU) {
		tctx->claimed_cpu = NO_CPU;
		if (!(enq_flags & SCX_ENQ_REENQ) && may_use_cpu(p, claimed)) {
			count_stat(STAT_UPGRADED);
			insert_on(p, claimed, 0);
			return;
		}
	}
	/* Its partner's CPU: at once, or another idle one's tick snatches the place. */
	target = take_swap_target(p, tctx, cpu);
	if (target != NO_CPU) {
		count_stat(STAT_SWAPPED);
		preempt_on(p, target);
		return;
	}

	if (may_wait_here(p, tctx, cpu, enq_flags)) {
		count_stat(STAT_DIRECT);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}

	/*
	 * Unless select_cpu has just looked in vain. A brief task that a kernel thread, the agent
	 * or one of another scheduling class puts aside is owed a CPU as much as one that wakes up.
	 */
	if (!__COMPAT_is_enq_cpu_selected(enq_flags)) {
		s32 other = claim_idle_near(p, cpu);

		if (other >= 0) {
			count_stat(STAT_DIRECT);
			tctx->claimed_cpu = other;
			insert_on(p, other, 0);
			return;
		}
		other = claim_cpu_of_other(p, tctx, cpu);
		if (other >= 0) {
			count_stat(STAT_PREEMPTED);
			preempt_on(p, other);
			return;
		}
	}

	/*
	 * No need for a queue if it has no choice, and no task is before it. And a parked CPU takes
	 * nothing from a queue, which may have no other. Not on a CPU that goes idle now: what dispatch
	 * took it from there for may be over.
	 */
	if (!(enq_flags & SCX_ENQ_LAST) &&
	    (is_pinned(tctx) ? is_latency_sensitive(tctx) && nobody_waits_for(cpu) :
			       is_parked(cpu) && !is_taken(cpu) && may_run_where_parked(p))) {
		count_stat(STAT_DIRECT);
		/* It is next here, and until then the agent would take it for asleep. */
		set_state(tctx, TASK_QUEUED);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags);
		return;
	}
	count_stat(STAT_QUEUED);
	if (is_pinned(tctx)) {
		count_waiting(tctx);
		scx_bpf_dsq_insert_vtime(p, CPU_DSQ(tctx->pinned_cpu), slice_ns,
					 next_deadline(p, tctx), enq_flags);
	} else {
		domain = choose_domain(p, tctx);
		/* Its queue must have a CPU for it, or it waits until one steals it. */
		if (!may_use_domain(p, domain))
			domain = domain_of_cpu(first_cpu_of(p));
		if (domain >= MAX_DOMAINS) {
			scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
			return;
		}
		parked = parked_cpu_for(p, domain);
		if (parked >= 0) {
			count_stat(STAT_DIRECT);
			insert_on(p, parked, 0);
			return;
		}
		change_domain(tctx, domain);
		count_waiting(tctx);
		scx_bpf_dsq_insert_vtime(p, domain, slice_ns, next_deadline(p, tctx), enq_flags);
	}
	wake_idle_for(p, cpu);
}

void BPF_STRUCT_OPS(hetero_dispatch, s32 cpu, struct task_struct *prev)
{
	bool prev_waits = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	bool have_own, own_waiting, have_shared, shared_waits, others, may_stay = false, parked = is_parked(cpu);
	u64 own_deadline = 0, shared_deadline = 0, best;
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	u32 domain = domain_of_cpu(cpu);
	struct domain_ctx *dctx = domain_ctx_of(domain);
	struct task_ctx *tctx = NULL;

	if (!dctx) {
		serve_unknown(cpu, prev_waits ? prev : NULL);
		return;
	}
	if (take_held(cctx, cpu))
		return;
	if (prev_waits) {
		tctx = task_ctx_of(prev);
		may_stay = tctx && (!parked || must_not_wait(prev, tctx)) &&
			   !waits_until(prev, tctx) && !take_other_place(prev, tctx, cpu);
	}

	/* Which task is first matters only beside another queue, or prev. */
	own_waiting = have_own = own_waits(cctx, cpu);
	shared_waits = have_shared = !parked && somebody_waits(dctx, domain);
	if (may_stay || (have_own && have_shared)) {
		have_own = have_own && first_deadline(CPU_DSQ(cpu), cpu, &own_deadline);
		have_shared = have_shared && first_deadline(domain, cpu, &shared_deadline);
	}
	have_own = have_own && (!have_shared || vtime_before(own_deadline, shared_deadline));
	best = have_own ? own_deadline : shared_deadline;

	/* Between slices no task is ahead of prev: let it run on. */
	if (may_stay && (have_own || have_shared)) {
		u32 hint = hint_of(tctx);

		if ((hint == NO_TYPE || hint == type_of_cpu(cpu)) &&
		    vtime_before(current_deadline(tctx), best)) {
			count_stat(STAT_KEPT);
			scx_bpf_task_set_slice(prev, slice_ns);
			return;
		}
	}
	if (have_own && scx_bpf_dsq_move_to_local(CPU_DSQ(cpu), 0))
		return;
	/* What waits where others have all CPUs is served from here, beside what waits here. */
	if (nr_lost_domains && !parked && rotate(domain))
		return;
	if (shared_waits && scx_bpf_dsq_move_to_local(domain, 0))
		return;
	if (own_waiting && scx_bpf_dsq_move_to_local(CPU_DSQ(cpu), 0))
		return;
	others = !parked && somebody_waits_beside(domain);
	if (others && rotate(domain))
		return;
	if (may_stay) {
		count_stat(STAT_KEPT);
		scx_bpf_task_set_slice(prev, slice_ns);
		return;
	}
	if (parked) {
		take_urgent(domain, cpu);
		return;
	}
	if (others && steal(domain))
		return;
	/* Should the count of those waiting be behind, the queue itself tells: asked now and then. */
	if (!(cctx->nr_empty++ % 16) && scx_bpf_dsq_move_to_local(domain, 0))
		return;
	stay_idle(cpu);
}

void BPF_STRUCT_OPS(hetero_running, struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_slot *s;
	bool moved;

	if (!tctx)
		return;
	compete(tctx, cpu);
	uncount_waiting(tctx);
	change_domain(tctx, domain_of_cpu(cpu));
	/*
	 * For the stretch that begins. At its end would be wrong: one that is preempted by
	 * a waking task of its cgroup has not shared with that until then.
	 */
	if (tctx->cgroup)
		refresh_share(tctx);
	tctx->exec_seen = p->se.sum_exec_runtime;
	if (!can_kick())
		tctx->charged_at = bpf_ktime_get_ns();
	tctx->claimed_cpu = NO_CPU;
	tctx->upgrade = false;
	tctx->held_since = 0;
	s = slot_of(tctx->slot);
	if (s) {
		slot_write_begin(s);
		moved = s->cpu != cpu;
		s->state = TASK_IS_RUNNING;
		s->cpu = cpu;
		s->core_type = type_of_cpu(cpu);
		/*
		 * On the type where it was to go, whichever way it came: the swap is done. One that was only
		 * preempted before it went on has still to trade CPUs within its type.
		 */
		if (s->target_cpu != NO_CPU &&
		    (type_of_cpu(s->target_cpu) == s->core_type ? moved : s->core_type == s->hint))
			s->target_cpu = NO_CPU;
		slot_write_end(s);
		if (s->rule_weight != tctx->rule_weight)
			follow_rule(p);
	}
	note_runner(p, tctx, cpu);
	start_counting(p, tctx, cpu);
}

void BPF_STRUCT_OPS(hetero_tick, struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx_of(p);
	s32 cpu = scx_bpf_task_cpu(p), target;
	struct domain_ctx *dctx;
	struct task_slot *s;
	u64 run_ns;
	u32 hint;

	if (!tctx)
		return;
	run_ns = charge(p, tctx, cpu);
	update_perf(cpu, false);
	set_clock(tctx, run_ns);
	note_runner(p, tctx, cpu);
	if (tctx->cgroup)
		refresh_share(tctx);
	if (tctx->cgroup || share_to_weight != ENTITLEMENT_ONE)
		refresh_entitlement();
	tick_counting(p, tctx, cpu);
	s = slot_of(tctx->slot);
	if (s)
		refresh_name(p, s);
	watch_agent();
	wake_agent(tctx);
	count_idle(cpu, false);
	/*
	 * Another thread of the agent has used up what was left. Or something was on its way here as
	 * this one woke up: it has no other chance, and the agent does on an idle CPU.
	 */
	if (tctx->goes_first &&
	    (!agent_slice(tctx) || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0)) {
		tctx->goes_first = false;
		scx_bpf_task_set_slice(p, 0);
		return;
	}
	if (overstays(tctx, cpu) || waits_until(p, tctx)) {
		scx_bpf_task_set_slice(p, 0);
		return;
	}
	if (is_pinned(tctx))
		return;
	if (agent_stalled)
		share_fastest(tctx->slot, cpu);

	if (is_parked_for(p, cpu)) {
		scx_bpf_task_set_slice(p, 0);
		return;
	}
	target = swap_target(p, tctx, cpu);
	if (target == NO_CPU)
		tctx->swap_ticks = 0;
	else if (tctx->swap_ticks <= FASTER_FIRST_TICKS)
		tctx->swap_ticks++;
	else if (type_of_cpu(target) == type_of_cpu(cpu))
		forget_swap(tctx);
	if (begins_swap(tctx, cpu, target)) {
		scx_bpf_task_set_slice(p, 0);
		return;
	}
	if (better_idle_exists(p, cpu)) {
		tctx->upgrade = true;
		scx_bpf_task_set_slice(p, 0);
		return;
	}
	/* On a type that the agent wants for others, and others wait: make room. */
	hint = hint_of(tctx);
	dctx = domain_ctx_of(tctx->domain);
	if (hint != NO_TYPE && hint != type_of_cpu(cpu) && dctx &&
	    (dctx->nr_waiting || dctx->moved_in))
		scx_bpf_task_set_slice(p, 0);
}

void BPF_STRUCT_OPS(hetero_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *tctx = task_ctx_of(p);
	s32 cpu = scx_bpf_task_cpu(p);

	if (!tctx)
		return;
	charge(p, tctx, cpu);
	stop_counting(p, tctx, cpu);
	/*
	 * A change of its nice, affinity, cgroup or class ends its run, too, and at once begins the next:
	 * it has not slept, and where it leaves the class ops.disable follows.
	 */
	if (!runnable && p->__state) {
		note_burst(tctx);
		retire(tctx);
		if (p->__state & TASK_DEAD)
			end_task(p, tctx);
		/* Else something follows: ticks come on all CPUs at once, and all would switch. */
		forget_runner(cpu);
	}
}

void BPF_STRUCT_OPS(hetero_update_idle, s32 cpu, bool idle)
{
	set_taken(cpu, !idle);
	/* It has just come online; the agent is about to start anew. */
	if (domain_of_cpu(cpu) >= MAX_DOMAINS) {
		if (idle)
			recheck_idle(cpu);
		return;
	}
	count_idle(cpu, idle);
	/*
	 * What ran before may have been sent elsewhere. From idle to a real-time task nothing else
	 * is called.
	 */
	forget_runner(cpu);
	if (idle)
		update_perf(cpu, true);
	else
		leave_idle_perf(cpu);
	/* A parked CPU is not to be found. */
	note_idle(cpu, idle && !is_parked(cpu));
	if (idle)
		recheck_idle(cpu);
}

/*
 * A real-time or deadline task takes @cpu, for an unknown time: what ran or waits there
 * may go elsewhere. Stop tasks are soon done.
 */
void BPF_STRUCT_OPS(hetero_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	/* Should that be before its first tick, the kernel would still offer it, see count_idle(). */
	count_idle(cpu, false);
	forget_runner(cpu);
	if (!works(MECHANISM_RELEASE) || args->reason == SCX_CPU_PREEMPT_STOP)
		return;
	set_taken(cpu, true);
	scx_bpf_reenqueue_local();
}

s32 BPF_STRUCT_OPS_SLEEPABLE(hetero_init)
{
	s32 err = init_masks();
	u32 i;

	if (err) {
		scx_bpf_error("cannot set up CPU masks: %d", err);
		return err;
	}
	bpf_for(i, 0, nr_domains) {
		if ((err = scx_bpf_create_dsq(i, -1))) {
			scx_bpf_error("cannot create the queue of domain %u: %d", i, err);
			return err;
		}
	}
	init_rescue();
	if ((err = init_used_up())) {
		scx_bpf_error("cannot create the queue of used-up allotments: %d", err);
		return err;
	}
	init_cpuperf();
	if ((err = init_parking())) {
		scx_bpf_error("cannot set up parking: %d", err);
		return err;
	}
	bpf_for(i, 0, nr_cpu_ids) {
		if ((err = scx_bpf_create_dsq(CPU_DSQ(i), -1))) {
			scx_bpf_error("cannot create the queue of CPU %u: %d", i, err);
			return err;
		}
	}
	return 0;
}

void BPF_STRUCT_OPS(hetero_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
	ring_bell();
}

SCX_OPS_DEFINE(hetero_ops,
	       .select_cpu	= (void *)hetero_select_cpu,
	       .enqueue		= (void *)hetero_enqueue,
	       .dispatch	= (void *)hetero_dispatch,
	       .running		= (void *)hetero_running,
	       .tick		= (void *)hetero_tick,
	       .stopping	= (void *)hetero_stopping,
	       .update_idle	= (void *)hetero_update_idle,
	       .cpu_release	= (void *)hetero_cpu_release,
	       .set_weight	= (void *)hetero_set_weight,
	       .set_cpumask	= (void *)hetero_set_cpumask,
	       .cgroup_init	= (void *)hetero_cgroup_init,
	       .cgroup_exit	= (void *)hetero_cgroup_exit,
	       .cgroup_move	= (void *)hetero_cgroup_move,
	       .cgroup_set_weight = (void *)hetero_cgroup_set_weight,
	       .cgroup_set_bandwidth = (void *)hetero_cgroup_set_bandwidth,
	       .enable		= (void *)hetero_enable,
	       .disable		= (void *)hetero_disable,
	       .init_task	= (void *)hetero_init_task,
	       .exit_task	= (void *)hetero_exit_task,
	       .init		= (void *)hetero_init,
	       .exit		= (void *)hetero_exit,
	       /*
		* Tasks that end come to enqueue, too: left on its CPU by the kernel instead, one that
		* dispatch found a better place for would wait there for the next interrupt.
		*/
	       .flags		= SCX_OPS_ENQ_LAST | SCX_OPS_KEEP_BUILTIN_IDLE |
				  SCX_OPS_ENQ_MIGRATION_DISABLED | SCX_OPS_ENQ_EXITING,
	       .name		= "hetero");
