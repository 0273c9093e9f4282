// SPDX-License-Identifier: GPL-2.0-only
//! The BPF half's arithmetic, compiled natively.

use scx_hetero::arith::*;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const ONE: u32 = 1 << 16;

#[test]
fn weights_follow_the_kernels_table() {
    assert_eq!(task_weight(100, false), 88761);
    assert_eq!(task_weight(120, false), 1024);
    assert_eq!(task_weight(139, false), 15);
    assert_eq!(task_weight(120, true), 3);
    // Real-time priorities and nonsense are not ours to weigh: a neutral answer.
    assert_eq!(task_weight(50, false), 1024);
    assert_eq!(task_weight(140, false), 1024);
}

#[test]
fn a_lone_task_is_charged_real_time() {
    assert_eq!(charge_vtime(5 * MS, 1024, 1024, 4), 5 * MS);
    assert_eq!(charge_vtime(5 * MS, 1024, 0, 4), 5 * MS);
    assert_eq!(charge_vtime(5 * MS, 1024, 1 << 40, 0), 5 * MS);
}

#[test]
fn charges_add_up_to_the_clock_when_everybody_gets_a_fair_share() {
    // Weights 1024, 1024 and 15 on one CPU: shares in proportion to weight.
    let competing = 2063;
    for (weight, share) in [(1024, 1024.0 / 2063.0), (15, 15.0 / 2063.0)] {
        let ran = (share * S as f64) as u64;
        let charged = charge_vtime(ran, weight, competing, 1);
        assert!(charged.abs_diff(S) < MS, "{weight}: {charged}");
    }
}

#[test]
fn charges_do_not_overflow() {
    // A second at the smallest weight against ten thousand of the largest.
    let competing = 10_000 * 88_761;
    let charged = charge_vtime(S, 3, competing, 1);
    assert_eq!(
        u128::from(charged),
        u128::from(S) * u128::from(competing) / 3
    );
    // The smallest share of a cgroup against all others: bounded, not wrapped.
    assert!(charge_vtime(S, 1, 1 << 60, 1) >= S << 30);
    // In shares, with a thousand CPUs.
    let largest = cgroup_share(10_000);
    let charged = charge_vtime(S, largest, 3000 * u64::from(largest), 1024);
    assert!(charged.abs_diff(S * 3000 / 1024) < 1000);
    // And on a machine with a thousand CPUs, where the remainder is large.
    let charged = charge_vtime(S, 88_761, 1000 * 88_761 * 2 - 1, 1000);
    assert!(charged.abs_diff(2 * S) <= 100);
}

#[test]
fn nobody_stands_further_back_or_ahead_than_is_fair() {
    let now = 100 * S;
    let place = |vtime| place_vtime(vtime, now, 10 * MS);
    assert_eq!(place(0), now - 40 * MS);
    assert_eq!(place(now - 30 * MS), now - 30 * MS);
    assert_eq!(place(now + 40 * MS), now + 40 * MS);
    assert_eq!(place(now + 50 * MS), now + 40 * MS);
    // However small its weight, no task waits for more than two seconds for it.
    assert_eq!(place_vtime(u64::MAX / 2, now, 1000 * S), now + 2 * S);
    assert_eq!(place_vtime(now + S, now, u64::MAX), now + S);
}

#[test]
fn who_slept_has_no_claim_to_that_time() {
    let now = 100 * S;
    assert_eq!(wake_vtime(0, now, 5 * MS), now - 5 * MS);
    assert_eq!(wake_vtime(now - 4 * MS, now, 5 * MS), now - 4 * MS);
    assert_eq!(wake_vtime(now + S, now, 5 * MS), now + S);
}

#[test]
fn placing_works_across_the_wrap() {
    let now = 2 * MS;
    let early = now.wrapping_sub(4 * MS);
    assert!(vtime_before(early, now));
    assert_eq!(place_vtime(early, now, 5 * MS), early);
    assert_eq!(wake_vtime(early, now, 5 * MS), early);
    let long_ago = now.wrapping_sub(S);
    assert_eq!(place_vtime(long_ago, now, MS), now.wrapping_sub(4 * MS));
    assert_eq!(wake_vtime(long_ago, now, 5 * MS), now.wrapping_sub(5 * MS));
}

