/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spin notifications (CAMPS, section 4.5): a thread that waits actively says so in
 * a word of its own memory, which is looked at when the thread is charged. What it
 * retires meanwhile is no progress. docs/spin.md tells how a thread says it.
 */
#ifndef __HETERO_SPIN_BPF_H
#define __HETERO_SPIN_BPF_H

#include "process.bpf.h"

/* Beside those of its process that work: what TLP scaling counts. */
static void note_spinning(struct task_ctx *tctx, bool spinning)
{
	struct task_slot *s = slot_of(tctx->slot);
	struct process_ctx *pctx;

	if (tctx->spinning == spinning)
		return;
	tctx->spinning = spinning;
	pctx = process_ctx_of(tctx);
	if (pctx)
		__sync_fetch_and_add(&pctx->nr_spinning, spinning ? 1 : -1);
	if (!s)
		return;
	slot_write_begin(s);
	s->spinning = spinning;
	slot_write_end(s);
}

/* Does @p, which ran on a core of @type until now, wait actively? */
static bool look_for_spin(struct task_struct *p, struct task_ctx *tctx, u32 type)
{
	struct account *a = MEMBER_VPTR(tctx->accounts, [type]);
	u32 word = 0;

	if (!tctx->spin_word || !works(MECHANISM_SPIN))
		return false;
	/*
	 * A change of its priority or affinity charges a task from another CPU, where
	 * the address means the memory of another process.
	 */
	if ((u32)bpf_get_current_pid_tgid() != p->pid)
		return tctx->spinning;
	/* Since an exec, too, it means another memory. A task can lie only about itself. */
	if (p->self_exec_id != tctx->spin_exec_id)
		tctx->spin_word = 0;
	else if (bpf_probe_read_user(&word, sizeof(word), (void *)tctx->spin_word))
		word = 0;
	note_spinning(tctx, word != 0);
	if (word && a)
		a->spun = true;
	return word != 0;
}

/* Runnable threads of a process, but for those that spin. */
static u32 nr_working(struct process_ctx *pctx)
{
	s32 nr = pctx ? (s32)pctx->nr_runnable - (s32)pctx->nr_spinning : 1;

	return nr > 1 ? nr : 1;
}

/*
 * A thread registers its word; 0 takes that back. What is kept lies with the task,
 * so it ends when the task does.
 */
SEC("syscall")
int register_spin(struct spin_request *request)
{
	struct task_struct *p = bpf_task_from_pid(request->tid);
	struct task_ctx *tctx;
	int err = -ESRCH;

	if (!p)
		return err;
	if (p->tgid == request->tgid) {
		tctx = bpf_task_storage_get(&task_ctxs, p, 0, 0);
		if (tctx) {
			tctx->spin_exec_id = p->self_exec_id;
			tctx->spin_word = request->address;
			err = 0;
		}
	}
	bpf_task_release(p);
	return err;
}

#endif /* __HETERO_SPIN_BPF_H */
