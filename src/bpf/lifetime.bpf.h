/* SPDX-License-Identifier: GPL-2.0-only */
/* The operations by which the kernel tells that a task begins, ends, or is changed from outside. */
#ifndef __HETERO_LIFETIME_BPF_H
#define __HETERO_LIFETIME_BPF_H

#include "cgroup.bpf.h"
#include "counters.bpf.h"
#include "compete.bpf.h"

void BPF_STRUCT_OPS(hetero_set_weight, struct task_struct *p, u32 weight)
{
	struct task_ctx *tctx = task_ctx_of(p);

	if (tctx)
		read_weight(p, tctx);
}

void BPF_STRUCT_OPS(hetero_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	struct task_ctx *tctx = task_ctx_of(p);

	if (tctx)
		read_affinity(p, tctx, cpumask);
}

/* The kernel takes a runnable task off its queue for this, and puts it back after it. */
void BPF_STRUCT_OPS(hetero_cgroup_move, struct task_struct *p, struct cgroup *from,
		    struct cgroup *to)
{
	struct task_ctx *tctx = task_ctx_of(p);

	if (!tctx)
		return;
	count_in_cgroup(tctx, 0);
	join_cgroup(tctx, cgroup_index(to));
	if (tctx->competes)
		count_in_cgroup(tctx, task_share(tctx->weight));
	refresh_share(tctx);
}

void BPF_STRUCT_OPS(hetero_enable, struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx_of(p);

	if (!tctx)
		return;
	tctx->vtime = clock_now();
	tctx->domain = domain_of_cpu(scx_bpf_task_cpu(p));
	read_weight(p, tctx);
	read_affinity(p, tctx, p->cpus_ptr);
}

/* It goes to another scheduling class, perhaps out of a queue, or ends. */
void BPF_STRUCT_OPS(hetero_disable, struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx_of(p);

	if (tctx && tctx->competes)
		retire(tctx);
}

s32 BPF_STRUCT_OPS(hetero_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *tctx = bpf_task_storage_get(&task_ctxs, p, 0,
						     BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!tctx)
		return -ENOMEM;
	/* One that was stored before a restart is found again as it was. */
	if (bpf_probe_read_kernel(tctx, sizeof(*tctx), &newcomer))
		return -EFAULT;
	tctx->is_agent = p->tgid == agent_tgid;
	tctx->exec_seen = p->se.sum_exec_runtime;
	join_cgroup(tctx, cgroup_of_newcomer(args));
	find_slot_again(p, tctx);
	join_process(p, tctx);
	if (args->fork)
		inherit_session(p, tctx);
	return 0;
}

/* Not in the kernel's type information. */
#define TASK_DEAD 0x80

/*
 * It will not run again. Before Linux 6.19 ops.exit_task comes when the last reference to the task goes, which
 * may be two seconds later on busy CPUs: until then policies would keep a place for it.
 */
static void end_task(struct task_struct *p, struct task_ctx *tctx)
{
	flush_counting(p, tctx);
	give_back_slot(tctx);
}

void BPF_STRUCT_OPS(hetero_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task_ctx *tctx = task_ctx_of(p);
	/* Else the scheduler does; one that starts anew goes on with what is known of the task. */
	bool ends = p->flags & PF_EXITING;

	if (!tctx)
		return;
	if (ends)
		end_task(p, tctx);
	else
		flush_counting(p, tctx);
	leave_process(p, tctx);
}

#endif /* __HETERO_LIFETIME_BPF_H */
