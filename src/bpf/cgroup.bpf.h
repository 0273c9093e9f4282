/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cgroups: cpu.weight, flattened as scx_flatcg does it. There is one queue for
 * the tasks of all cgroups, so each task competes with a share of its own: what
 * its cgroup is entitled to, divided among the cgroup's runnable tasks by nice.
 *
 *	share = G * weight / (runnable weight in the cgroup)
 *	G     = cpu.weight, of a cgroup directly below the root
 *	      = G(parent) * cpu.weight / (cpu.weight of its active siblings), deeper
 *
 * Shares are no fractions of a whole: at the top, where tasks of the root compete
 * with cgroups as the kernel has it too, the queues' own arithmetic divides. So a
 * task in the root costs nothing here, and one directly below it two additions each
 * time it wakes and sleeps. Deeper, a cgroup that becomes active tells its parent, and
 * G is kept until somewhere some cgroup becomes active, or is no longer.
 *
 * cpu.max is not enforced; the agent names the cgroups that have one.
 */
#ifndef __HETERO_CGROUP_BPF_H
#define __HETERO_CGROUP_BPF_H

#include "state.bpf.h"

/* The root, and what has no place of its own: competes by nice alone. */
#define ROOT_CGROUP	0

/* Deeper cgroups count as part of their ancestor at this level. */
#define MAX_CGROUP_LEVEL	32

struct cgroup_ctx {
	s64 runnable;		/* shares of its runnable tasks and active children */
	u64 told;		/* what its parent was told; 0 while nothing is runnable */
	u64 share;		/* of its parent's, by cpu.weight */
	u64 flat;		/* G, as of `flat_generation` */
	u32 flat_generation;
	u32 parent;		/* ROOT_CGROUP: directly below the root */
	u32 generation;		/* changes whenever the place changes hands */
	u32 pad;
};

struct cgroup_ctx cgroup_ctxs[MAX_CGROUPS] SEC(".bss.cgroups");
u32 nr_cgroups_used = ROOT_CGROUP + 1;

/* Changes with the shares or the active children of any cgroup that has some. */
u32 flat_generation = 1;

/* For the agent: how often a cpu.max was written; cgroups that found no place. */
u32 nr_bandwidth_changes;
u32 nr_cgroups_left_out;

/* First in, first out: a dying task may know its place for a moment after its cgroup. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, MAX_CGROUPS);
	__type(value, u32);
} free_cgroups SEC(".maps");

/* Where a cgroup's context is. */
struct cgroup_place {
	u32 index;
	bool shared;	/* its parent's */
};

/* As task_ctxs, it outlives a restart. */
struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct cgroup_place);
} cgroup_places SEC(".maps");

static struct cgroup_ctx *cgroup_ctx_of(u32 index)
{
	return MEMBER_VPTR(cgroup_ctxs, [index]);
}

static u32 cgroup_index(struct cgroup *cgrp)
{
	struct cgroup_place *place = bpf_cgrp_storage_get(&cgroup_places, cgrp, 0, 0);

	return place ? place->index : ROOT_CGROUP;
}

/* What it counts for among its siblings at this moment. */
static u64 active_share(struct cgroup_ctx *c)
{
	return READ_ONCE(c->runnable) > 0 ? READ_ONCE(c->share) : 0;
}

/*
 * The cgroup at @index may have become active, or no longer be: tell its parent, and
 * so on upwards. Without a lock: what a parent was told is exchanged, so the sums add
 * up whatever else is at it, and the last to come sees how it is and tells that.
 */
__noinline int tell_ancestors(u32 index)
{
	bool moved = false;
	u32 i;

	bpf_for(i, 0, 2 * MAX_CGROUP_LEVEL) {
		struct cgroup_ctx *c = cgroup_ctx_of(index), *parent;
		u64 share, told;

		if (!c || c->parent == ROOT_CGROUP)
			break;
		parent = cgroup_ctx_of(c->parent);
		if (!parent)
			break;
		share = active_share(c);
		told = __sync_lock_test_and_set(&c->told, share);
		if (told != share) {
			__sync_fetch_and_add(&parent->runnable, (s64)share - (s64)told);
			__sync_fetch_and_add(&flat_generation, 1);
			moved = true;
		}
		if (active_share(c) != share)
			continue;
		if (!moved)
			break;
		moved = false;
		index = c->parent;
	}
	return 0;
}

/* G of the cgroup at @index, worked out anew. */
__noinline u64 flatten(u32 index)
{
	u64 part = WHOLE, flat = 0;
	u32 i;

	bpf_for(i, 0, MAX_CGROUP_LEVEL) {
		struct cgroup_ctx *c = cgroup_ctx_of(index), *parent;

		if (!c)
			break;
		if (c->parent == ROOT_CGROUP) {
			flat = divide_share(c->share, part, WHOLE);
			break;
		}
		parent = cgroup_ctx_of(c->parent);
		if (!parent)
			break;
		part = divide_share(part, c->share, parent->runnable);
		index = c->parent;
	}
	return flat;
}

