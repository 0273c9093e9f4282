/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Idle CPUs: which there are, how they rank for a task, and claiming the best one.
 *
 * The kernel's own idle masks decide which task gets a CPU: it is claimed by
 * clearing its bit. Ours, kept by ops.update_idle, serve to look without
 * claiming, since the kernel's cannot be read on some kernels. They are plain
 * words: a call each time that a CPU goes idle or no longer is would cost more
 * than all searches.
 */
#ifndef __HETERO_IDLE_BPF_H
#define __HETERO_IDLE_BPF_H

#include "heartbeat.bpf.h"

/*
 * Weak, unlike the declaration in common.bpf.h: Debian's 7.1 and 7.2 kernels
 * ship this function with a prototype that no program can call. There, a timer
 * moves the waiting task to the idle CPU instead.
 */
void scx_bpf_kick_cpu___optional(s32 cpu, u64 flags) __ksym __weak;

static bool can_kick(void)
{
	return works(MECHANISM_KICK) && bpf_ksym_exists(scx_bpf_kick_cpu___optional);
}

/*
 * Nor can any program look into a queue on Debian's 7.1. There, what waits is handed to enqueue
 * anew, where another CPU would look for it: requeue() in place.bpf.h.
 */
static bool can_iterate(void)
{
	return works(MECHANISM_ITERATE) && bpf_ksym_exists(bpf_iter_scx_dsq_new);
}

struct mask_ctx {
	struct bpf_cpumask __kptr *cpus;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CORE_TYPES);
	__type(key, u32);
	__type(value, struct mask_ctx);
} type_masks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct mask_ctx);
} domain_masks SEC(".maps");

/* Room to intersect a task's affinity with a type's or a domain's CPUs. */
struct idle_scratch {
	struct bpf_cpumask __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct idle_scratch);
} scratches SEC(".maps");

static struct mask_ctx *type_mask_of(u32 core_type)
{
	return bpf_map_lookup_elem(&type_masks, &core_type);
}

static s32 new_mask(struct bpf_cpumask **field)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();

	if (!mask)
		return -ENOMEM;
	mask = bpf_kptr_xchg(field, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return 0;
}

/* How many parked CPUs a search for an idle one may come across. */
#define MAX_PARKED	8

/*
 * Claim an idle CPU out of @cpus; < 0 if there is none. A parked one that the
 * kernel offers stays claimed, so that it is not offered again.
 */
static s32 pick_idle(struct task_struct *p, const struct cpumask *cpus, u64 flags)
{
	s32 cpu = -ENOENT;
	u32 i;

	bpf_for(i, 0, MAX_PARKED) {
		cpu = scx_bpf_pick_idle_cpu(cpus, flags);
		if (cpu < 0 || !is_parked_for(p, cpu))
			break;
		cpu = -ENOENT;
	}
	return cpu;
}

/* Claim an idle CPU out of @cpus that @p may use; < 0 if there is none. */
static s32 claim_idle_in(struct task_struct *p, struct bpf_cpumask *cpus, u64 flags)
{
	struct idle_scratch *scratch;
	struct bpf_cpumask *mask;
	u32 zero = 0;

	if (!cpus)
		return -ENOENT;
	if (p->nr_cpus_allowed >= nr_cpu_ids)
		return pick_idle(p, cast_mask(cpus), flags);

	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!scratch)
		return -ENOENT;
	mask = scratch->mask;
	if (!mask || !bpf_cpumask_and(mask, cast_mask(cpus), p->cpus_ptr))
		return -ENOENT;
	return pick_idle(p, cast_mask(mask), flags);
}

/* CPUs that went idle and are not claimed or parked, and those of cores that did so as a whole. */
#define WORDS_PER_MASK	(MAX_CPUS / 64)

u64 idle_cpus[MAX_CORE_TYPES * WORDS_PER_MASK];
u64 idle_cores[MAX_CORE_TYPES * WORDS_PER_MASK];

static u32 word_of(u32 core_type, u32 cpu)
{
	return (core_type * WORDS_PER_MASK + cpu / 64) % (MAX_CORE_TYPES * WORDS_PER_MASK);
}

