/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPU frequency. The kernel asks every CPU for its maximum while a sched_ext scheduler is
 * attached, unless that says how much each needs: what it is busy, and a quarter more, up at
 * once and down slowly. Looked at by the tick and when a CPU goes idle, at most once in
 * PERF_WINDOW_NS; an idle CPU that still asks for more than the least is looked at once more, by
 * a timer.
 */
#ifndef __HETERO_CPUPERF_BPF_H
#define __HETERO_CPUPERF_BPF_H

#include "state.bpf.h"

#define PERF_WINDOW_NS		(8ULL * 1000 * 1000)
#define PERF_IDLE_NS		(100ULL * 1000 * 1000)

/* Changes smaller than this are not worth asking for. */
#define PERF_STEP		(PERF_ONE / 16)

void scx_bpf_cpuperf_set___optional(s32 cpu, u32 perf) __ksym __weak;

struct perf_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct perf_timer);
} perf_timers SEC(".maps");

static bool can_set_perf(void)
{
	return works(MECHANISM_CPUPERF) && bpf_ksym_exists(scx_bpf_cpuperf_set___optional);
}

static void request_perf(struct cpu_ctx *cctx, s32 cpu, u32 perf)
{
	cctx->perf = perf;
	scx_bpf_cpuperf_set___optional(cpu, perf);
}

static u64 busy_ns_of(struct cpu_ctx *cctx, s32 cpu)
{
	u64 *busy_ns = MEMBER_VPTR(cctx->busy_ns, [type_of_cpu(cpu)]);

	return busy_ns ? *busy_ns : 0;
}

/* Ends the window, if it is long enough, and begins the next. All times are of one clock, scx_bpf_now(). */
static bool end_perf_window(struct cpu_ctx *cctx, s32 cpu)
{
	u64 now = scx_bpf_now(), passed = now - cctx->perf_at, busy_ns;

	/* The clocks of two CPUs may differ by a little: the timer runs on any. */
	if ((s64)passed < (s64)PERF_WINDOW_NS)
		return false;
	busy_ns = busy_ns_of(cctx, cpu);
	cctx->perf_wish = perf_wish(cctx->perf_wish, busy_ns - cctx->perf_busy_ns, passed);
	cctx->perf_at = now;
	cctx->perf_busy_ns = busy_ns;
	return true;
}

/*
 * @cpu leaves idle: what it slept ends the window, or its first tick would take a CPU that is busy
 * since for one that is mostly idle. Nothing is asked for here; what comes next knows more.
 */
static void leave_idle_perf(s32 cpu)
{
	if (can_set_perf())
		end_perf_window(cpu_ctx_of(cpu), cpu);
}

/* @cpu is at a tick, or (@idle) has nothing more to do. After charge(). */
static void update_perf(s32 cpu, bool idle)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	struct perf_timer *timer;
	bool ended;
	u32 perf;

	if (!can_set_perf())
		return;
	ended = end_perf_window(cctx, cpu);
	/*
	 * More also where no window ended: of a CPU that works in bursts shorter than one, each ends as it
	 * leaves idle, and only then.
	 */
	perf = perf_request(cctx->perf_wish);
	if (perf != cctx->perf && (perf == PERF_ONE || perf > cctx->perf + PERF_STEP ||
				   (ended && perf + PERF_STEP < cctx->perf)))
		request_perf(cctx, cpu, perf);
	if (!idle || !cctx->perf || cctx->perf_timer_runs)
		return;
	timer = bpf_map_lookup_elem(&perf_timers, &cpu);
	if (timer && !bpf_timer_start(&timer->timer, PERF_IDLE_NS, 0))
		cctx->perf_timer_runs = true;
}

/* A while after @cpu went idle: if it has slept since, or hardly run, it needs nothing. */
static int look_at_idle(void *map, int *key, struct perf_timer *timer)
{
	struct cpu_ctx *cctx = cpu_ctx_of(*key);

	/* It went idle again only just now, and nothing else will come by. */
	if (cctx->is_idle && (s64)(scx_bpf_now() - cctx->perf_at) < (s64)PERF_IDLE_NS / 2 &&
	    !bpf_timer_start(&timer->timer, PERF_IDLE_NS, 0))
		return 0;
	cctx->perf_timer_runs = false;
	if (cctx->is_idle) {
		cctx->perf_wish = 0;
		request_perf(cctx, *key, 0);
	}
	return 0;
}

static void init_cpuperf(void)
{
	u32 i;

	if (!can_set_perf())
		return;
	bpf_for(i, 0, nr_cpu_ids) {
		struct perf_timer *timer = bpf_map_lookup_elem(&perf_timers, &i);

		if (!timer)
			return;
		bpf_timer_init(&timer->timer, &perf_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&timer->timer, look_at_idle);
		if (domain_of_cpu(i) < MAX_DOMAINS)
			scx_bpf_cpuperf_set___optional(i, 0);
	}
}

#endif /* __HETERO_CPUPERF_BPF_H */