#[test]
fn of_two_that_are_owed_the_same_the_one_with_less_to_do_goes_first() {
    let deadline = |burst| deadline_of(S, burst, 5 * MS, 20 * MS);
    assert_eq!(deadline(MS), S + 4 * MS);
    assert_eq!(deadline(5 * MS), S + 20 * MS);
    // None asks for more than a slice; one that never slept asks for one.
    assert_eq!(deadline(S), deadline(5 * MS));
    assert_eq!(deadline(0), deadline(5 * MS));
    // However small the weight, bounded.
    assert_eq!(deadline_of(S, 0, 5 * MS, u64::MAX), S + S / 2);
}

#[test]
fn a_rule_multiplies_a_weight_within_what_nice_can_give() {
    assert_eq!(ruled_weight(1024, 0), 1024);
    assert_eq!(ruled_weight(1024, 100), 1024);
    assert_eq!(ruled_weight(1024, 250), 2560);
    assert_eq!(ruled_weight(15, 50), 7);
    assert_eq!(ruled_weight(15, 1), task_weight(120, true));
    assert_eq!(
        ruled_weight(task_weight(100, false), 10_000),
        task_weight(100, false)
    );
}

#[test]
fn who_keeps_others_from_freeing_memory_waits_briefly_and_then_for_nobody() {
    let now = 100 * S;
    let waits = |since| rcu_deadline(now + S, now, since);
    assert_eq!(waits(now), now + 20 * MS);
    assert_eq!(waits(now - 500 * MS), now + 20 * MS);
    let any = [0, now].map(|vtime| place_vtime(vtime, now, S));
    assert!(any.iter().all(|&vtime| waits(now - 501 * MS) <= vtime));
    // Its turn is never put off for that.
    for since in [now, now - S] {
        assert_eq!(rcu_deadline(now - 3 * S, now, since), now - 3 * S);
    }
}

#[test]
fn who_computed_once_is_soon_known_to_be_brief() {
    let most = 8 * MS;
    assert_eq!(mean_burst(0, 2 * MS, most), 2 * MS);
    assert_eq!(mean_burst(2 * MS, 6 * MS, most), 3 * MS);
    // That it ran for nothing is not that it never slept.
    assert_eq!(mean_burst(0, 0, most), 1);
    let burst = |mean| mean_burst(mean, 2 * MS, most);
    let after = std::iter::successors(Some(mean_burst(2 * MS, S, most)), |&mean| Some(burst(mean)));
    assert!(after.take(10).all(|mean| mean < 4 * MS));
    let after = std::iter::successors(Some(mean_burst(0, S, most)), |&mean| Some(burst(mean)));
    assert_eq!(after.take_while(|&mean| mean >= 4 * MS).count(), 4);
}

#[test]
fn the_clock_follows_those_that_run() {
    let lead = 64 * MS as i64;
    assert_eq!(clock_step(0, S, 4), 0);
    assert_eq!(clock_step(lead, S, 4), MS as i64);
    assert_eq!(clock_step(-lead, S, 4), -(MS as i64));
    // Hardly faster than real time, and at half its speed at least, but for a crowd; never backward.
    assert_eq!(clock_step(i64::MAX, 16 * MS, 4), MS as i64 / 4);
    assert_eq!(clock_step(-(400 * MS as i64), 16 * MS, 1), -8 * MS as i64);
    assert_eq!(clock_step(i64::MIN, 16 * MS, 0), -15 * MS as i64);
}

#[test]
fn performance_is_asked_for_at_once_and_given_back_slowly() {
    assert_eq!(perf_wish(0, 8 * MS, 8 * MS), 1024);
    assert_eq!(perf_wish(0, 2 * MS, 8 * MS), 256);
    assert_eq!(perf_wish(1024, 0, 8 * MS), 768);
    let mut wish = 1024;
    for _ in 0..40 {
        wish = perf_wish(wish, 0, 8 * MS);
    }
    assert_eq!(wish, 0);
    // Accounts of run time may be late, clocks may stand, and nights are long.
    assert_eq!(perf_wish(0, 9 * MS, 8 * MS), 1024);
    assert_eq!(perf_wish(0, MS, 0), 1024);
    assert_eq!(perf_wish(0, 0, 0), 0);
    assert_eq!(perf_wish(0, u64::MAX / 4 + 1, u64::MAX / 2 + 1), 512);
    assert_eq!(perf_request(256), 320);
    assert_eq!(perf_request(820), 1024);
    assert_eq!(perf_request(1024), 1024);
}