static bool is_noted_idle(s32 cpu)
{
	return idle_cpus[word_of(type_of_cpu(cpu), cpu)] >> (cpu % 64) & 1;
}

static bool sibling_is_idle(s32 cpu)
{
	s32 sibling = sibling_of_cpu(cpu);

	return sibling < 0 || is_noted_idle(sibling);
}

/* An idle CPU of @core_type that @p may use, by our own masks; < 0 if there is none. Claims nothing. */
__noinline s32 noted_idle_of(struct task_struct *p __arg_trusted, u32 core_type, bool whole_core)
{
	u32 nr_words = (nr_cpu_ids + 63) / 64, i;
	s32 found = -ENOENT;

	bpf_for(i, 0, nr_words) {
		u32 word = word_of(core_type, i * 64);
		u64 idle = whole_core ? idle_cores[word] : idle_cpus[word], allowed;

		/* A loop over CPUs would ask the kernel for each of them. */
		if (!idle || bpf_probe_read_kernel(&allowed, sizeof(allowed), &p->cpus_ptr->bits[i]))
			continue;
		if (idle & allowed) {
			found = i * 64 + ctzll(idle & allowed);
			break;
		}
	}
	return found;
}

/*
 * Claim the best idle CPU of one tier: the last one used, its domain, its type.
 * Global, so that the verifier checks it once and not per tier and caller.
 */
__noinline s32 claim_idle_of_tier(struct task_struct *p __arg_trusted, s32 prev_cpu, u32 core_type,
				  bool whole_core)
{
	u64 flags = whole_core ? SCX_PICK_IDLE_CORE : 0;
	u32 domain = domain_of_cpu(prev_cpu);
	struct mask_ctx *masks;
	s32 cpu;

	if (type_of_domain(domain) == core_type) {
		if (may_use_cpu(p, prev_cpu) &&
		    (!whole_core || sibling_is_idle(prev_cpu)) &&
		    !is_parked_for(p, prev_cpu) &&
		    scx_bpf_test_and_clear_cpu_idle(prev_cpu))
			return prev_cpu;
		masks = bpf_map_lookup_elem(&domain_masks, &domain);
		if (masks) {
			cpu = claim_idle_in(p, masks->cpus, flags);
			if (cpu >= 0)
				return cpu;
		}
	}

	masks = type_mask_of(core_type);
	return masks ? claim_idle_in(p, masks->cpus, flags) : -ENOENT;
}

static bool allows_type(struct task_ctx *tctx, u32 core_type)
{
	return tctx->allowed_types >> (core_type & 7) & 1;
}

static u32 hint_of(struct task_ctx *tctx)
{
	struct task_slot *s = slot_of(tctx->slot);
	u32 hint = s && !agent_stalled ? s->hint : NO_TYPE;

	return hint < nr_types ? hint : NO_TYPE;
}

/* The type that the agent wishes for a task, if it may run there. */
static u32 wished_type(struct task_ctx *tctx)
{
	u32 hint = hint_of(tctx);

	return hint != NO_TYPE && allows_type(tctx, hint) ? hint : NO_TYPE;
}

/*
 * CPUs of each type that went idle, claimed and parked ones included. To search masks by
 * tiers costs a thousand instructions, and on a busy machine finds nothing; this says so
 * at once. It may be behind, for while the kernel suspends it does not tell: wherever a
 * task is about to be left waiting the kernel itself is asked, see wake_idle_for().
 */
u32 nr_idle[MAX_CORE_TYPES];

static bool has_idle(u32 core_type)
{
	u32 *nr = MEMBER_VPTR(nr_idle, [core_type]);

	return nr && READ_ONCE(*nr);
}

/*
 * @cpu goes idle, or no longer is. As the scheduler is attached the kernel takes all CPUs for idle, and so
 * does this; the kernel would offer one that is busy until it has idled once.
 */
