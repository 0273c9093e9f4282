/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The agent's actions: one batch, applied by one program. A hint takes effect
 * by the task's own next step (tick, enqueue, wake-up), because a program like
 * this may neither insert into a queue nor shorten a slice. Only a task that
 * waits in a queue of ours is moved at once, by sweep_queues().
 */
#ifndef __HETERO_ACTIONS_BPF_H
#define __HETERO_ACTIONS_BPF_H

#include "idle.bpf.h"
#include "account.bpf.h"
#include "park.bpf.h"
#include "queues.bpf.h"

struct action_batch action_batch SEC(".bss.actions");

/* The slot, if it is still the task's and on the core type that the agent saw. */
static struct task_slot *find_target(u32 slot, u32 generation, u8 expected_type)
{
	struct task_slot *s = slot_of(slot);

	if (!s || s->generation != generation || s->state == TASK_FREE)
		return NULL;
	if (expected_type < NO_TYPE && s->core_type != expected_type)
		return NULL;
	return s;
}

static bool may_use(struct task_slot *s, u8 core_type)
{
	return core_type < MAX_CORE_TYPES && (s->allowed_types & (1 << core_type));
}

static u32 apply_swap(struct action *a)
{
	struct task_slot *s = find_target(a->slot, a->generation, a->expected_type);
	struct task_slot *o = find_target(a->other_slot, a->other_generation,
					  a->other_expected_type);
	bool runnable;

	if (!s || !o)
		return ACTION_STALE;
	if (!may_use(s, a->core_type) || !may_use(o, a->other_core_type))
		return ACTION_INVALID;

	runnable = s->state != TASK_BLOCKED && o->state != TASK_BLOCKED;
	/* Within a type they only trade CPUs: which type each is to have is not said. */
	if (a->core_type == a->other_core_type) {
		if (!runnable)
			return ACTION_STALE;
	} else {
		s->hint = kept_hint(s, a->core_type);
		o->hint = kept_hint(o, a->other_core_type);
	}
	/*
	 * Two runnable tasks trade CPUs: the first to come by a tick goes to the
	 * other's CPU and preempts it there, the other comes back. One that waits at
	 * this moment may run by then; if not, its CPU looks for it.
	 */
	if (runnable && s->core_type == a->other_core_type && o->core_type == a->core_type) {
		s->target_cpu = o->cpu;
		o->target_cpu = s->cpu;
	}
	return ACTION_APPLIED;
}

static u32 apply_hint(struct action *a)
{
	struct task_slot *s = find_target(a->slot, a->generation, a->expected_type);

	if (!s)
		return ACTION_STALE;
	if (a->core_type != NO_TYPE && (a->core_type >= nr_types || !may_use(s, a->core_type)))
		return ACTION_INVALID;
	s->ruled = a->ruled && a->core_type != NO_TYPE;
	s->hint = kept_hint(s, a->core_type);
	return s->hint == a->core_type ? ACTION_APPLIED : ACTION_STALE;
}

static u32 apply_slowdown(struct action *a)
{
	struct task_slot *s = find_target(a->slot, a->generation, NO_TYPE);
	u32 type;

	if (!s)
		return ACTION_STALE;
	for (type = 0; type < MAX_CORE_TYPES; type++)
		s->inv_slowdown[type] = a->inv_slowdown[type];
	return ACTION_APPLIED;
}

static u32 apply_weight(struct action *a)
{
	struct task_slot *s = find_target(a->slot, a->generation, NO_TYPE);

	if (!s)
		return ACTION_STALE;
	s->rule_weight = a->rule_weight;
	return ACTION_APPLIED;
}

static u32 apply_join(struct action *a)
{
	struct task_slot *s = find_target(a->slot, a->generation, NO_TYPE);

	if (!s)
		return ACTION_STALE;
	s->session = a->session;
	return ACTION_APPLIED;
}

/* Move waiting tasks whose hint is another type to a queue of that type. */
static void sweep_queue(u32 domain)
{
	struct task_struct *p;

	if (!can_iterate()) {
		scx_bpf_dsq_reenq(domain, 0);
		return;
	}
	bpf_for_each(scx_dsq, p, domain, 0) {
		struct task_ctx *tctx = task_ctx_of(p);
		struct domain_ctx *there;
		u32 hint, to;

		if (!tctx)
			continue;
		hint = wished_type(tctx);
		if (hint == NO_TYPE || hint == type_of_domain(domain))
			continue;
		to = lightest_domain_for(p, hint);
		/*
		 * The waiting count and the weight stay with the old domain until
		 * the task runs; running() sets both right.
		 */
		there = domain_ctx_of(to);
		/* Where others have all CPUs it would wait for the next that looks there. */
		if (!there || !serving_cpus(to, there))
			continue;
		/* Before, too: a CPU that falls idle meanwhile must see it in one of the two queues. */
		note_moved_in(there);
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0))
			note_moved_in(there);
	}
}

SEC("syscall")
int apply_actions(void *ctx)
{
	u32 hints_changed = false, i;

	bpf_for(i, 0, action_batch.nr) {
		struct action *a = MEMBER_VPTR(action_batch, .actions[i]);

		if (!a)
			break;
		switch (a->op) {
		case ACTION_SWAP:
			a->result = apply_swap(a);
			hints_changed = true;
			break;
		case ACTION_HINT:
			a->result = apply_hint(a);
			hints_changed = true;
			break;
		case ACTION_SLOWDOWN:
			a->result = apply_slowdown(a);
			break;
		case ACTION_PARK:
			a->result = park(a->slot, a->park_ns);
			break;
		case ACTION_WEIGHT:
			a->result = apply_weight(a);
			break;
		case ACTION_JOIN:
			a->result = apply_join(a);
			break;
		default:
			a->result = ACTION_INVALID;
		}
		__sink(hints_changed);
	}
	if (!hints_changed || nr_types < 2)
		return 0;
	bpf_rcu_read_lock();
	bpf_for(i, 0, nr_domains) {
		struct domain_ctx *dctx = domain_ctx_of(i);

		if (dctx && somebody_waits(dctx, i))
			sweep_queue(i);
	}
	bpf_rcu_read_unlock();
	return 0;
}

#endif /* __HETERO_ACTIONS_BPF_H */
