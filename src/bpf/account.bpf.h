/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Accounting: run time, virtual time, progress, runnable weight per domain,
 * and the task's slot in the table.
 */
#ifndef __HETERO_ACCOUNT_BPF_H
#define __HETERO_ACCOUNT_BPF_H

#include "cgroup.bpf.h"
#include "idle.bpf.h"
#include "process.bpf.h"
#include "session.bpf.h"
#include "spin.bpf.h"

#define SCHED_POLICY_IDLE	5

/*
 * From shares to the weights that policies see, Q16. amp_progress is what a thread
 * has got over what it is entitled to, so it is weighted by what the cgroups leave of
 * its nice weight: were it nice alone, a policy that evens out progress would make up
 * with fast cores for the CPU time that cpu.weight denies. Only what a thread is
 * entitled to beside others matters for that, not how many share its cgroup: the mean
 * over all runnable tasks stays what it is by nice, and where all are in one cgroup
 * each one's weight is that of its nice level.
 */
u32 share_to_weight = ENTITLEMENT_ONE;

static void note_surplus(struct task_ctx *tctx, struct domain_ctx *dctx, u32 share)
{
	s32 surplus = share ? (s64)task_share(tctx->weight) - share : 0;
	s64 delta = (s64)surplus - tctx->counted_surplus;

	tctx->counted_surplus = surplus;
	if (delta)
		__sync_fetch_and_add(&dctx->surplus, delta);
}

/* Tell the domain (and the CPU, if pinned) that @p is runnable there, or no longer. */
static void count_share(struct task_ctx *tctx, u32 share)
{
	struct domain_ctx *dctx = domain_ctx_of(tctx->domain);
	s64 delta = (s64)share - tctx->counted_share;
	struct cpu_ctx *cctx;

	tctx->counted_share = share;
	if (tctx->cpu_set != ANY_CPU && delta) {
		u64 *weight = MEMBER_VPTR(cpu_set_weights, [tctx->cpu_set]);

		if (weight)
			__sync_fetch_and_add(weight, delta);
	}
	if (!dctx)
		return;
	if (tctx->cgroup || tctx->counted_surplus)
		note_surplus(tctx, dctx, share);
	if (!delta)
		return;
	__sync_fetch_and_add(&dctx->weight, delta);
	if (tctx->pinned_cpu == NO_CPU)
		return;
	__sync_fetch_and_add(&dctx->pinned_weight, delta);
	cctx = cpu_ctx_of(tctx->pinned_cpu);
	__sync_fetch_and_add(&cctx->pinned_weight, delta);
}

static void change_domain(struct task_ctx *tctx, u32 domain)
{
	u32 share = tctx->counted_share;

	if (domain == tctx->domain || domain >= MAX_DOMAINS)
		return;
	count_share(tctx, 0);
	tctx->domain = domain;
	count_share(tctx, share);
}

/* Bring up to date what a task competes with, which its cgroups settle. */
static void refresh_share(struct task_ctx *tctx)
{
	u32 share = share_of(tctx);

	if (share == tctx->share)
		return;
	tctx->share = share;
	if (tctx->counted_share)
		count_share(tctx, share);
}

static void set_state(struct task_ctx *tctx, enum task_state state)
{
	struct task_slot *s = slot_of(tctx->slot);

	if (!s)
		return;
	slot_write_begin(s);
	s->state = state;
	slot_write_end(s);
}

/* Count @tctx as waiting in its queue; before the look for an idle CPU. */
static void count_waiting(struct task_ctx *tctx)
{
	struct domain_ctx *dctx;
	struct cpu_ctx *cctx;

	set_state(tctx, TASK_QUEUED);
	tctx->waiting = true;
	if (tctx->pinned_cpu != NO_CPU) {
		cctx = cpu_ctx_of(tctx->pinned_cpu);
		add_ordered(&cctx->nr_waiting, 1);
	} else {
		dctx = domain_ctx_of(tctx->domain);
		if (dctx && !__sync_fetch_and_add(&dctx->nr_waiting, 1))
			dctx->waiting_since = scx_bpf_now();
	}
}

