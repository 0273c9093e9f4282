// SPDX-License-Identifier: GPL-2.0-only
//! The BPF half's arithmetic (`src/bpf/arith.h`), compiled natively: what tests
//! and simulations call is what the kernel runs.

mod native {
    unsafe extern "C" {
        pub(super) fn native_task_weight(static_prio: i32, idle_policy: bool) -> u32;
        pub(super) fn native_task_share(weight: u32) -> u32;
        pub(super) fn native_cgroup_share(weight: u32) -> u32;
        pub(super) fn native_divide_share(whole: u64, share: u64, siblings: i64) -> u64;
        pub(super) fn native_entitlement_factor(last: u32, weight: u64, surplus: i64) -> u32;
        pub(super) fn native_entitled_weight(share: u32, factor: u32) -> u32;
        pub(super) fn native_charge_vtime(
            run_ns: u64,
            weight: u32,
            competing: u64,
            nr_cpus: u32,
        ) -> u64;
        pub(super) fn native_place_vtime(vtime: u64, now: u64, period_ns: u64) -> u64;
        pub(super) fn native_wake_vtime(vtime: u64, now: u64, slice_ns: u64) -> u64;
        pub(super) fn native_mean_burst(mean: u64, ran: u64, most: u64) -> u64;
        pub(super) fn native_deadline_of(
            vtime: u64,
            burst_ns: u64,
            slice_ns: u64,
            period_ns: u64,
        ) -> u64;
        pub(super) fn native_ruled_weight(weight: u32, rule_weight: u32) -> u32;
        pub(super) fn native_rcu_deadline(deadline: u64, now: u64, since: u64) -> u64;
        pub(super) fn native_clock_step(lead: i64, run_ns: u64, nr_cpus: u32) -> i64;
        pub(super) fn native_perf_wish(last: u32, busy_ns: u64, window_ns: u64) -> u32;
        pub(super) fn native_perf_request(wish: u32) -> u32;
        pub(super) fn native_charge_progress(
            run_ns: u64,
            inv_slowdown: u32,
            nr_runnable: u32,
            nr_fast: u32,
            weight: u32,
        ) -> u64;
        pub(super) fn native_charge_surplus(
            surplus: i64,
            run_ns: u64,
            big: bool,
            big_part: u32,
        ) -> i64;
        pub(super) fn native_fastest_ns(run_ns: u64, inv_slowdown: u32, inv_on_fastest: u32)
        -> u64;
        pub(super) fn native_run_delta(sum_exec: u64, last: u64) -> u64;
        pub(super) fn native_vtime_before(a: u64, b: u64) -> bool;
        pub(super) fn native_more_crowded(a: u64, cpus_a: u32, b: u64, cpus_b: u32) -> bool;
    }
}

// SAFETY, for every call below: the functions are pure; they take and return
// integers by value, and touch no memory of ours.

/// Weight of a task: 1024 at nice 0, a factor of 1.25 per step of nice.
/// `static_prio` is the kernel's, 120 at nice 0.
pub fn task_weight(static_prio: i32, idle_policy: bool) -> u32 {
    unsafe { native::native_task_weight(static_prio, idle_policy) }
}

/// A task's share of CPU time where no cgroup has a say: its weight, with bits below one.
pub fn task_share(weight: u32) -> u32 {
    unsafe { native::native_task_share(weight) }
}

/// What `cpu.weight` makes a cgroup's share of its parent's.
pub fn cgroup_share(weight: u32) -> u32 {
    unsafe { native::native_cgroup_share(weight) }
}

/// What of `whole` falls to one of share `share` among runnable siblings whose shares, its own
/// included, come to `siblings`.
pub fn divide_share(whole: u64, share: u64, siblings: i64) -> u64 {
    unsafe { native::native_divide_share(whole, share, siblings) }
}

/// The factor, Q16, from shares to the weights that policies see, where the runnable tasks' shares
/// come to `weight` and would by nice alone come to `surplus` more; `last` is what it was.
pub fn entitlement_factor(last: u32, weight: u64, surplus: i64) -> u32 {
    unsafe { native::native_entitlement_factor(last, weight, surplus) }
}

/// The weight that policies see of a task with this share: 1024 is nice 0.
pub fn entitled_weight(share: u32, factor: u32) -> u32 {
    unsafe { native::native_entitled_weight(share, factor) }
}

/// Virtual time, ns, that running for `run_ns` costs a task of weight `weight`
/// where weight `competing`, its own included, shares `nr_cpus` CPUs.
pub fn charge_vtime(run_ns: u64, weight: u32, competing: u64, nr_cpus: u32) -> u64 {
    unsafe { native::native_charge_vtime(run_ns, weight, competing, nr_cpus) }
}

/// Where a task whose turns come every `period_ns` may stand in a queue when the clock of virtual
/// time shows `now`, ns.
pub fn place_vtime(vtime: u64, now: u64, period_ns: u64) -> u64 {
    unsafe { native::native_place_vtime(vtime, now, period_ns) }
}

/// Virtual time of a task that wakes up at `now`, ns.
pub fn wake_vtime(vtime: u64, now: u64, slice_ns: u64) -> u64 {
    unsafe { native::native_wake_vtime(vtime, now, slice_ns) }
}

