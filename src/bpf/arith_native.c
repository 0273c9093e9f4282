/* SPDX-License-Identifier: GPL-2.0-only */
/* arith.h as ordinary functions, for src/arith.rs. */
#include "arith.h"

u32 native_task_weight(s32 static_prio, bool idle_policy)
{
	return task_weight(static_prio, idle_policy);
}

u32 native_task_share(u32 weight)
{
	return task_share(weight);
}

u32 native_cgroup_share(u32 weight)
{
	return cgroup_share(weight);
}

u64 native_divide_share(u64 whole, u64 share, s64 siblings)
{
	return divide_share(whole, share, siblings);
}

u32 native_entitlement_factor(u32 last, u64 weight, s64 surplus)
{
	return entitlement_factor(last, weight, surplus);
}

u32 native_entitled_weight(u32 share, u32 factor)
{
	return entitled_weight(share, factor);
}

u64 native_charge_vtime(u64 run_ns, u32 weight, u64 competing, u32 nr_cpus)
{
	return charge_vtime(run_ns, weight, competing, nr_cpus);
}

u64 native_place_vtime(u64 vtime, u64 now, u64 period_ns)
{
	return place_vtime(vtime, now, period_ns);
}

u64 native_wake_vtime(u64 vtime, u64 now, u64 slice_ns)
{
	return wake_vtime(vtime, now, slice_ns);
}

u64 native_mean_burst(u64 mean, u64 ran, u64 most)
{
	return mean_burst(mean, ran, most);
}

u64 native_deadline_of(u64 vtime, u64 burst_ns, u64 slice_ns, u64 period_ns)
{
	return deadline_of(vtime, burst_ns, slice_ns, period_ns);
}

u32 native_ruled_weight(u32 weight, u32 rule_weight)
{
	return ruled_weight(weight, rule_weight);
}

u64 native_rcu_deadline(u64 deadline, u64 now, u64 since)
{
	return rcu_deadline(deadline, now, since);
}

s64 native_clock_step(s64 lead, u64 run_ns, u32 nr_cpus)
{
	return clock_step(lead, run_ns, nr_cpus);
}

u32 native_perf_wish(u32 last, u64 busy_ns, u64 window_ns)
{
	return perf_wish(last, busy_ns, window_ns);
}

u32 native_perf_request(u32 wish)
{
	return perf_request(wish);
}

u64 native_charge_progress(u64 run_ns, u32 inv_slowdown, u32 nr_runnable, u32 nr_fast, u32 weight)
{
	return charge_progress(run_ns, inv_slowdown, nr_runnable, nr_fast, weight);
}

s64 native_charge_surplus(s64 surplus, u64 run_ns, bool big, u32 big_part)
{
	return charge_surplus(surplus, run_ns, big, big_part);
}

u64 native_fastest_ns(u64 run_ns, u32 inv_slowdown, u32 inv_on_fastest)
{
	return fastest_ns(run_ns, inv_slowdown, inv_on_fastest);
}

u64 native_run_delta(u64 sum_exec, u64 last)
{
	return run_delta(sum_exec, last);
}

bool native_vtime_before(u64 a, u64 b)
{
	return vtime_before(a, b);
}

bool native_more_crowded(u64 a, u32 cpus_a, u64 b, u32 cpus_b)
{
	return more_crowded(a, cpus_a, b, cpus_b);
}