static void count_idle(s32 cpu, bool idle)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	u32 *nr = MEMBER_VPTR(nr_idle, [type_of_cpu(cpu)]);

	if (!nr || cctx->is_idle == idle)
		return;
	cctx->is_idle = idle;
	if (!idle)
		scx_bpf_test_and_clear_cpu_idle(cpu);
	__sync_fetch_and_add(nr, idle ? 1 : -1);
}

/* Claim the only CPU that a task may use, if it is idle. */
static s32 claim_only(struct task_struct *p, s32 cpu)
{
	if (is_parked_for(p, cpu) || !scx_bpf_test_and_clear_cpu_idle(cpu))
		return -ENOENT;
	return cpu;
}

/*
 * While energy is saved, what runs for so long at a stretch may be a frame that a slow core does not
 * finish in time, and after longer than the longest frame it is none. In between an idle fast core helps it,
 * until the agent says where it is to be, which knows only after some frames.
 */
#define FRAME_LATE_NS	(8ULL * 1000 * 1000)
#define FRAME_MOST_NS	(50ULL * 1000 * 1000)

/* In which order a task without a hint gets idle CPUs. */
static u32 order_unhinted(struct task_ctx *tctx)
{
	u64 ran = tctx->run_ns - tctx->woke_at_ns;

	return works(MECHANISM_FRAMES) && ran >= FRAME_LATE_NS && ran < FRAME_MOST_NS ? NO_TYPE :
										       filled_first;
}

/*
 * How CPUs rank for a task: a row of `tiers`, and a CPU's place in it, 0 for the best. Whatever
 * looks for a CPU asks these: to wake up on it, to move to a better one, to stay near a waker, and
 * to kick it for what waits.
 */
static u32 order_of(struct task_ctx *tctx)
{
	u32 hint = hint_of(tctx);

	return hint == NO_TYPE ? order_unhinted(tctx) : hint;
}

/*
 * In which order an idle CPU is better than where a task runs. A policy's hint shares out what is
 * busy, so a faster idle CPU helps whatever the hint; a rule means what it says.
 */
static u32 upgrade_order_of(struct task_ctx *tctx)
{
	struct task_slot *s = slot_of(tctx->slot);

	return s && s->ruled ? order_of(tctx) : order_unhinted(tctx);
}

static u32 rank_of(u32 order, s32 cpu)
{
	bool alone = sibling_is_idle(cpu);
	u32 type = type_of_cpu(cpu), rank = MAX_TIERS, i;

	bpf_for(i, 0, MAX_TIERS) {
		const volatile struct tier *tier = MEMBER_VPTR(tiers, [order][i]);

		if (!tier || tier->core_type == NO_TYPE)
			break;
		if (tier->core_type == type && (alone || !tier->whole_core)) {
			rank = i;
			break;
		}
	}
	return rank;
}

/* Claim the best idle CPU for @p of those that rank before @end, near @near_cpu where two rank alike. */
static s32 claim_idle_before(struct task_struct *p, struct task_ctx *tctx, s32 near_cpu, u32 order,
			     u32 end)
{
	u32 i;

	if (tctx->pinned_cpu != NO_CPU)
		return claim_only(p, tctx->pinned_cpu);
	bpf_for(i, 0, MAX_TIERS) {
		const volatile struct tier *tier = MEMBER_VPTR(tiers, [order][i]);
		s32 cpu;

		if (i >= end || !tier || tier->core_type == NO_TYPE)
			break;
		if (!allows_type(tctx, tier->core_type) || !has_idle(tier->core_type))
			continue;
		cpu = claim_idle_of_tier(p, near_cpu, tier->core_type, tier->whole_core);
		if (cpu >= 0)
			return cpu;
	}
	return -ENOENT;
}

/* Claim the best idle CPU for @p. */
static s32 claim_idle(struct task_struct *p, struct task_ctx *tctx, s32 prev_cpu)
{
	return claim_idle_before(p, tctx, prev_cpu, order_of(tctx), MAX_TIERS);
}

