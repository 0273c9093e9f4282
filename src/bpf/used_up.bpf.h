/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads whose session has used up its allotment wait in a queue of their own until the clock has come
 * so far, even beside idle CPUs: a goal is to be met, not surpassed, and what it does not need is for
 * others or for sleep (Sironi et al., section III). For MAX_HELD_NS at most, and not while the agent is
 * silent. A timer of the CPU that put them there lets them go.
 *
 * They stay while others of their session still run and spend. Let go with the allotment used up, a thread
 * would queue by its vtime, far behind the crowd's, and not come first when some is left again: all of an
 * encoder may wait for one such thread.
 */
#ifndef __HETERO_USED_UP_BPF_H
#define __HETERO_USED_UP_BPF_H

#include "place.bpf.h"
#include "turn.bpf.h"

/* By when they may go on, ns. */
#define USED_UP_DSQ	((u64)MAX_DOMAINS + 2 * MAX_CPUS)

struct used_up_timer {
	struct bpf_timer timer;
	u64 due;	/* 0: it does not run */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct used_up_timer);
} used_up_timers SEC(".maps");

/*
 * Until when must @p wait for its session's allotment, ns? 0: it need not. Not what other tasks
 * wait for in the kernel.
 */
static u64 waits_until(struct task_struct *p, struct task_ctx *tctx)
{
	u32 session = session_of(tctx);

	if (!session || tctx->is_agent ||
	    (p->flags & (PF_KTHREAD | PF_EXITING)) || holds_rcu(p))
		return 0;
	return used_up_until(session, tctx->held_since);
}

/* A timer that is due by then may have fired already. */
#define FIRES_NS		(100ULL * 1000)

/* Lets this CPU's timer run @until, or sooner if it does so already. */
static bool arm_used_up(u32 cpu, u64 until)
{
	struct used_up_timer *timer = bpf_map_lookup_elem(&used_up_timers, &cpu);
	u64 now = scx_bpf_now();

	if (!timer)
		return false;
	if (timer->due && !vtime_before(until, timer->due)) {
		if (vtime_before(now + FIRES_NS, timer->due))
			return true;
		/* It may fire just now, on whichever CPU, and not see what is put there: it does so once more. */
		until = now + FIRES_NS;
	}
	if (bpf_timer_start(&timer->timer, vtime_before(now, until) ? until - now : 1000, 0))
		return false;
	timer->due = until;
	return true;
}

/* Hold @p, about to be queued, if it must wait. Not if a CPU was claimed for it, which sleeps. */
static bool hold_used_up(struct task_struct *p, struct task_ctx *tctx, u64 enq_flags)
{
	u64 until;

	if (tctx->claimed_cpu != NO_CPU)
		return false;
	until = waits_until(p, tctx);
	if (!until || !arm_used_up(bpf_get_smp_processor_id(), until))
		return false;
	if (!tctx->held_since)
		tctx->held_since = scx_bpf_now();
	set_state(tctx, TASK_QUEUED);
	count_stat(STAT_USED_UP);
	scx_bpf_dsq_insert_vtime(p, USED_UP_DSQ, slice_ns, until, enq_flags);
	return true;
}

/* The queue in which @p, which may go on, waits for a CPU; NO_DOMAIN if none serves it. */
__noinline u32 domain_after(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tctx = task_ctx_of(p);
	u32 hint, domain;

	if (!tctx)
		return NO_DOMAIN;
	hint = wished_type(tctx);
	domain = tctx->domain;
	if (tctx->pinned_cpu != NO_CPU)
		return domain_of_cpu(tctx->pinned_cpu);
	if (hint != NO_TYPE && hint != type_of_domain(domain))
		domain = lightest_domain_for(p, hint);
	return may_use_domain(p, domain) ? domain : domain_of_cpu(first_cpu_of(p));
}

static u64 sooner(u64 at, u64 other)
{
	return !at || vtime_before(other, at) ? other : at;
}

/* What others have spent while a task was held does not hold it for longer if it is no more than this. */
#define LET_GO_DEBT_NS		(5ULL * 1000 * 1000)

/* Until when must @p, which is held, go on waiting, ns; 0: no longer. */
__noinline u64 held_on(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tctx = task_ctx_of(p);
	u64 until = tctx ? waits_until(p, tctx) : 0;

	return until && vtime_before(scx_bpf_now() + LET_GO_DEBT_NS, until) ? until : 0;
}

/*
 * Those that are held are looked through so often, by whichever CPU's timer, and so many of them at a time:
 * any user may have thousands held.
 */
#define LET_GO_NS		(1000ULL * 1000)
#define MOST_LOOKED_THROUGH	512

static u64 looked_through_at;

static int let_go(void *map, int *key, struct used_up_timer *timer)
{
	u64 now = scx_bpf_now(), next = 0, last = looked_through_at;
	struct task_struct *p;
	u32 seen = 0;

	timer->due = 0;
	if (vtime_before(now, last + LET_GO_NS) ||
	    __sync_val_compare_and_swap(&looked_through_at, last, now) != last) {
		arm_used_up(*key, now + LET_GO_NS);
		return 0;
	}
	/* Up to 6.17 the verifier does not take a timer for a read-side section. */
	bpf_rcu_read_lock();
	if (!can_iterate()) {
		/* Each comes to enqueue, which holds it again if need be. */
		if (scx_bpf_dsq_nr_queued(USED_UP_DSQ) > 0)
			scx_bpf_dsq_reenq(USED_UP_DSQ, 0);
		bpf_rcu_read_unlock();
		return 0;
	}
	bpf_for_each(scx_dsq, p, USED_UP_DSQ, 0) {
		struct task_ctx *tctx = task_ctx_of(p);
		struct domain_ctx *there;
		u32 domain;
		u64 until;
		s32 own;

		if (vtime_before(now, p->scx.dsq_vtime)) {
			next = sooner(next, p->scx.dsq_vtime);
			break;
		}
		if (++seen > MOST_LOOKED_THROUGH) {
			next = now;
			break;
		}
		__sink(seen);
		until = held_on(p);
		if (until) {
			next = sooner(next, until);
			continue;
		}
		domain = domain_after(p);
		there = domain_ctx_of(domain);
		if (!tctx || !there) {
			scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_GLOBAL, 0);
			wake_idle_for(p, *key);
			continue;
		}
		/*
		 * Not counted: another CPU may take it away at this moment (for a change of its affinity),
		 * and count it where it puts it.
		 */
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, next_deadline(p, tctx));
		own = tctx->pinned_cpu;
		if (!scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, own == NO_CPU ? domain : CPU_DSQ(own), 0))
			continue;
		if (own == NO_CPU)
			note_moved_in(there);
		else
			__sync_lock_test_and_set(&cpu_ctx_of(own)->moved_in, true);
		wake_idle_for(p, *key);
	}
	if (next)
		arm_used_up(*key, vtime_before(next, now + LET_GO_NS) ? now + LET_GO_NS : next);
	bpf_rcu_read_unlock();
	return 0;
}

static s32 init_used_up(void)
{
	u32 i;

	bpf_for(i, 0, nr_cpu_ids) {
		struct used_up_timer *timer = bpf_map_lookup_elem(&used_up_timers, &i);

		if (!timer)
			return -ENOENT;
		bpf_timer_init(&timer->timer, &used_up_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&timer->timer, let_go);
	}
	return scx_bpf_create_dsq(USED_UP_DSQ, -1);
}

#endif /* __HETERO_USED_UP_BPF_H */
