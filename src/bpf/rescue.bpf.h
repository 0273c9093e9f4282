/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * No CPU may sleep while a task waits that it may run: which idle CPU is woken for a task that was
 * queued, and what a CPU that goes idle looks at.
 */
#ifndef __HETERO_RESCUE_BPF_H
#define __HETERO_RESCUE_BPF_H

#include "idle.bpf.h"

struct rescue_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct rescue_timer);
} rescue_timers SEC(".maps");

/* So many tasks are looked at, in a queue, for one that a CPU may take. */
#define MAX_LOOKED_AT	32

/* May @cpu take one of those that wait in @dsq? Perhaps, if more wait than are looked at. */
static bool may_take_from(u64 dsq, s32 cpu)
{
	struct task_struct *p;
	u32 seen = 0;

	if (!can_iterate())
		return true;
	bpf_for_each(scx_dsq, p, dsq, 0) {
		if (may_use_cpu(p, cpu) || ++seen >= MAX_LOOKED_AT)
			return true;
		/* Hidden from the verifier, which would follow every count apart. */
		__sink(seen);
	}
	return false;
}

/* Does anything wait that @cpu may take? */
static bool work_waits_for(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	bool found = false;
	u32 i;

	/* An addition of nothing is a full barrier, see struct domain_ctx. */
	if (__sync_fetch_and_add(&cctx->nr_waiting, 0) || cctx->moved_in)
		return true;
	if (is_parked(cpu))
		return false;
	/* Held as the timer that ends that went by. */
	if (cctx->holds)
		return true;
	if (!somebody_waits_beside(NO_DOMAIN))
		return false;
	/* What joins a queue after this look finds the CPU idle: it was marked so before. */
	bpf_for(i, 0, nr_domains) {
		struct domain_ctx *dctx = domain_ctx_of(i);

		found = dctx && (dctx->nr_waiting || dctx->moved_in) && may_take_from(i, cpu);
		if (found)
			break;
	}
	return found;
}

/* The best idle CPU that @p may use, by our own masks; < 0 if there is none. Claims nothing. */
__noinline s32 noted_idle_for(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tctx = task_ctx_of(p);

	return noted_idle_before(p, tctx ? order_of(tctx) : NO_TYPE, MAX_TIERS);
}

/*
 * Claim the best idle CPU that @p may use, or any. The counts of idle CPUs may be behind, so the
 * kernel itself is asked; and our own masks, for a CPU that was claimed and not used looks busy to
 * the kernel until it next wakes up, and must not be missed.
 */
__noinline s32 any_idle_for(struct task_struct *p __arg_trusted)
{
	s32 cpu;

	/* A timer calls this, too. */
	bpf_rcu_read_lock();
	if (p->nr_cpus_allowed == 1) {
		cpu = claim_only(p, bpf_cpumask_first(p->cpus_ptr));
	} else {
		cpu = noted_idle_for(p);
		if (cpu < 0 || !scx_bpf_test_and_clear_cpu_idle(cpu))
			cpu = pick_idle(p, p->cpus_ptr, 0);
	}
	if (cpu < 0) {
		cpu = noted_idle_for(p);
		if (cpu >= 0) {
			/* Others are to find the next one. */
			note_in(idle_cpus, cpu, false);
			/* Noted by what found it idle, and taken by another class since. */
			if (is_taken(cpu))
				cpu = -ENOENT;
		}
	}
	bpf_rcu_read_unlock();
	return cpu;
}

/* Move what waits in @dsq to idle CPUs. Runs in a timer, without any lock. */
static void rescue_queue(u64 dsq)
{
	struct task_struct *p;

	if (!can_iterate()) {
		scx_bpf_dsq_reenq(dsq, 0);
		return;
	}
	bpf_for_each(scx_dsq, p, dsq, 0) {
		s32 cpu = any_idle_for(p);

		if (cpu < 0)
			continue;
		/* Before it wakes up and says so itself, the next task must not find it. */
		note_idle(cpu, false);
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, slice_ns);
		if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0))
			count_stat(STAT_RESCUED);
		else
			note_idle(cpu, true);
	}
}

static int rescue(void *map, int *key, struct rescue_timer *timer)
{
	u32 i;

	/* Up to 6.17 the verifier does not take a timer for a read-side section. */
	bpf_rcu_read_lock();
	rescue_queue(CPU_DSQ(*key));
	bpf_for(i, 0, nr_domains) {
		struct domain_ctx *dctx = domain_ctx_of(i);

		if (dctx && somebody_waits(dctx, i))
			rescue_queue(i);
	}
	bpf_rcu_read_unlock();
	return 0;
}

static void arm_rescue(s32 cpu)
{
	struct rescue_timer *timer = bpf_map_lookup_elem(&rescue_timers, &cpu);

	if (timer)
		bpf_timer_start(&timer->timer, 1000, 0);
}

/* A task was just counted as waiting: wake an idle CPU that may take it. */
static void wake_idle_for(struct task_struct *p, s32 cpu)
{
	s32 idle;

	/*
	 * The timer claims for itself. Claimed here, a CPU would sleep on, and not be found
	 * again, if another CPU took the task meanwhile.
	 */
	if (!can_kick() && noted_idle_for(p) >= 0) {
		arm_rescue(cpu);
		return;
	}
	idle = any_idle_for(p);
	if (idle < 0)
		return;
	if (can_kick()) {
		scx_bpf_kick_cpu___optional(idle, 0);
	} else {
		/* Where it went idle while the kernel suspended, nothing has counted it. */
		count_idle(idle, true);
		note_idle(idle, true);
		arm_rescue(cpu);
	}
}

/*
 * @cpu was just marked idle: if something waits for it, look again. Global, so that the verifier
 * checks it once. Not for timers, which up to 6.17 it does not take for a read-side section.
 */
__noinline int recheck_idle(s32 cpu)
{
	if (!work_waits_for(cpu))
		return 0;
	if (can_kick())
		scx_bpf_kick_cpu___optional(cpu, 0);
	else
		arm_rescue(cpu);
	return 0;
}

/*
 * @cpu was woken in vain: another one took what it was kicked for. It goes from idle to idle, for
 * which the kernel does not call update_idle.
 */
static void stay_idle(s32 cpu)
{
	if (!cpu_ctx_of(cpu)->is_idle || is_noted_idle(cpu) || is_parked(cpu))
		return;
	note_idle(cpu, true);
	recheck_idle(cpu);
}

static void init_rescue(void)
{
	u32 i;

	bpf_for(i, 0, nr_cpu_ids) {
		struct rescue_timer *timer = bpf_map_lookup_elem(&rescue_timers, &i);

		if (!timer)
			continue;
		bpf_timer_init(&timer->timer, &rescue_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&timer->timer, rescue);
	}
}

#endif /* __HETERO_RESCUE_BPF_H */