/* What a task competes with. */
static u32 share_of(struct task_ctx *tctx)
{
	u32 share = task_share(tctx->weight), generation;
	struct cgroup_ctx *c;
	u64 flat;

	if (tctx->cgroup == ROOT_CGROUP)
		return share;
	c = cgroup_ctx_of(tctx->cgroup);
	if (!c || c->generation != tctx->cgroup_generation)
		return share;
	if (c->parent == ROOT_CGROUP) {
		flat = c->share;
	} else {
		generation = READ_ONCE(flat_generation);
		if (c->flat_generation != generation) {
			c->flat = flatten(tctx->cgroup);
			c->flat_generation = generation;
		}
		flat = c->flat;
	}
	return divide_share(flat, share, c->runnable);
}

/* Tell the task's cgroup that so much of it is runnable there. */
static void count_in_cgroup(struct task_ctx *tctx, u32 share)
{
	struct cgroup_ctx *c = cgroup_ctx_of(tctx->cgroup);
	s64 delta = (s64)share - tctx->cgroup_share, before;

	if (tctx->cgroup == ROOT_CGROUP || !c || !delta)
		return;
	tctx->cgroup_share = share;
	if (c->generation != tctx->cgroup_generation)
		return;
	before = __sync_fetch_and_add(&c->runnable, delta);
	if (c->parent != ROOT_CGROUP && (before <= 0 || before + delta <= 0))
		tell_ancestors(tctx->cgroup);
}

static void join_cgroup(struct task_ctx *tctx, u32 index)
{
	struct cgroup_ctx *c = cgroup_ctx_of(index);

	tctx->cgroup = c ? index : ROOT_CGROUP;
	tctx->cgroup_generation = c ? c->generation : 0;
}

/* Kernels without CONFIG_EXT_GROUP_SCHED do not tell. */
static u32 cgroup_of_newcomer(struct scx_init_task_args *args)
{
	if (!bpf_core_field_exists(args->cgroup))
		return ROOT_CGROUP;
	return cgroup_index(args->cgroup);
}

/* A place for a cgroup of its own, or ROOT_CGROUP if there is none left. */
static u32 new_cgroup(void)
{
	u32 index = take_place(&free_cgroups, &nr_cgroups_used, MAX_CGROUPS);

	if (index < MAX_CGROUPS)
		return index;
	__sync_fetch_and_add(&nr_cgroups_left_out, 1);
	return ROOT_CGROUP;
}

/* Called for every cgroup that there is, parents first, and then as they are made. */
s32 BPF_STRUCT_OPS_SLEEPABLE(hetero_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	u32 parent = ROOT_CGROUP, index = ROOT_CGROUP;
	struct cgroup_place *place;
	struct cgroup *above;
	struct cgroup_ctx *c;

	if (!works(MECHANISM_CGROUP_WEIGHT) || cgrp->level < 1)
		return 0;
	above = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
	if (above) {
		parent = cgroup_index(above);
		bpf_cgroup_release(above);
	}
	place = bpf_cgrp_storage_get(&cgroup_places, cgrp, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!place)
		return -ENOMEM;
	if (cgrp->level <= MAX_CGROUP_LEVEL)
		index = new_cgroup();
	c = cgroup_ctx_of(index);
	if (index == ROOT_CGROUP || !c) {
		place->index = parent;
		place->shared = true;
		return 0;
	}
	c->runnable = 0;
	c->told = 0;
	c->share = cgroup_share(args->weight);
	c->flat_generation = 0;
	c->parent = parent;
	place->index = index;
	place->shared = false;
	return 0;
}

/* Its tasks are gone, but for some that are dying: they count no more. */
void BPF_STRUCT_OPS(hetero_cgroup_exit, struct cgroup *cgrp)
{
	struct cgroup_place *place = bpf_cgrp_storage_get(&cgroup_places, cgrp, 0, 0);
	struct cgroup_ctx *c;
	u32 index;

	if (!place || place->shared)
		return;
	index = place->index;
	c = cgroup_ctx_of(index);
	if (index == ROOT_CGROUP || !c)
		return;
	place->index = ROOT_CGROUP;
	c->generation++;
	c->runnable = 0;
	tell_ancestors(index);
	bpf_map_push_elem(&free_cgroups, &index, 0);
}

void BPF_STRUCT_OPS(hetero_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	struct cgroup_place *place = bpf_cgrp_storage_get(&cgroup_places, cgrp, 0, 0);
	struct cgroup_ctx *c;

	if (!place || place->shared)
		return;
	c = cgroup_ctx_of(place->index);
	if (place->index == ROOT_CGROUP || !c)
		return;
	c->share = cgroup_share(weight);
	__sync_fetch_and_add(&flat_generation, 1);
	tell_ancestors(place->index);
}

void BPF_STRUCT_OPS(hetero_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
		    u64 burst_us)
{
	__sync_fetch_and_add(&nr_bandwidth_changes, 1);
}

#endif /* __HETERO_CGROUP_BPF_H */