#[test]
fn progress_is_run_time_over_slowdown_over_weight() {
    assert_eq!(charge_progress(S, ONE, 1, 4, 1024), S);
    assert_eq!(charge_progress(S, ONE / 2, 1, 4, 1024), S / 2);
    assert_eq!(charge_progress(S, ONE, 1, 4, 2048), S / 2);
    // Eq. 3's example: a slowdown of 2.5 makes 40 % of full progress.
    let inv = (f64::from(ONE) / 2.5) as u32;
    assert!(charge_progress(100 * MS, inv, 1, 4, 1024).abs_diff(40 * MS) < MS / 100);
}

#[test]
fn threads_beyond_the_fast_cpus_would_take_turns_on_them_anyway() {
    let inv = (f64::from(ONE) / 2.5) as u32;
    let charge = |threads, fast| charge_progress(100 * MS, inv, threads, fast, 1024);
    // CS' = max(1, CS * fast / n): 2.5 * 2 / 4 = 1.25, and never below 1.
    assert!(charge(4, 2).abs_diff(80 * MS) < MS / 100);
    assert_eq!(charge(6, 2), 100 * MS);
    // All of them could have run on fast ones.
    assert_eq!(charge(4, 4), charge(1, 4));
    assert_eq!(charge(0, 4), charge(1, 4));
    assert_eq!(charge(4, 0), charge(1, 0));
}

#[test]
fn an_unknown_slowdown_or_weight_charges_full_progress() {
    assert_eq!(charge_progress(S, 0, 1, 4, 1024), S);
    assert_eq!(charge_progress(S, ONE * 4, 1, 4, 1024), S);
    assert_eq!(charge_progress(S, ONE, 1, 4, 0), S);
}

#[test]
fn run_time_never_runs_backwards() {
    assert_eq!(run_delta(10, 4), 6);
    assert_eq!(run_delta(4, 10), 0);
}

#[test]
fn crowding_is_weight_per_cpu() {
    assert!(more_crowded(3, 2, 2, 2));
    assert!(!more_crowded(2, 2, 2, 2));
    assert!(!more_crowded(4, 4, 2, 2));
    assert!(more_crowded(5, 4, 2, 2));
}

/// The share of a task of weight `weight` in a cgroup that is entitled to `flat`.
fn share(flat: u64, weight: u32, runnable: i64) -> u64 {
    divide_share(flat, task_share(weight).into(), runnable)
}

#[test]
fn a_default_cgroup_competes_like_one_task_of_nice_0() {
    assert_eq!(cgroup_share(100), task_share(1024));
    assert_eq!(cgroup_share(300), 3 * task_share(1024));
    assert_eq!(cgroup_share(1), task_share(1024) / 100);
    assert!(cgroup_share(10_000) >= task_share(88_761));
}

#[test]
fn a_cgroup_weighs_the_same_however_many_tasks_it_runs() {
    let flat = u64::from(cgroup_share(100));
    for tasks in [1, 8, 1000] {
        let each = share(flat, 1024, tasks * i64::from(task_share(1024)));
        assert!((each * tasks as u64).abs_diff(flat) < tasks as u64);
    }
    // Nice counts inside: 1024 and 335 make 1359.
    let runnable = i64::from(task_share(1024) + task_share(335));
    let (plain, nice) = (share(flat, 1024, runnable), share(flat, 335, runnable));
    assert!((plain + nice).abs_diff(flat) <= 2);
    assert!((plain as f64 / nice as f64 - 1024.0 / 335.0).abs() < 1e-3);
}