/// What orders the queues: the virtual time at which a task that mostly runs for `burst_ns`
/// between two sleeps (0: it has not slept yet) will be even again, at most one period later.
pub fn deadline_of(vtime: u64, burst_ns: u64, slice_ns: u64, period_ns: u64) -> u64 {
    unsafe { native::native_deadline_of(vtime, burst_ns, slice_ns, period_ns) }
}

/// A task's weight (1024 is nice 0) where a rule gives it `rule_weight` hundredths of that; 0: none
/// does. Within what nice can give.
pub fn ruled_weight(weight: u32, rule_weight: u32) -> u32 {
    unsafe { native::native_ruled_weight(weight, rule_weight) }
}

/// [`deadline_of`] a task that holds an RCU read-side section open, `deadline`, or an earlier one:
/// others wait for that, from `since` to `now`.
pub fn rcu_deadline(deadline: u64, now: u64, since: u64) -> u64 {
    unsafe { native::native_rcu_deadline(deadline, now, since) }
}

/// How long a task mostly runs between two sleeps, ns: `mean` (0: it has not slept yet) until it
/// ran for `ran` more, which counts as no more than `most`.
pub fn mean_burst(mean: u64, ran: u64, most: u64) -> u64 {
    unsafe { native::native_mean_burst(mean, ran, most) }
}

/// By how much to put the clock of virtual time forward, ns, when a tick finds its task, which has
/// run for `run_ns` since the last one, ahead of it by `lead`.
pub fn clock_step(lead: i64, run_ns: u64, nr_cpus: u32) -> i64 {
    unsafe { native::native_clock_step(lead, run_ns, nr_cpus) }
}

/// How busy a CPU is, of 1024, when it ran for `busy_ns` in the last `window_ns`.
pub fn perf_wish(last: u32, busy_ns: u64, window_ns: u64) -> u32 {
    unsafe { native::native_perf_wish(last, busy_ns, window_ns) }
}

/// The performance to ask of a CPU that is so busy, of 1024.
pub fn perf_request(wish: u32) -> u32 {
    unsafe { native::native_perf_request(wish) }
}

/// Progress, ns at the fastest core type alone, of running for `run_ns` (CAMPS
/// 2018, Eq. 3, with the TLP scaling of section 4.5, by the number of CPUs of that type).
/// `inv_slowdown` is Q16.
pub fn charge_progress(
    run_ns: u64,
    inv_slowdown: u32,
    nr_runnable: u32,
    nr_fast: u32,
    weight: u32,
) -> u64 {
    unsafe { native::native_charge_progress(run_ns, inv_slowdown, nr_runnable, nr_fast, weight) }
}

/// By how much a task's time on the fastest core type is ahead of its part, ns, when it has run for
/// `run_ns` more, there (`big`) or elsewhere. `big_part` is that type's part of the machine, Q16.
pub fn charge_surplus(surplus: i64, run_ns: u64, big: bool, big_part: u32) -> i64 {
    unsafe { native::native_charge_surplus(surplus, run_ns, big, big_part) }
}

/// What `run_ns` on a core type comes to on the fastest one, ns, by 1/slowdown on both, Q16; 0: not
/// known.
pub fn fastest_ns(run_ns: u64, inv_slowdown: u32, inv_on_fastest: u32) -> u64 {
    unsafe { native::native_fastest_ns(run_ns, inv_slowdown, inv_on_fastest) }
}

/// Run time, ns, since it was `last`.
pub fn run_delta(sum_exec: u64, last: u64) -> u64 {
    unsafe { native::native_run_delta(sum_exec, last) }
}

/// Whether virtual time `a` comes before `b`, also across the wrap.
pub fn vtime_before(a: u64, b: u64) -> bool {
    unsafe { native::native_vtime_before(a, b) }
}

/// Whether weight `a` on `cpus_a` CPUs is more crowded than `b` on `cpus_b`.
pub fn more_crowded(a: u64, cpus_a: u32, b: u64, cpus_b: u32) -> bool {
    unsafe { native::native_more_crowded(a, cpus_a, b, cpus_b) }
}

/// `src/bpf/forest.h`, compiled natively.
pub mod forest {
    use crate::ml::forest::{Features, Forest};

    unsafe extern "C" {
        fn native_forest_size() -> u32;
        fn native_forest_feature(count: u64, instructions: u64) -> u32;
        fn native_forest_score(forest: *const Forest, features: *const u32) -> i64;
    }

    /// Bytes of `struct forest`.
    pub fn size() -> usize {
        // SAFETY: it returns a constant.
        unsafe { native_forest_size() as usize }
    }

    /// See [`crate::ml::fixed::feature`].
    pub fn feature(count: u64, instructions: u64) -> u32 {
        // SAFETY: a pure function of integers.
        unsafe { native_forest_feature(count, instructions) }
    }

    /// See [`Forest::score`].
    pub fn score(forest: &Forest, features: &Features) -> i64 {
        // SAFETY: both live through the call, are only read, and have the layout of the header:
        // `size` is tested, and there are as many features as the header says.
        unsafe { native_forest_score(forest, features.as_ptr()) }
    }
}