/* It started to run, or left. Must precede a change of domain or affinity. */
static void uncount_waiting(struct task_ctx *tctx)
{
	struct domain_ctx *dctx;
	struct cpu_ctx *cctx;

	if (!tctx->waiting)
		return;
	tctx->waiting = false;
	if (tctx->pinned_cpu != NO_CPU) {
		cctx = cpu_ctx_of(tctx->pinned_cpu);
		__sync_fetch_and_add(&cctx->nr_waiting, -1);
	} else {
		dctx = domain_ctx_of(tctx->domain);
		if (dctx)
			__sync_fetch_and_add(&dctx->nr_waiting, -1);
	}
}

/* It waits in @domain's queue instead. At each moment one of both queues counts it. */
static void move_waiting(struct task_ctx *tctx, u32 domain)
{
	struct domain_ctx *from = domain_ctx_of(tctx->domain), *to = domain_ctx_of(domain);

	if (!from || !to)
		return;
	if (!__sync_fetch_and_add(&to->nr_waiting, 1))
		to->waiting_since = scx_bpf_now();
	__sync_fetch_and_add(&from->nr_waiting, -1);
	change_domain(tctx, domain);
}

/* Virtual time of @run_ns for this task, against those it competes with. */
static u64 vtime_of(struct task_ctx *tctx, u64 run_ns)
{
	struct domain_ctx *dctx = domain_ctx_of(tctx->domain);
	u32 nr_cpus = cpus_of_domain(tctx->domain);
	struct cpu_ctx *cctx;
	u64 shared;

	/* The agent is entitled to a CPU, however many others want one. */
	if (!dctx || tctx->is_agent)
		return run_ns;
	if (tctx->pinned_cpu == NO_CPU || !nr_cpus) {
		u64 *weight = NULL;

		/*
		 * Tasks that may use a few CPUs only may be more crowded than their domain.
		 * Charged as that is, all of them would fall behind the clock as far as
		 * they may, which is further with a small share: such a task would always
		 * come first.
		 */
		if (tctx->cpu_set != ANY_CPU)
			weight = MEMBER_VPTR(cpu_set_weights, [tctx->cpu_set]);
		if (weight && more_crowded(*weight, tctx->nr_cpus_allowed, dctx->weight, nr_cpus))
			return charge_vtime(run_ns, tctx->share, *weight, tctx->nr_cpus_allowed);
		return charge_vtime(run_ns, tctx->share, dctx->weight, nr_cpus);
	}

	cctx = cpu_ctx_of(tctx->pinned_cpu);
	shared = dctx->weight > dctx->pinned_weight ? dctx->weight - dctx->pinned_weight : 0;
	return charge_vtime(run_ns, tctx->share, cctx->pinned_weight + shared / nr_cpus, 1);
}

/* Where tasks that may use these CPUs and no others are counted; and how many these are of each domain. */
static u16 read_cpu_set(struct task_ctx *tctx, const struct cpumask *cpus, u32 nr_cpus)
{
	u32 hash = 2166136261, cpu; /* FNV-1a */
	u64 allowed_of = 0;

	bpf_for(cpu, 0, nr_cpu_ids) {
		u64 domain = cpu_domain[index_of_cpu(cpu)];
		/* 0 for one that is offline, which is in no domain. */
		u64 serves = (domain - MAX_DOMAINS) >> 63;

		if (bpf_cpumask_test_cpu(cpu, cpus)) {
			hash = (hash ^ cpu) * 16777619;
			allowed_of += serves << (domain * 8 & 63);
		}
		__sink(hash);
		__sink(allowed_of);
	}
	/* Of more CPUs than a count holds all are taken for allowed. */
	tctx->allowed_of = allowed_of | (255 - (s64)nr_cpus) >> 63;
	return 1 + hash % (NR_CPU_SETS - 1);
}

