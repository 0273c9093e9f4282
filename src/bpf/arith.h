/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler's arithmetic, free of BPF: `cargo test` and the simulator
 * compile this same file natively.
 *
 * Virtual time runs like the real clock. A task that runs for r ns is charged
 *
 *	r * W / (w * n)
 *
 * where w is its weight, and W the runnable weight that competes for the n
 * CPUs it shares. That is the time in which its fair share comes to r: while
 * every task gets a fair share, every vtime advances like the clock. So all
 * queues have one and the same clock; changing queue needs no translation;
 * and a task cannot fall behind, or run ahead, by more than the bounds of
 * place_vtime(), however unevenly affinities load the CPUs.
 *
 * A sleeping task accrues no vtime while the clock advances, so beside tasks that
 * often sleep all others would fall behind it, and end up at that bound, where
 * weights mean little. Therefore the clock is set, a little at a time, by those
 * that run: see clock_step().
 */
#ifndef __HETERO_ARITH_H
#define __HETERO_ARITH_H

#include "intf.h"

#define WEIGHT_NICE_0		1024
#define WEIGHT_IDLE_POLICY	3
#define MAX_RT_PRIO		100
#define NR_NICE			40

/*
 * Weights are compared with so many bits below one, because a cgroup's weight is
 * divided among its tasks. WEIGHT_NICE_0 << SHARE_SHIFT is a task of nice 0 in
 * the root cgroup, or a cgroup directly below it whose cpu.weight is the default.
 */
#define SHARE_SHIFT		10
#define CGROUP_WEIGHT_DFL	100

/* A whole, in parts of 2^30. */
#define WHOLE			(1ULL << 30)

/* One, as the factor from shares to the weights that policies see; Q16. */
#define ENTITLEMENT_ONE		(1 << 16)

/* The furthest that a task's weight alone may put its turn off, or bring it forward. */
#define MAX_LEAD_NS		(2ULL * 1000 * 1000 * 1000)

/*
 * The kernel's own table (sched_prio_to_weight): each step of nice is a factor
 * of 1.25. p->scx.weight is a hundredth of it, too coarse for nice 19.
 */
static const u32 nice_to_weight[NR_NICE] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277,
	1024, 820, 655, 526, 423, 335, 272, 215, 172, 137,
	110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
};

/* Weight of a task with this static priority (100 is nice -20, 139 is nice 19). */
static inline u32 task_weight(int static_prio, bool idle_policy)
{
	u32 i = static_prio - MAX_RT_PRIO;

	if (idle_policy)
		return WEIGHT_IDLE_POLICY;
	return i < NR_NICE ? nice_to_weight[i] : WEIGHT_NICE_0;
}

/*
 * @weight times a rule's, of RULE_WEIGHT_ONE (0: there is none); what nice can give bounds it, and so
 * all that is made of weights.
 */
static inline u32 ruled_weight(u32 weight, u32 rule_weight)
{
	u64 ruled = (u64)weight * rule_weight / RULE_WEIGHT_ONE;
	u32 most = nice_to_weight[0];

	if (!rule_weight)
		return weight;
	if (ruled < WEIGHT_IDLE_POLICY)
		return WEIGHT_IDLE_POLICY;
	return ruled < most ? ruled : most;
}

/* A task's share of CPU time where no cgroup has a say. */
static inline u32 task_share(u32 weight)
{
	return weight << SHARE_SHIFT;
}

/* What cpu.weight, 1 to 10000, makes a cgroup's share of its parent's. */
static inline u32 cgroup_share(u32 weight)
{
	return ((u64)weight * WEIGHT_NICE_0 << SHARE_SHIFT) / CGROUP_WEIGHT_DFL;
}

/*
 * What of @whole falls to one of share @share among runnable siblings whose shares,
 * its own included, come to @siblings. Never nothing, and never more than all of
 * it, should the sum lag behind. @whole and @share lie below 2^32.
 */
static inline u64 divide_share(u64 whole, u64 share, s64 siblings)
{
	u64 part;

	if (siblings < 0 || (u64)siblings <= share)
		return whole;
	part = whole * share / siblings;
	return part ? part : 1;
}

/*
 * Virtual time that @run_ns costs a task of weight @weight while weight
 * @competing (its own included) shares @nr_cpus CPUs. Never less than real
 * time: one thread cannot use more than one CPU. @run_ns lies below 2^32.
 */
static inline u64 charge_vtime(u64 run_ns, u32 weight, u64 competing, u32 nr_cpus)
{
	u64 fair = (u64)weight * nr_cpus, times;

	if (!fair || competing <= fair)
		return run_ns;
	/* Whole part and remainder apart, and both bounded, so that no product overflows. */
	if (fair >> 32) {
		fair >>= 10;
		competing >>= 10;
	}
	times = competing / fair;
	if (times >> 30)
		times = 1 << 30;
	return run_ns * times + run_ns * (competing % fair) / fair;
}