#[test]
fn levels_multiply() {
    // scx_flatcg's example: A (100) holds B and C (100 each), D (200) stands beside A.
    let (a, d) = (u64::from(cgroup_share(100)), u64::from(cgroup_share(200)));
    let b = divide_share(
        a,
        cgroup_share(100).into(),
        2 * i64::from(cgroup_share(100)),
    );
    let all = (a + d) as f64;
    assert!((b as f64 / all - 1.0 / 6.0).abs() < 1e-6);
    assert!((d as f64 / all - 2.0 / 3.0).abs() < 1e-6);
}

#[test]
fn a_share_is_never_nothing_and_never_more_than_all() {
    assert_eq!(divide_share(100, 7, 0), 100);
    assert_eq!(divide_share(100, 7, -3), 100);
    assert_eq!(divide_share(100, 7, 7), 100);
    assert_eq!(divide_share(1, 1, i64::MAX), 1);
    let largest = u64::from(cgroup_share(10_000));
    assert_eq!(
        divide_share(largest, largest, 2 * largest as i64),
        largest / 2
    );
}

#[test]
fn policies_see_weights_by_nice_where_cgroups_say_nothing() {
    let one = entitlement_factor(ONE, 7 * u64::from(task_share(1024)), 0);
    assert_eq!(one, ONE);
    for weight in [3, 15, 1024, 88_761] {
        assert_eq!(entitled_weight(task_share(weight), one), weight);
    }
}

#[test]
fn the_mean_weight_that_policies_see_is_the_mean_by_nice() {
    // One task in one cgroup and eight in another, both of weight 100.
    let flat = u64::from(cgroup_share(100));
    let (lone, each) = (flat as u32, (flat / 8) as u32);
    let by_nice = 9 * i64::from(task_share(1024));
    let factor = (0..100).fold(ONE, |factor, _| {
        entitlement_factor(factor, 2 * flat, by_nice - 2 * flat as i64)
    });
    let sum = entitled_weight(lone, factor) + 8 * entitled_weight(each, factor);
    assert!(sum.abs_diff(9 * 1024) < 9, "{sum}");
    // Alone in one cgroup, all have the weight of their nice level.
    let surplus = 7 * i64::from(task_share(1024));
    let factor = (0..100).fold(factor, |factor, _| {
        entitlement_factor(factor, flat, surplus)
    });
    assert_eq!(entitled_weight(each, factor), 1024);
    // And back to what it was.
    let factor = (0..100).fold(factor, |factor, _| entitlement_factor(factor, flat, 0));
    assert_eq!(factor, ONE);
}

#[test]
fn nonsense_makes_no_nonsensical_weight() {
    assert_eq!(entitlement_factor(ONE, 0, 5), ONE);
    assert_eq!(entitlement_factor(ONE, 5, -6), ONE);
    assert_eq!(entitlement_factor(ONE, 1 << 60, 1 << 60), ONE);
    assert_eq!(entitled_weight(0, ONE), 1);
    assert_eq!(entitled_weight(u32::MAX, u32::MAX), u32::MAX);
}

#[test]
fn time_on_the_fastest_type_beyond_its_part_is_a_surplus() {
    let half = 1 << 15;
    // But for what is forgotten meanwhile.
    let near = |sum: i64, half_of_it: i64| (sum - half_of_it).abs() < 5_000;
    assert!(near(charge_surplus(0, 5 * MS, true, half), 2_500_000));
    assert!(near(charge_surplus(0, 5 * MS, false, half), -2_500_000));
    // As much here as there comes to nothing.
    let back = charge_surplus(charge_surplus(0, 5 * MS, true, half), 5 * MS, false, half);
    assert!(back.unsigned_abs() < MS / 10, "{back}");
}

#[test]
fn a_surplus_that_cannot_be_made_up_does_not_grow_for_ever() {
    let (mut up, mut down) = (0, 0);
    for _ in 0..100_000 {
        up = charge_surplus(up, 4 * MS, true, ONE / 4);
        down = charge_surplus(down, 4 * MS, false, ONE / 4);
    }
    assert!((3 * S as i64..4 * S as i64).contains(&up), "{up}");
    assert!((-2 * S as i64..-(S as i64)).contains(&down), "{down}");
    // Nonsense does no harm.
    let wild = charge_surplus(up, u64::MAX, true, ONE);
    assert!(wild.unsigned_abs() < 10 * S, "{wild}");
}