/*
 * A policy counts on all CPUs of a type: of a task that may use only some of them, as beside an isolated
 * partition, it would crowd those. So that has no hint of the policy's, however it is swapped.
 */
static u8 kept_hint(struct task_slot *s, u8 hint)
{
	u8 whole = s->allowed_types >> MAX_CORE_TYPES >> (hint & (MAX_CORE_TYPES - 1));

	return hint | (~(whole | s->ruled) & 1) * NO_TYPE;
}

static void read_affinity(struct task_struct *p, struct task_ctx *tctx, const struct cpumask *cpus)
{
	struct task_slot *s = slot_of(tctx->slot);
	u32 share = tctx->counted_share, nr_cpus = bpf_cpumask_weight(cpus), type;
	u8 allowed = 0;

	bpf_for(type, 0, nr_types) {
		struct mask_ctx *masks = type_mask_of(type);
		struct bpf_cpumask *mask;

		if (!masks)
			continue;
		mask = masks->cpus;
		if (!mask)
			continue;
		allowed |= (bpf_cpumask_intersects(cast_mask(mask), cpus) |
			    bpf_cpumask_subset(cast_mask(mask), cpus) << MAX_CORE_TYPES) << (type & 3);
	}
	uncount_waiting(tctx);
	count_share(tctx, 0);
	tctx->allowed_types = allowed;
	tctx->pinned_cpu = nr_cpus == 1 ? (s32)bpf_cpumask_first(cpus) : NO_CPU;
	tctx->nr_cpus_allowed = nr_cpus;
	tctx->allowed_of = ~0ULL;
	tctx->cpu_set = nr_cpus > 1 && nr_cpus < nr_cpu_ids ? read_cpu_set(tctx, cpus, nr_cpus) : ANY_CPU;
	if (tctx->pinned_cpu != NO_CPU && domain_of_cpu(tctx->pinned_cpu) < MAX_DOMAINS)
		tctx->domain = domain_of_cpu(tctx->pinned_cpu);
	count_share(tctx, share);
	if (s) {
		slot_write_begin(s);
		s->allowed_types = allowed;
		s->hint = kept_hint(s, s->hint);
		s->pinned = tctx->pinned_cpu != NO_CPU;
		slot_write_end(s);
	}
}

static void take_slot(struct task_struct *p, struct task_ctx *tctx)
{
	u32 index = take_place(&free_slots, &nr_slots_used, nr_slots), type;
	struct task_slot *s;

	if (index >= nr_slots) {
		/* Before the second look: one that is given back between these two is found. */
		WRITE_ONCE(slots_full, true);
		index = take_place(&free_slots, &nr_slots_used, nr_slots);
		if (index >= nr_slots) {
			count_stat(STAT_SLOTS_FULL);
			return;
		}
		WRITE_ONCE(slots_full, false);
	}
	s = slot_of(index);
	if (!s)
		return;
	tctx->slot = index;

	slot_write_begin(s);
	s->generation++;
	s->tid = p->pid;
	s->tgid = p->tgid;
	s->start_time = p->start_time;
	s->amp_progress = max_progress;
	s->first_progress = s->amp_progress;
	bpf_for(type, 0, MAX_CORE_TYPES) {
		if (type >= MAX_CORE_TYPES)
			break;
		s->run_ns[type] = 0;
		s->inv_slowdown[type] = static_inv_slowdown[type];
	}
	s->weight = entitled_weight(tctx->share, share_to_weight);
	s->nr_runnable = 1;
	s->target_cpu = NO_CPU;
	s->rule_weight = RULE_WEIGHT_ONE;
	s->hint = NO_TYPE;
	s->ruled = false;
	s->allowed_types = tctx->allowed_types;
	s->kthread = !!(p->flags & PF_KTHREAD);
	s->pinned = tctx->pinned_cpu != NO_CPU;
	s->spinning = tctx->spinning;
	s->sf = 0;
	s->session = tctx->session;
	s->stall = 0;
	s->surplus = 0;
	/* It is charged as it runs, and may go on for long before ops.running says so. */
	s->state = TASK_IS_RUNNING;
	bpf_probe_read_kernel_str(s->comm, sizeof(s->comm), p->comm);
	slot_write_end(s);
}

