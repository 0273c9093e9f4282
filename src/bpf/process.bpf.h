/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes: how many threads of each there are, how many of them are runnable, and how many of
 * those wait actively. For TLP scaling (CAMPS, section 4.5).
 */
#ifndef __HETERO_PROCESS_BPF_H
#define __HETERO_PROCESS_BPF_H

#include "state.bpf.h"

/*
 * Threads of a process. Each knows where that is, so that the look by tgid, which costs hundreds of
 * instructions, is left to their beginning and their end.
 */
struct process_ctx {
	u32 nr_threads;
	u32 nr_runnable;
	u32 nr_spinning;	/* of the runnable ones */
	u32 pad;
};

struct process_ctx process_ctxs[MAX_PROCESSES] SEC(".bss.processes");
u32 nr_processes_used;

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, MAX_PROCESSES);
	__type(value, u32);
} free_processes SEC(".maps");

/* Places in process_ctxs by tgid, which survives the exec of a thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, u32);
	__type(value, u32);
} processes SEC(".maps");

static struct process_ctx *process_ctx_of(struct task_ctx *tctx)
{
	return MEMBER_VPTR(process_ctxs, [tctx->process]);
}

/* A place for a process; beyond the last one its threads are taken for one each. */
static u32 new_process(u32 tgid)
{
	u32 index = take_place(&free_processes, &nr_processes_used, MAX_PROCESSES);
	struct process_ctx *pctx = MEMBER_VPTR(process_ctxs, [index]);

	if (!pctx)
		return NO_PROCESS;
	if (bpf_map_update_elem(&processes, &tgid, &index, BPF_NOEXIST)) {
		bpf_map_push_elem(&free_processes, &index, 0);
		return NO_PROCESS;
	}
	pctx->nr_threads = 0;
	pctx->nr_runnable = 0;
	pctx->nr_spinning = 0;
	return index;
}

static void join_process(struct task_struct *p, struct task_ctx *tctx)
{
	u32 tgid = p->tgid, *index = bpf_map_lookup_elem(&processes, &tgid);
	struct process_ctx *pctx;

	tctx->process = index ? *index : new_process(tgid);
	pctx = process_ctx_of(tctx);
	if (pctx)
		__sync_fetch_and_add(&pctx->nr_threads, 1);
}

static void leave_process(struct task_struct *p, struct task_ctx *tctx)
{
	struct process_ctx *pctx = process_ctx_of(tctx);
	u32 tgid = p->tgid, index = tctx->process;

	tctx->process = NO_PROCESS;
	if (!pctx || __sync_fetch_and_add(&pctx->nr_threads, -1) != 1)
		return;
	bpf_map_delete_elem(&processes, &tgid);
	bpf_map_push_elem(&free_processes, &index, 0);
}

#endif /* __HETERO_PROCESS_BPF_H */
