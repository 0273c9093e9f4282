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
    // And on a machine with a thousand CPUs, where the remainder is large.
    let charged = charge_vtime(S, 88_761, 1000 * 88_761 * 2 - 1, 1000);
    assert!(charged.abs_diff(2 * S) <= 100);
}

#[test]
fn nobody_stands_further_back_or_ahead_than_is_fair() {
    let now = 100 * S;
    let place = |vtime, slept| place_vtime(vtime, now, 5 * MS, 10 * MS, slept);
    // Who slept comes back one slice in the past, who waited four periods.
    assert_eq!(place(0, true), now - 5 * MS);
    assert_eq!(place(0, false), now - 40 * MS);
    assert_eq!(place(now - 30 * MS, false), now - 30 * MS);
    assert_eq!(place(now, true), now);
    assert_eq!(place(now + 40 * MS, true), now + 40 * MS);
    assert_eq!(place(now + 50 * MS, false), now + 40 * MS);
    // However small its weight, no task waits for more than two seconds for it.
    assert_eq!(
        place_vtime(u64::MAX / 2, now, 5 * MS, 1000 * S, false),
        now + 2 * S
    );
    assert_eq!(place_vtime(now + S, now, 5 * MS, u64::MAX, false), now + S);
}

#[test]
fn placing_works_across_the_wrap() {
    let now = 2 * MS;
    let early = now.wrapping_sub(4 * MS);
    assert!(vtime_before(early, now));
    assert_eq!(place_vtime(early, now, 5 * MS, 5 * MS, true), early);
    assert_eq!(
        place_vtime(now.wrapping_sub(S), now, 5 * MS, 5 * MS, true),
        now.wrapping_sub(5 * MS)
    );
}

#[test]
fn progress_is_run_time_over_slowdown_over_weight() {
    assert_eq!(charge_progress(S, ONE, 1, 1024), S);
    assert_eq!(charge_progress(S, ONE / 2, 1, 1024), S / 2);
    assert_eq!(charge_progress(S, ONE, 1, 2048), S / 2);
    // Eq. 3's example: a slowdown of 2.5 makes 40 % of full progress.
    let inv = (f64::from(ONE) / 2.5) as u32;
    assert!(charge_progress(100 * MS, inv, 1, 1024).abs_diff(40 * MS) < MS / 100);
}

#[test]
fn threads_of_one_application_share_its_slowdown() {
    // CS' = max(1, CS / n): 2.5 / 2 = 1.25, and never below 1.
    let inv = (f64::from(ONE) / 2.5) as u32;
    assert!(charge_progress(100 * MS, inv, 2, 1024).abs_diff(80 * MS) < MS / 100);
    assert_eq!(charge_progress(100 * MS, inv, 3, 1024), 100 * MS);
    assert_eq!(
        charge_progress(100 * MS, inv, 0, 1024),
        charge_progress(100 * MS, inv, 1, 1024)
    );
}

#[test]
fn an_unknown_slowdown_or_weight_charges_full_progress() {
    assert_eq!(charge_progress(S, 0, 1, 1024), S);
    assert_eq!(charge_progress(S, ONE * 4, 1, 1024), S);
    assert_eq!(charge_progress(S, ONE, 1, 0), S);
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