/* Exec and prctl change a task's name; exec by a thread that is not the first one gives it the first one's id. */
static void refresh_name(struct task_struct *p, struct task_slot *s)
{
	slot_write_begin(s);
	s->tid = p->pid;
	s->start_time = p->start_time;
	bpf_probe_read_kernel_str(s->comm, sizeof(s->comm), p->comm);
	slot_write_end(s);
}

static void give_back_slot(struct task_ctx *tctx)
{
	u32 index = tctx->slot;
	struct task_slot *s = slot_of(index);

	/* Once: the agent may take it from a task that ends at this moment. */
	if (!s || __sync_val_compare_and_swap(&tctx->slot, index, NO_SLOT) != index)
		return;
	slot_write_begin(s);
	s->state = TASK_FREE;
	s->generation++;
	slot_write_end(s);
	bpf_map_push_elem(&free_slots, &index, 0);
	WRITE_ONCE(slots_full, false);
}

/*
 * The agent takes a slot from a task that has slept for long, where slots run short. One that wakes
 * up at this very moment may still write to it, which the next owner's next tick sets right.
 */
SEC("syscall")
int take_back_slot(struct slot_request *request)
{
	struct task_slot *s = slot_of(request->slot);
	struct task_struct *p;
	struct task_ctx *tctx;
	int err = -ESTALE;

	if (!s || s->generation != request->generation || s->state != TASK_BLOCKED)
		return err;
	p = bpf_task_from_pid(s->tid);
	if (!p)
		return err;
	tctx = bpf_task_storage_get(&task_ctxs, p, 0, 0);
	if (tctx && tctx->slot == request->slot && !tctx->competes) {
		give_back_slot(tctx);
		err = 0;
	}
	bpf_task_release(p);
	return err;
}

/*
 * The scheduler starts anew, as it does when CPUs come or go. The agent has put the slots
 * back as they were; a task is known by its tid and start time.
 */
static void find_slot_again(struct task_struct *p, struct task_ctx *tctx)
{
	u32 tid = p->pid, *index;
	struct task_slot *s;

	if (!nr_carried)
		return;
	index = bpf_map_lookup_elem(&carried_slots, &tid);
	s = index ? slot_of(*index) : NULL;
	if (!s || (works(MECHANISM_IDENTITY) && s->start_time != p->start_time))
		return;
	tctx->slot = *index;
	s->target_cpu = NO_CPU;
	s->session = 0;
	s->state = TASK_BLOCKED;
	bpf_map_delete_elem(&carried_slots, &tid);
	count_stat(STAT_CARRIED);
}

/* Global, so that the verifier follows it once. */
__noinline u64 work_of(u64 run_ns, u32 inv_slowdown, u32 inv_on_fastest)
{
	return fastest_ns(run_ns, inv_slowdown, inv_on_fastest);
}

/*
 * What a timer puts on its own CPU, which sleeps, Debian's 7.1 and 7.2 charge for the time that the CPU slept, too.
 * It ran no longer than since it began to or was charged last.
 */
static u64 at_most_since(struct task_ctx *tctx, u64 run_ns)
{
	u64 now, passed;

	if (can_kick())
		return run_ns;
	now = bpf_ktime_get_ns();
	passed = now - tctx->charged_at;
	tctx->charged_at = now;
	return run_ns < passed ? run_ns : passed;
}

/*
 * Charge @p for what it ran since it was last charged. From stopping and from
 * tick, since a task alone on its CPU never stops; by sum_exec_runtime, which
 * the kernel brings up to date before both, and not by the slice, which it may
 * refill behind our back. Returns how long that was, ns.
 */
