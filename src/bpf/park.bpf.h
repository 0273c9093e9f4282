/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parked CPUs: for at most MAX_PARK_NS a CPU runs nothing but what must not
 * wait, so that a thread elsewhere can be measured undisturbed (CAMPS 2018,
 * section 4.4). The task that it ran is held in a queue of its own, from which
 * no CPU steals: handed to another CPU, it would disturb from there. The
 * deadline lies here, where no agent that hangs can put it off.
 */
#ifndef __HETERO_PARK_BPF_H
#define __HETERO_PARK_BPF_H

#include "rescue.bpf.h"
#include "account.bpf.h"

#define MAX_PARK_NS	(100ULL * 1000 * 1000)

/* Tasks held on a CPU while it is parked. */
#define PARK_DSQ(cpu)	((u64)MAX_DOMAINS + MAX_CPUS + (cpu))

struct park_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct park_timer);
} park_timers SEC(".maps");

/* Hold @p, which has just been on @cpu or was moved there from any other, until that is no longer parked. */
static bool hold(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 enq_flags)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	if ((enq_flags & SCX_ENQ_WAKEUP) || !is_parked_for(p, cpu) ||
	    !may_use_cpu(p, cpu))
		return false;
	cctx->holds = true;
	set_state(tctx, TASK_QUEUED);
	count_stat(STAT_HELD);
	scx_bpf_dsq_insert(p, PARK_DSQ(cpu), slice_ns, enq_flags);
	return true;
}

/* Take back a task that was held on this CPU, which is not parked any more. */
static bool take_held(struct cpu_ctx *cctx, s32 cpu)
{
	if (!cctx->holds || is_parked(cpu))
		return false;
	if (scx_bpf_dsq_move_to_local(PARK_DSQ(cpu), 0))
		return true;
	cctx->holds = false;
	return false;
}

/*
 * The deadline of a parked CPU: what it held goes back to it, and it may be found idle again. If a
 * real-time task has it, what it held queues for others, too.
 */
static int unpark(void *map, int *key, struct park_timer *timer)
{
	struct cpu_ctx *cctx = cpu_ctx_of(*key);
	bool taken = is_taken(*key);
	/* Not that of where it ran before: it may use the CPU that held it, and perhaps none there. */
	u32 domain = taken ? domain_of_cpu(*key) : NO_DOMAIN;
	struct domain_ctx *here = domain_ctx_of(domain);
	struct task_struct *p;

	cctx->parked_until = 0;
	bpf_rcu_read_lock();
	if (can_iterate()) {
		bpf_for_each(scx_dsq, p, PARK_DSQ(*key), 0) {
			scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, slice_ns);
			if (!here) {
				scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | *key, 0);
				continue;
			}
			/*
			 * It has waited: its turn is now, whatever order its last queue had. Not counted, as in
			 * let_go(): another CPU may take it away meanwhile.
			 */
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, clock_now());
			if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, domain, 0))
				note_moved_in(here);
		}
		if (taken)
			arm_rescue(*key);
	} else {
		scx_bpf_dsq_reenq(PARK_DSQ(*key), 0);
	}
	if (cctx->is_idle) {
		/* Claimed and not used, it looks busy to the kernel until it wakes up. */
		note_idle(*key, true);
		if (can_kick())
			scx_bpf_kick_cpu___optional(*key, 0);
		else
			arm_rescue(*key);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* When the last CPU that was parked no longer is, at the latest; ns, monotonic. */
u64 all_unparked_at;

/*
 * A parked CPU of @domain for @p, which must not wait there in the queue: those CPUs take nothing
 * from it. < 0 if there is none, or @p is not such a task.
 */
static s32 parked_cpu_for(struct task_struct *p, u32 domain)
{
	struct mask_ctx *masks;
	struct bpf_cpumask *cpus;
	u32 cpu;

	if (bpf_ktime_get_ns() >= all_unparked_at || !may_run_where_parked(p))
		return -ENOENT;
	masks = bpf_map_lookup_elem(&domain_masks, &domain);
	cpus = masks ? masks->cpus : NULL;
	if (!cpus)
		return -ENOENT;
	cpu = bpf_cpumask_any_and_distribute(cast_mask(cpus), p->cpus_ptr);
	return cpu < nr_cpu_ids && is_parked(cpu) && !is_taken(cpu) ? (s32)cpu : -ENOENT;
}

/* What must not wait, and did so when @cpu was parked, out of the queue of its domain. */
static void take_urgent(u32 domain, s32 cpu)
{
	struct domain_ctx *dctx = domain_ctx_of(domain);
	struct task_struct *p;
	u32 seen = 0;

	if (!dctx || !somebody_waits(dctx, domain) || !can_iterate())
		return;
	bpf_for_each(scx_dsq, p, domain, 0) {
		if (may_run_where_parked(p) && may_use_cpu(p, cpu) &&
		    scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0))
			return;
		if (++seen >= MAX_LOOKED_AT)
			break;
		/* Hidden from the verifier, which would follow every count apart. */
		__sink(seen);
	}
}

/* Park @cpu for @ns from now on, whether it is parked already or not; for 0: no longer. */
static u32 park(s32 cpu, u64 ns)
{
	struct park_timer *timer = bpf_map_lookup_elem(&park_timers, &cpu);
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	if (!works(MECHANISM_PARK) || !timer || domain_of_cpu(cpu) >= MAX_DOMAINS)
		return ACTION_INVALID;
	if (ns > MAX_PARK_NS)
		ns = MAX_PARK_NS;
	cctx->parked_until = bpf_ktime_get_ns() + ns;
	if (all_unparked_at < cctx->parked_until)
		all_unparked_at = cctx->parked_until;
	if (bpf_timer_start(&timer->timer, ns, 0)) {
		cctx->parked_until = 0;
		return ACTION_INVALID;
	}
	if (cctx->is_idle)
		note_idle(cpu, false);
	count_stat(STAT_PARKED);
	return ACTION_APPLIED;
}

static s32 init_parking(void)
{
	s32 err;
	u32 i;

	bpf_for(i, 0, nr_cpu_ids) {
		struct park_timer *timer = bpf_map_lookup_elem(&park_timers, &i);

		if (!timer)
			return -ENOENT;
		bpf_timer_init(&timer->timer, &park_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&timer->timer, unpark);
		if ((err = scx_bpf_create_dsq(PARK_DSQ(i), -1)))
			return err;
	}
	return 0;
}

#endif /* __HETERO_PARK_BPF_H */