/* The same, of enqueue, where two places ask. */
__noinline s32 claim_idle_near(struct task_struct *p __arg_trusted, s32 cpu)
{
	struct task_ctx *tctx = task_ctx_of(p);

	return tctx ? claim_idle(p, tctx, cpu) : -ENOENT;
}

/* The best idle CPU for @p of those that rank before @end, by our own masks. Claims nothing. */
static s32 noted_idle_before(struct task_struct *p, u32 order, u32 end)
{
	s32 cpu = -ENOENT;
	u32 i;

	bpf_for(i, 0, MAX_TIERS) {
		const volatile struct tier *tier = MEMBER_VPTR(tiers, [order][i]);

		if (i >= end || !tier || tier->core_type == NO_TYPE)
			break;
		if (has_idle(tier->core_type))
			cpu = noted_idle_of(p, tier->core_type, has_smt && tier->whole_core);
		if (cpu >= 0)
			break;
	}
	return cpu;
}

/* Is there an idle CPU that ranks above @cpu, where @p runs? For the tick, see claim_better_idle(). */
__noinline bool better_idle_exists(struct task_struct *p __arg_trusted, s32 cpu)
{
	struct task_ctx *tctx = task_ctx_of(p);
	u32 order = tctx ? upgrade_order_of(tctx) : NO_TYPE;

	return noted_idle_before(p, order, rank_of(order, cpu)) >= 0;
}

/* The same, and claims it: of several tasks that have seen one such CPU, all but one stay. */
static s32 claim_better_idle(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	u32 order = upgrade_order_of(tctx);

	return claim_idle_before(p, tctx, cpu, order, rank_of(order, cpu));
}

static void note_in(u64 *masks, s32 cpu, bool idle)
{
	u64 bit = 1ULL << (cpu % 64);

	masks += word_of(type_of_cpu(cpu), cpu);
	if (idle)
		__sync_fetch_and_or(masks, bit);
	else
		__sync_fetch_and_and(masks, ~bit);
}

static void note_core(s32 cpu, bool idle)
{
	s32 sibling = sibling_of_cpu(cpu);

	note_in(idle_cores, cpu, idle);
	if (sibling >= 0)
		note_in(idle_cores, sibling, idle);
}

/* Keep our own idle masks. A core is idle when all its threads are; most have just one. */
static void note_idle(s32 cpu, bool idle)
{
	note_in(idle_cpus, cpu, idle);
	if (!has_smt || (idle && !sibling_is_idle(cpu)))
		return;
	note_core(cpu, idle);
	/* The sibling may have left idle meanwhile, and said so before. */
	if (idle && !sibling_is_idle(cpu))
		note_core(cpu, false);
}

static s32 init_masks(void)
{
	struct mask_ctx *masks;
	struct idle_scratch *scratch;
	s32 err;
	u32 i;

	bpf_for(i, 0, nr_types) {
		masks = type_mask_of(i);
		if (!masks)
			return -ENOENT;
		if ((err = new_mask(&masks->cpus)))
			return err;
	}
	bpf_for(i, 0, nr_domains) {
		masks = bpf_map_lookup_elem(&domain_masks, &i);
		if (!masks)
			return -ENOENT;
		if ((err = new_mask(&masks->cpus)))
			return err;
	}
	bpf_for(i, 0, nr_cpu_ids) {
		struct bpf_cpumask *mask;
		u32 zero = 0, domain;

		scratch = bpf_map_lookup_percpu_elem(&scratches, &zero, i);
		if (scratch && (err = new_mask(&scratch->mask)))
			return err;

		domain = domain_of_cpu(i);
		if (domain >= MAX_DOMAINS)
			continue;
		count_idle(i, true);
		bpf_rcu_read_lock();
		masks = bpf_map_lookup_elem(&domain_masks, &domain);
		if (masks && (mask = masks->cpus))
			bpf_cpumask_set_cpu(i, mask);
		masks = type_mask_of(type_of_cpu(i));
		if (masks && (mask = masks->cpus))
			bpf_cpumask_set_cpu(i, mask);
		bpf_rcu_read_unlock();
	}
	return 0;
}

#endif /* __HETERO_IDLE_BPF_H */