static u64 charge(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	u64 run_ns = run_delta(p->se.sum_exec_runtime, tctx->exec_seen);
	u32 type = type_of_cpu(cpu), inv_slowdown, session;
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	struct process_ctx *pctx;
	struct task_slot *s;
	u64 work_ns;

	if (!run_ns)
		return 0;
	tctx->exec_seen = p->se.sum_exec_runtime;
	run_ns = at_most_since(tctx, run_ns);
	tctx->run_ns += run_ns;
	tctx->vtime += vtime_of(tctx, run_ns);
	if (tctx->is_agent)
		__sync_fetch_and_add(&agent_ran_ns, run_ns);

	if (type >= MAX_CORE_TYPES) {
		tctx->work_ns += run_ns;
		return run_ns;
	}
	cctx->busy_ns[type] += run_ns;
	if (tctx->slot == NO_SLOT && tctx->run_ns >= SLOT_AFTER_NS && !slots_full)
		take_slot(p, tctx);
	s = slot_of(tctx->slot);
	work_ns = s ? work_of(run_ns, s->inv_slowdown[type], s->inv_slowdown[0]) :
		      work_of(run_ns, static_inv_slowdown[type], static_inv_slowdown[0]);
	tctx->work_ns += work_ns;
	if ((session = session_of(tctx)))
		spend(session, work_ns);
	if (!s)
		return run_ns;
	pctx = process_ctx_of(tctx);
	/* A task that spins does no work that a core type could slow down. */
	inv_slowdown = look_for_spin(p, tctx, type) ? INV_SLOWDOWN_ONE : s->inv_slowdown[type];

	slot_write_begin(s);
	s->run_ns[type] += run_ns;
	s->weight = entitled_weight(tctx->share, share_to_weight);
	s->amp_progress += charge_progress(run_ns, inv_slowdown, nr_working(pctx), nr_fast_cpus,
					   s->weight);
	s->nr_runnable = pctx ? pctx->nr_runnable : 1;
	s->cpu = cpu;
	s->core_type = type;
	if (agent_stalled)
		note_share(s, run_ns, type);
	slot_write_end(s);
	if (s->amp_progress > max_progress)
		max_progress = s->amp_progress;
	return run_ns;
}

/* @p goes to sleep. */
static void note_burst(struct task_ctx *tctx)
{
	tctx->burst_ns = mean_burst(tctx->burst_ns, burst_so_far(tctx), 2 * LATENCY_BURST_NS);
	tctx->woke_at_ns = tctx->run_ns;
	tctx->woke_at_work_ns = tctx->work_ns;
}

static void read_weight(struct task_struct *p, struct task_ctx *tctx)
{
	/* What the agent does at idle priority can wait like any other task's. */
	tctx->is_agent = p->tgid == agent_tgid && p->policy != SCHED_POLICY_IDLE;
	tctx->weight = ruled_weight(task_weight(p->static_prio, p->policy == SCHED_POLICY_IDLE),
				    tctx->rule_weight);
	if (tctx->cgroup_share)
		count_in_cgroup(tctx, task_share(tctx->weight));
	refresh_share(tctx);
}

/* A rule of the user's says another weight of @p than it had. */
__noinline int follow_rule(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tctx = task_ctx_of(p);
	struct task_slot *s = tctx ? slot_of(tctx->slot) : NULL;

	if (!s)
		return 0;
	tctx->rule_weight = s->rule_weight;
	read_weight(p, tctx);
	return 0;
}

/* How shares relate to weights by nice, over all runnable tasks; from the tick. */
static void refresh_entitlement(void)
{
	u64 weight = 0;
	s64 surplus = 0;
	u32 i;

	bpf_for(i, 0, nr_domains) {
		struct domain_ctx *dctx = domain_ctx_of(i);

		if (!dctx)
			break;
		weight += dctx->weight;
		surplus += dctx->surplus;
	}
	share_to_weight = entitlement_factor(share_to_weight, weight, surplus);
}

#endif /* __HETERO_ACCOUNT_BPF_H */
