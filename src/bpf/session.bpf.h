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

/* One that owes no more than this goes on: it is not worth a timer. */
#define LEAST_DEBT_NS		(1000ULL * 1000)

/* A session can owe no more. */
#define MAX_DEBT_NS		(100ULL * 1000 * 1000)

/* No task is held for longer than this: until the debt is paid, which grows for two ticks more at most. */
#define MAX_HELD_NS		(MAX_DEBT_NS + 20ULL * 1000 * 1000)

struct goal_session sessions[MAX_SESSIONS] SEC(".bss.sessions");

/* Those from here on are not in use; written by the agent. 0 keeps all of this out of the way. */
u32 nr_sessions;

/* The id of the session that @tctx belongs to, or 0 for none; it may have ended. */
static u32 session_of(struct task_ctx *tctx)
{
	struct task_slot *s;

	if (!READ_ONCE(nr_sessions) || agent_stalled || !works(MECHANISM_GOALS))
		return 0;
	s = slot_of(tctx->slot);
	return s ? s->session : tctx->session;
}

static struct goal_session *allotted(u32 id)
{
	struct goal_session *session = MEMBER_VPTR(sessions, [id % MAX_SESSIONS]);

	return session && session->id == id && session->allotment ? session : NULL;
}

/*
 * @p has just been made by the task that runs here. So what lives too briefly for the agent to see is
 * in its session all the same, and a thread pays from its first instruction on.
 */
static void inherit_session(struct task_struct *p, struct task_ctx *tctx)
{
	struct task_struct *maker = bpf_get_current_task_btf();
	struct goal_session *session;
	struct task_ctx *makers;
	u32 id;

	if (!READ_ONCE(nr_sessions))
		return;
	makers = task_ctx_of(maker);
	if (!makers || !(id = session_of(makers)))
		return;
	session = allotted(id);
	if (session && session->heirs >= (maker->tgid == p->tgid ? HEIRS_THREADS : HEIRS_CHILDREN))
		tctx->session = id;
}

/* A task belongs to a session though it has no slot: the agent knows it by its id. */
SEC("syscall")
int join_session(struct session_request *request)
{
	struct task_struct *p = bpf_task_from_pid(request->tid);
	struct task_ctx *tctx;
	struct task_slot *s;
	int err = -ESRCH;

	if (!p)
		return err;
	tctx = task_ctx_of(p);
	if (tctx && p->tgid == request->tgid) {
		tctx->session = request->session;
		s = slot_of(tctx->slot);
		if (s)
			s->session = request->session;
		err = 0;
	}
	bpf_task_release(p);
	return err;
}

/* A thread of session @id has done @work_ns. Global, as is what follows: the verifier checks it once. */
__noinline int spend(u32 id, u64 work_ns)
{
	struct goal_session *session = allotted(id);
	u64 now, until, least, step;

	if (!session)
		return 0;
	__sync_fetch_and_add(&session->spent_ns, work_ns);
	now = scx_bpf_now();
	until = READ_ONCE(session->paid_until);
	least = now - MAX_CREDIT_NS;
	/* Of two that come by at once one sets it. */
	if (vtime_before(until, least)) {
		__sync_val_compare_and_swap(&session->paid_until, until, least);
		until = least;
	} else if (vtime_before(now + MAX_DEBT_NS, until)) {
		return 0;
	}
	/* What a hundredth of a CPU takes seconds to pay is not to be paid by what is allotted next. */
	step = allotted_ns(work_ns, session->allotment);
	if (step > now + MAX_DEBT_NS - until)
		step = now + MAX_DEBT_NS - until;
	__sync_fetch_and_add(&session->paid_until, step);
	return 0;
}

/* Has what has waited since @held_since for its session's allotment, and not run since, waited for too long? */
static bool held_for_too_long(u64 held_since, u64 now)
{
	return held_since && !vtime_before(now, held_since + MAX_HELD_NS);
}

/* Slices by which threads with an allotment that are confined to some CPUs come before others. */
#define CONFINED_LEAD		9

/*
 * By how much a task of session @id comes before others, ns: the furthest lead, and how much is left of its
 * allotment, up to MAX_CREDIT_NS. 0 if that is used up, and others come first. Not before a task that was held
 * for it (@held_since), though another has spent some since it was let go. What is confined, to one CPU or a
 * set of them, may never use its allotment up: one confined to the same CPU is left a quarter.
 */
__noinline u64 lead_of(u32 id, u64 held_since, s32 pinned_cpu, u32 cpu_set)
{
	struct goal_session *session = allotted(id);
	u64 now = scx_bpf_now(), until, credit = 0;

	if (!session)
		return 0;
	until = READ_ONCE(session->paid_until);
	if (vtime_before(now + LEAST_DEBT_NS, until)) {
		if (!held_since || held_for_too_long(held_since, now))
			return 0;
	} else if (!vtime_before(now, until)) {
		credit = now - until < MAX_CREDIT_NS ? now - until : MAX_CREDIT_NS;
	}
	if (pinned_cpu != NO_CPU || cpu_set != ANY_CPU)
		return CONFINED_LEAD * slice_ns;
	return MAX_LEAD_NS + credit;
}

/*
 * Until when session @id has used its allotment up, ns, and a task of it that waits since @held_since (or 0)
 * is to wait; 0: it is not to. What cannot be held may spend all there is, so no task waits for ever.
 */
__noinline u64 used_up_until(u32 id, u64 held_since)
{
	struct goal_session *session = allotted(id);
	u64 now = scx_bpf_now(), last = (held_since ?: now) + MAX_HELD_NS, until;

	if (!session || session->gets_more || held_for_too_long(held_since, now))
		return 0;
	until = READ_ONCE(session->paid_until);
	if (!vtime_before(now + LEAST_DEBT_NS, until))
		return 0;
	return vtime_before(last, until) ? last : until;
}

#endif /* __HETERO_SESSION_BPF_H */
