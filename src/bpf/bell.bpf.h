/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * While hardly anything runs the agent sleeps, and looks less than once a second. What begins to
 * compute meanwhile rings for it, and so does the end of the scheduler.
 */
#ifndef __HETERO_BELL_BPF_H
#define __HETERO_BELL_BPF_H

#include "heartbeat.bpf.h"

/* A task that has run for so long since it woke up computes. */
#define COMPUTES_AFTER_NS	(50ULL * 1000 * 1000)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} bell SEC(".maps");

static void ring_bell(void)
{
	u32 *word = bpf_ringbuf_reserve(&bell, sizeof(*word), 0);

	if (!word)
		return;
	*word = 0;
	bpf_ringbuf_submit(word, BPF_RB_FORCE_WAKEUP);
}

/* From the tick. From now on the agent's silence counts. */
static void wake_agent(struct task_ctx *tctx)
{
	if (!agent_sleeps || tctx->run_ns - tctx->woke_at_ns < COMPUTES_AFTER_NS)
		return;
	agent_seen = bpf_ktime_get_ns();
	if (__sync_val_compare_and_swap(&agent_sleeps, true, false))
		ring_bell();
}

#endif /* __HETERO_BELL_BPF_H */
