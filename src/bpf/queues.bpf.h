/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues: in which of them a task waits, and from which a CPU takes its next one.
 */
#ifndef __HETERO_QUEUES_BPF_H
#define __HETERO_QUEUES_BPF_H

#include "rescue.bpf.h"
#include "account.bpf.h"

__noinline bool may_use_domain(struct task_struct *p __arg_trusted, u32 domain)
{
	struct mask_ctx *masks;
	struct bpf_cpumask *cpus;
	bool may;

	if (p->nr_cpus_allowed >= nr_cpu_ids)
		return true;
	masks = bpf_map_lookup_elem(&domain_masks, &domain);
	if (!masks)
		return false;
	/* A timer calls this, too. */
	bpf_rcu_read_lock();
	cpus = masks->cpus;
	may = cpus && bpf_cpumask_intersects(cast_mask(cpus), p->cpus_ptr);
	bpf_rcu_read_unlock();
	return may;
}

/*
 * The least crowded domain of @core_type, by runnable weight per CPU, of those that have a CPU for @p; NO_DOMAIN
 * if none has. In another's queue it would wait until a CPU that may take it falls idle. Global, so
 * that the verifier checks it once and not in every place that calls it.
 */
__noinline u32 lightest_domain_for(struct task_struct *p __arg_trusted, u32 core_type)
{
	u32 best = NO_DOMAIN, best_cpus = 0, d;
	u64 best_weight = 0;

	bpf_for(d, 0, nr_domains) {
		struct domain_ctx *dctx = domain_ctx_of(d);
		u32 serving;
		bool may;

		if (!dctx || type_of_domain(d) != core_type)
			continue;
		may = may_use_domain(p, d);
		FORGET_ARGUMENTS();
		if (!may)
			continue;
		serving = serving_cpus(d, dctx);
		if (best == NO_DOMAIN ||
		    more_crowded(best_weight, best_cpus, dctx->weight, serving)) {
			best = d;
			best_weight = dctx->weight;
			best_cpus = serving;
		}
	}
	return best;
}

/* CPUs that serve the queue of @domain and that a task may use. */
static u32 serving_cpus_for(struct task_ctx *tctx, u32 domain, struct domain_ctx *dctx)
{
	u32 serving = serving_cpus(domain, dctx);
	s64 beyond = (s64)serving - allowed_in(tctx->allowed_of, domain);

	/* The lesser one. */
	return serving - (beyond & ~(beyond >> 63));
}

/*
 * The queue for a task that found no idle CPU: that of its hint's type, or
 * else the one where it is, unless another is less crowded by more than the
 * task itself. So runnable weight stays in proportion to CPUs, within a task. A
 * queue that no CPU serves at present is more crowded than any other, whatever
 * type is wished for.
 */
static u32 choose_domain(struct task_struct *p, struct task_ctx *tctx)
{
	u32 hint = wished_type(tctx), best = tctx->domain, best_cpus, d;
	struct domain_ctx *dctx;
	u64 best_weight;

	if (hint != NO_TYPE && type_of_domain(best) != hint)
		best = lightest_domain_for(p, hint);
	dctx = domain_ctx_of(best);
	if (!dctx)
		return 0;
	best_weight = dctx->weight;
	best_cpus = serving_cpus_for(tctx, best, dctx);
	if (!best_cpus)
		hint = NO_TYPE;

	bpf_for(d, 0, nr_domains) {
		u32 serving;
		u64 weight;

		dctx = domain_ctx_of(d);
		if (!dctx || d == best || (hint != NO_TYPE && type_of_domain(d) != hint))
			continue;
		serving = serving_cpus_for(tctx, d, dctx);
		weight = dctx->weight + tctx->share;
		if (!more_crowded(best_weight, best_cpus, weight, serving) || !may_use_domain(p, d))
			continue;
		best = d;
		best_weight = weight;
		best_cpus = serving;
	}
	return best;
}

/*
 * The deadline of the first task in @dsq that @cpu may take; where that is not found soon, one that is no
 * later. Else it would wait for as long as there are others before it and some in this CPU's own queue.
 */
static bool first_deadline(u64 dsq, s32 cpu, u64 *deadline)
{
	struct task_struct *p;
	bool found = false;
	u32 seen = 0;

	if (!can_iterate()) {
		p = bpf_ksym_exists(scx_bpf_dsq_peek) ? scx_bpf_dsq_peek(dsq) : NULL;
		if (!p)
			return false;
		*deadline = p->scx.dsq_vtime;
		return true;
	}
	bpf_for_each(scx_dsq, p, dsq, 0) {
		if (may_use_cpu(p, cpu) || ++seen >= MAX_LOOKED_AT) {
			*deadline = p->scx.dsq_vtime;
			found = true;
			break;
		}
		/* Hidden from the verifier, which would follow every count apart. */
		__sink(seen);
	}
	return found;
}

/*
 * Pull a task from a queue that is more crowded than ours. With three threads
 * on two P cores and two on two E cores no CPU idles and no weight is out of
 * proportion by more than a task, yet the three would wait for ever and the
 * two never: pulling one now and then lets all five wait in turn. Only where
 * one has been waiting for some slices: one that was preempted for a moment
 * is better off where it is. And what waits where another class has all CPUs. Global, so that
 * the verifier checks it once.
 */
__noinline bool rotate(u32 domain)
{
	struct domain_ctx *dctx = domain_ctx_of(domain);
	u64 now = scx_bpf_now();
	u32 i;

	if (!dctx || now - dctx->rotated_at < ROTATE_INTERVAL_NS)
		return false;
	bpf_for(i, 1, nr_domains) {
		const volatile u8 *other = MEMBER_VPTR(steal_order, [domain][i]);
		struct domain_ctx *octx = other ? domain_ctx_of(*other) : NULL;

		if (!octx || !somebody_waits(octx, *other) ||
		    vtime_before(now, octx->waiting_since + 2 * slice_ns) ||
		    !more_crowded(octx->weight, serving_cpus(*other, octx),
				  dctx->weight, cpus_of_domain(domain)))
			continue;
		dctx->rotated_at = now;
		if (scx_bpf_dsq_move_to_local(*other, 0)) {
			count_stat(STAT_ROTATED);
			return true;
		}
	}
	return false;
}

/*
 * @cpu has come online since this scheduler was loaded, which the kernel is about to end for it. Until
 * that is done, kernel threads of that CPU among others, whatever may run there must.
 */
static void serve_unknown(s32 cpu, struct task_struct *prev)
{
	u32 i;

	if (cpu < nr_cpu_ids && scx_bpf_dsq_move_to_local(CPU_DSQ(cpu), 0))
		return;
	bpf_for(i, 0, nr_domains) {
		if (scx_bpf_dsq_move_to_local(i, 0))
			return;
	}
	if (prev)
		scx_bpf_task_set_slice(prev, slice_ns);
}

static bool steal(u32 domain)
{
	u32 i;

	bpf_for(i, 1, nr_domains) {
		const volatile u8 *other = MEMBER_VPTR(steal_order, [domain][i]);
		struct domain_ctx *octx = other ? domain_ctx_of(*other) : NULL;

		if (octx && somebody_waits(octx, *other) && scx_bpf_dsq_move_to_local(*other, 0)) {
			count_stat(STAT_STOLEN);
			return true;
		}
	}
	return false;
}

#endif /* __HETERO_QUEUES_BPF_H */