/*
 * The factor by which shares become weights whose mean over all runnable tasks is
 * that of their weights by nice: in all @weight and, by nice, @surplus more. Taken
 * over from @last a little at a time, for which are runnable changes all the while. Q16.
 */
static inline u32 entitlement_factor(u32 last, u64 weight, s64 surplus)
{
	s64 by_nice = weight + surplus, now = ENTITLEMENT_ONE, step;

	/* Below 2^47, that is a hundred thousand tasks of the largest weight. */
	if (weight && by_nice > 0 && !((weight | by_nice) >> 47))
		now = ((u64)by_nice << 16) / weight;
	if (now >> 32)
		now = 0xffffffff;
	step = (now - (s64)last) / 8;
	return step ? last + step : now;
}

/* The weight that policies see of a task with this share, see entitlement_factor(). */
static inline u32 entitled_weight(u32 share, u32 factor)
{
	u64 weight = (u64)share * factor >> (16 + SHARE_SHIFT);

	if (weight >> 32)
		return 0xffffffff;
	return weight ? weight : 1;
}

/* The most that a CPU can be asked for, SCX_CPUPERF_ONE. */
#define PERF_ONE	1024

/*
 * How busy a CPU is, of PERF_ONE, when it ran for @busy_ns in the last @window_ns: more at
 * once, less by a quarter of the difference, for what comes back is wanted soon.
 */
static inline u32 perf_wish(u32 last, u64 busy_ns, u64 window_ns)
{
	u32 busy;

	if (busy_ns >> 40 || window_ns >> 50)
		busy_ns >>= 20, window_ns >>= 20;
	busy = window_ns && busy_ns < window_ns ? busy_ns * PERF_ONE / window_ns :
	       busy_ns ? PERF_ONE : 0;
	return busy >= last ? busy : last - (last - busy + 3) / 4;
}

/* What to ask for: a quarter of headroom, so that it is seen when more is needed. */
static inline u32 perf_request(u32 wish)
{
	u32 perf = wish + wish / 4;

	return perf < PERF_ONE ? perf : PERF_ONE;
}

/* a is before b, also across the wrap at 2^64. */
static inline bool vtime_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/*
 * Where a task may stand in a queue: at most four of its periods (the fair time
 * between two of its slices) ahead of the clock, because ticks are coarser than
 * slices and what a task overran it must be able to owe; and as much behind.
 */
static inline u64 place_vtime(u64 vtime, u64 now, u64 period_ns)
{
	u64 bound = period_ns < MAX_LEAD_NS / 4 ? 4 * period_ns : MAX_LEAD_NS;

	if (vtime_before(vtime, now - bound))
		return now - bound;
	if (vtime_before(now + bound, vtime))
		return now + bound;
	return vtime;
}

/* A task that slept has no claim to that time: it comes back at most one slice in the past. */
static inline u64 wake_vtime(u64 vtime, u64 now, u64 slice_ns)
{
	return vtime_before(vtime, now - slice_ns) ? now - slice_ns : vtime;
}

/*
 * The key of the queues: the virtual time at which a task that ran for as long as it usually
 * does between two sleeps, @burst_ns (0: it has not slept yet), would be even again. Of two that
 * are owed the same, the one with less to do goes first. No task asks for more than one slice at
 * a time, so it puts no turn off by more than a period, and since only real run time is charged
 * no share changes.
 */
static inline u64 deadline_of(u64 vtime, u64 burst_ns, u64 slice_ns, u64 period_ns)
{
	if (period_ns > MAX_LEAD_NS / 4)
		period_ns = MAX_LEAD_NS / 4;
	if (!burst_ns || burst_ns >= slice_ns)
		return vtime + period_ns;
	return vtime + period_ns * burst_ns / slice_ns;
}

/* By so much a task's turn is put off while it holds an RCU read-side section open. */
#define MAX_RCU_WAIT_NS		(20ULL * 1000 * 1000)

/* If that lasts for so long, it goes first; the kernel's real-time variant boosts it then, too. */
#define MAX_RCU_HELD_NS		(500ULL * 1000 * 1000)

/*
 * By so much at most the turn of the agent's threads at idle priority is put off: beside twelve others on four CPUs
 * each gets 7 % of one.
 */
#define MAX_AGENT_WAIT_NS	(100ULL * 1000 * 1000)

/*
 * And that of kernel threads, which may hold what programs wait for: khugepaged (nice 19) holds a program's memory,
 * and by its weight alone kept a video for two seconds from going on beside a crowd.
 */
#define MAX_KTHREAD_WAIT_NS	(20ULL * 1000 * 1000)

/*
 * When it is the turn, at @deadline or before, of a task that has held an RCU read-side section
 * open since @since. In a long queue half of the tasks may be behind the clock, and by the clock
 * alone it waits for them all.
 */
static inline u64 rcu_deadline(u64 deadline, u64 now, u64 since)
{
	u64 latest = vtime_before(since + MAX_RCU_HELD_NS, now) ? now - MAX_LEAD_NS :
								  now + MAX_RCU_WAIT_NS;

	return vtime_before(latest, deadline) ? latest : deadline;
}

