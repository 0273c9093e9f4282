/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sessions: threads that have a goal together, and for it an allotment of CPU time, in CPUs of the
 * fastest core type. They pay for what they run by how far they got, as the fastest type would take for
 * it: so an allotment is the same work on every core type, where Sironi's (section III) is of whole
 * cores. It is a leaky bucket: `paid_until` moves on by work / allotment, and is no further behind the
 * clock than MAX_CREDIT_NS. Ahead of it, the allotment is used up: used_up.bpf.h.
 */
#ifndef __HETERO_SESSION_BPF_H
#define __HETERO_SESSION_BPF_H

#include "heartbeat.bpf.h"

/* What a session may save up: threads that sleep between frames get these at their own pace. */
#define MAX_CREDIT_NS		(50ULL * 1000 * 1000)

/* No task is held for longer than this, whatever it owes: a session can owe no more. */
#define MAX_DEBT_NS		(100ULL * 1000 * 1000)

struct goal_session sessions[MAX_SESSIONS] SEC(".bss.sessions");

/* Those from here on are not in use; written by the agent. 0 keeps all of this out of the way. */
u32 nr_sessions;

/* What @tctx belongs to, if that has an allotment. To be asked only where there are any at all. */
static struct goal_session *session_of(struct task_ctx *tctx)
{
	struct task_slot *s = slot_of(tctx->slot);
	struct goal_session *session;

	if (!s || !s->session || agent_stalled || !works(MECHANISM_GOALS))
		return NULL;
	session = MEMBER_VPTR(sessions, [s->session]);
	return session && session->allotment ? session : NULL;
}

/* The thread has done @work_ns. */
static void spend(struct task_ctx *tctx, u64 work_ns)
{
	struct goal_session *session = READ_ONCE(nr_sessions) ? session_of(tctx) : NULL;
	u64 now, until, least;

	if (!session)
		return;
	__sync_fetch_and_add(&session->spent_ns, work_ns);
	now = scx_bpf_now();
	until = READ_ONCE(session->paid_until);
	/* Of two that come by at once one sets it. */
	least = now - MAX_CREDIT_NS;
	if (vtime_before(until, least))
		__sync_val_compare_and_swap(&session->paid_until, until, least);
	else if (vtime_before(now + MAX_DEBT_NS, until))
		return;
	__sync_fetch_and_add(&session->paid_until, allotted_ns(work_ns, session->allotment));
}

/* Has its session some of its allotment left? */
static bool is_entitled(struct task_ctx *tctx)
{
	struct goal_session *session = session_of(tctx);

	return session && !vtime_before(scx_bpf_now(), session->paid_until);
}

#endif /* __HETERO_SESSION_BPF_H */