/*
 * How long a task mostly runs between two sleeps, @mean until it ran for @ran more; 0: it has not
 * slept yet. The first time counts in full, but none for more than @most: what computed once, for
 * however long, is soon known to be brief.
 */
static inline u64 mean_burst(u64 mean, u64 ran, u64 most)
{
	if (ran > most)
		ran = most;
	mean = mean ? (3 * mean + ran) / 4 : ran;
	return mean ? mean : 1;
}

/*
 * By how much the clock is set forward, or back, when a CPU's tick finds its task,
 * which has run for @run_ns since the last one, ahead of it by @lead: a sixteenth of
 * that per round of all @nr_cpus. While all are busy, vtimes advance no faster than
 * real time, on average: so the clock may go at half speed, but hardly faster. In a
 * crowd they advance much slower, for no task pays for more than MAX_LEAD_NS at once,
 * and all would stay behind: there it may nearly stand.
 */
static inline s64 clock_step(s64 lead, u64 run_ns, u32 nr_cpus)
{
	u64 away = lead < 0 ? -(u64)lead : (u64)lead;
	u64 most = lead >= 0 ? run_ns / 16 :
		   away < MAX_LEAD_NS / 4 ? run_ns / 2 : run_ns - run_ns / 16;

	away /= 16;
	if (away > most)
		away = most;
	/* BPF divides no signed numbers. */
	away /= nr_cpus ? nr_cpus : 1;
	return lead < 0 ? -(s64)away : (s64)away;
}

/*
 * CAMPS (Garcia-Garcia et al., 2018), Eq. 3: progress is work at the speed of
 * the fastest type in isolation, so run time over slowdown, over weight. TLP
 * scaling (section 4.5): of more runnable threads than there are CPUs of that
 * type, @nr_fast, some had to wait or to run elsewhere even in isolation, so
 * CS' = max(1, CS * nr_fast / n). The paper's max(1, CS / n) would take four
 * times slower for undisturbed where four fast CPUs could have run all four.
 * @inv_slowdown is Q16; 0 means "not known": 1.
 */
static inline u64 charge_progress(u64 run_ns, u32 inv_slowdown, u32 nr_runnable, u32 nr_fast,
				  u32 weight)
{
	u64 inv = inv_slowdown;

	if (nr_fast && nr_runnable > nr_fast)
		inv = inv * nr_runnable / nr_fast;
	if (!inv || inv > INV_SLOWDOWN_ONE)
		inv = INV_SLOWDOWN_ONE;
	if (!weight)
		weight = WEIGHT_NICE_0;
	return (run_ns * inv >> 16) * WEIGHT_NICE_0 / weight;
}

/*
 * How far a task's time on the fastest type is ahead of its part of what it ran;
 * @big_part is that type's part of the machine, Q16. Forgotten over four seconds of
 * run time: where some cannot move all others fall behind alike, and a newcomer, which
 * starts at 0, is soon one of them.
 */
static inline s64 charge_surplus(s64 surplus, u64 run_ns, bool big, u32 big_part)
{
	s64 fair, ran;

	if (run_ns > 1ULL << 32)
		run_ns = 1ULL << 32;
	ran = run_ns;
	fair = ran * big_part >> 16;
	surplus += big ? ran - fair : -fair;
	return surplus - (surplus >> 16) * (ran >> 16);
}

/*
 * What @run_ns on a core type comes to on the fastest one, by 1/slowdown on both (0: not known),
 * whose ratio leaves out what contention does on either.
 */
static inline u64 fastest_ns(u64 run_ns, u32 inv_slowdown, u32 inv_on_fastest)
{
	if (!inv_slowdown || inv_slowdown >= inv_on_fastest || run_ns >> 32)
		return run_ns;
	return run_ns * inv_slowdown / inv_on_fastest;
}

/*
 * For how long @work_ns uses up an allotment of so many CPUs of the fastest type, of ALLOTMENT_ONE: the
 * step of a leaky bucket that fills as time goes on.
 */
static inline u64 allotted_ns(u64 work_ns, u32 allotment)
{
	if (!allotment || work_ns >> 32)
		return work_ns;
	return work_ns * ALLOTMENT_ONE / allotment;
}

/* Run time since the last look; 0 if the clock was set back under us. */
static inline u64 run_delta(u64 sum_exec, u64 last)
{
	return sum_exec > last ? sum_exec - last : 0;
}

/*
 * Weight @a on @cpus_a CPUs is more crowded than weight @b on @cpus_b. Nothing is more crowded than where there
 * is no CPU, whatever weighs there.
 */
static inline bool more_crowded(u64 a, u32 cpus_a, u64 b, u32 cpus_b)
{
	/* Without a branch: each costs the verifier. */
	u64 none = ((u64)cpus_a - 1) >> 63;

	return (a + none) * cpus_b > b * cpus_a;
}

#endif /* __HETERO_ARITH_H */
