// SPDX-License-Identifier: GPL-2.0-or-later
//! Slowdowns by sample, on plain values.

use super::*;
use crate::testing::phase;

const SMALL: usize = 1;

/// At 1 GHz, all types alike.
fn reading(core_type: usize, l1: f64, ipc: f64, low_contention: bool) -> Reading {
    Reading {
        core_type,
        phase: phase(l1),
        ips: ipc * 1e9,
        ipc,
        frequency: 1e9,
        big_frequency: Some(1e9),
        low_contention,
        sibling: Some(1.0),
    }
}

fn warm() -> Estimator {
    let mut estimator = Estimator::default();
    for _ in 0..DISCARDED {
        let outcome = estimator.observe(&reading(BIG, 100.0, 9.0, true), None);
        assert_eq!(outcome, ReadingOutcome::Discarded);
    }
    estimator
}

#[test]
fn the_first_two_samples_are_discarded() {
    let mut estimator = warm();
    assert!(estimator.history().entries().is_empty());
    estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
    assert_eq!(estimator.history().entries()[0].ipc, 2.0);
}

#[test]
fn slowdown_is_one_on_a_big_core_without_contention() {
    let mut estimator = warm();
    assert_eq!(estimator.slowdown(BIG), None);
    let outcome = estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
    assert_eq!(outcome, ReadingOutcome::Learned { new: true });
    let outcome = estimator.observe(&reading(BIG, 100.0, 1.5, true), None);
    assert_eq!(outcome, ReadingOutcome::Learned { new: false });
    assert_eq!(estimator.slowdown(BIG), Some(1.0));
}

#[test]
fn a_phase_hit_gives_the_ratio_to_that_phase_and_a_miss_that_to_the_mean() {
    let mut estimator = warm();
    estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
    estimator.observe(&reading(BIG, 300.0, 1.0, true), None);
    let outcome = estimator.observe(&reading(SMALL, 100.0, 0.5, false), None);
    assert_eq!(outcome, ReadingOutcome::Hit);
    assert_eq!(estimator.slowdown(SMALL), Some(4.0));
    let outcome = estimator.observe(&reading(SMALL, 500.0, 0.5, false), None);
    assert_eq!(outcome, ReadingOutcome::Miss);
    assert_eq!(estimator.slowdown(SMALL), Some(3.0));
    let outcome = estimator.observe(&reading(BIG, 300.0, 0.5, false), None);
    assert_eq!(outcome, ReadingOutcome::Hit);
    assert_eq!(estimator.slowdown(BIG), Some(2.0));
    assert_eq!(estimator.slowdown(SMALL), Some(3.0), "kept by core type");
}

#[test]
fn nothing_is_estimated_before_something_is_known() {
    let mut estimator = warm();
    let outcome = estimator.observe(&reading(SMALL, 100.0, 1.0, true), None);
    assert_eq!(outcome, ReadingOutcome::Unknown);
    let outcome = estimator.observe(&reading(BIG, 100.0, 1.0, false), None);
    assert_eq!(outcome, ReadingOutcome::Unknown);
    assert_eq!(estimator.slowdown(SMALL), None);
    assert_eq!(estimator.hit_rate(10), 0.0);
}

#[test]
fn slowdowns_stay_between_one_and_the_greatest_believed() {
    let mut estimator = warm();
    estimator.observe(&reading(BIG, 100.0, 1.0, true), None);
    estimator.observe(&reading(SMALL, 100.0, 2.0, false), None);
    assert_eq!(estimator.slowdown(SMALL), Some(1.0));
    estimator.observe(&reading(SMALL, 100.0, 1e-6, false), None);
    assert_eq!(estimator.slowdown(SMALL), Some(MAX_SLOWDOWN));
    estimator.observe(&reading(SMALL, 100.0, 0.0, false), None);
    assert_eq!(
        estimator.slowdown(SMALL),
        Some(MAX_SLOWDOWN),
        "no division by zero"
    );
}

#[test]
fn halved_clocks_are_no_slowdown() {
    let mut estimator = warm();
    estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
    let slow = |core_type, ipc| Reading {
        ips: ipc * 5e8,
        frequency: 5e8,
        big_frequency: Some(5e8),
        ..reading(core_type, 100.0, ipc, false)
    };
    estimator.observe(&slow(BIG, 2.0), None);
    assert_eq!(estimator.slowdown(BIG), Some(1.0));
    estimator.observe(&slow(SMALL, 0.5), None);
    assert_eq!(estimator.slowdown(SMALL), Some(4.0));
}

#[test]
fn beside_a_busy_sibling_it_learns_what_it_would_do_without_until_that_is_known() {
    let mut estimator = warm();
    let beside = |l1, ipc, factor| Reading {
        sibling: factor,
        ..reading(BIG, l1, ipc, true)
    };
    let outcome = estimator.observe(&beside(100.0, 1.0, None), None);
    assert_eq!(outcome, ReadingOutcome::Unknown);
    let outcome = estimator.observe(&beside(100.0, 1.0, Some(1.5)), None);
    assert_eq!(outcome, ReadingOutcome::Learned { new: true });
    assert_eq!(estimator.history().entries()[0].ipc, 1.5);
    assert_eq!(estimator.slowdown(BIG), Some(1.5));
    estimator.observe(&reading(SMALL, 100.0, 0.5, true), None);
    assert_eq!(estimator.slowdown(SMALL), Some(3.0));
    // Alone it is even faster, and that is what counts from now on.
    estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
    let outcome = estimator.observe(&beside(100.0, 1.0, Some(1.5)), None);
    assert_eq!(outcome, ReadingOutcome::Hit);
    assert_eq!(estimator.history().entries()[0].ipc, 2.0);
    assert_eq!(estimator.slowdown(BIG), Some(2.0));
}

#[test]
fn where_it_is_never_undisturbed_core_types_are_told_apart_until_it_is() {
    let mut estimator = warm();
    let disturbed = |core_type, ipc| Reading {
        sibling: Some(if core_type == BIG { 1.5 } else { 1.0 }),
        ..reading(core_type, 100.0, ipc, false)
    };
    for core_type in [SMALL, BIG, SMALL] {
        let ipc = if core_type == BIG { 1.0 } else { 0.5 };
        let outcome = estimator.observe(&disturbed(core_type, ipc), None);
        assert_eq!(outcome, ReadingOutcome::Unknown);
    }
    let slowdowns = [BIG, SMALL].map(|on| estimator.slowdown(on));
    assert_eq!(slowdowns, [Some(1.5), Some(3.0)]);
    assert!(!estimator.is_measured(SMALL), "no finding for later runs");
    assert_eq!(estimator.hit_rate(3), 0.0, "NWC mode is wanted as before");
    // With the core to itself nothing is its sibling's, and nothing new is learnt.
    estimator.observe(&reading(BIG, 100.0, 1.2, false), None);
    assert_eq!(estimator.slowdown(BIG), Some(1.0));
    // Of another phase by the mean of those that were seen.
    estimator.observe(&reading(SMALL, 500.0, 0.25, false), None);
    assert_eq!(estimator.slowdown(SMALL), Some(6.0));
    estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
    estimator.observe(&disturbed(SMALL, 0.5), None);
    assert_eq!(estimator.slowdown(SMALL), Some(4.0));
    assert!(estimator.is_measured(SMALL));
}

/// What is known of earlier runs comes first.
#[test]
fn what_is_expected_of_a_core_type_stays_while_it_is_disturbed() {
    let mut estimator = warm();
    estimator.expect(SMALL, 2.0);
    let beside = Reading {
        sibling: Some(1.5),
        ..reading(BIG, 100.0, 1.0, false)
    };
    estimator.observe(&beside, None);
    estimator.observe(&reading(SMALL, 100.0, 0.2, false), None);
    assert_eq!(estimator.slowdown(SMALL), Some(2.0));
    estimator.forget_the_past();
    estimator.observe(&reading(SMALL, 100.0, 0.2, false), None);
    assert_eq!(estimator.slowdown(SMALL), Some(7.5));
    estimator.expect(SMALL, 3.0);
    assert_eq!(estimator.slowdown(SMALL), Some(3.0));
}

/// What was measured against a wrong speed is wrong as well.
#[test]
fn what_was_measured_against_a_past_is_forgotten_with_it() {
    let alone = reading(BIG, 100.0, 2.0, true);
    let mut estimator = warm();
    estimator.remember(&alone.phase, 2.0, alone.frequency, true);
    for (core_type, l1) in [(BIG, 100.0), (SMALL, 500.0)] {
        estimator.observe(&reading(core_type, l1, 1.0, false), None);
        assert_eq!(estimator.slowdown(core_type), Some(2.0));
        assert!(estimator.is_measured(core_type));
    }
    estimator.forget_the_past();
    assert_eq!([BIG, SMALL].map(|on| estimator.slowdown(on)), [None, None]);

    // But not against what it did itself.
    estimator.observe(&alone, None);
    estimator.observe(&reading(SMALL, 100.0, 1.0, false), None);
    estimator.forget_the_past();
    let slowdowns = [BIG, SMALL].map(|on| estimator.slowdown(on));
    assert_eq!(slowdowns, [Some(1.0), Some(2.0)]);
}

/// There it is seen undisturbed some time, and what others do to it is not taken for what it is.
#[test]
fn what_has_its_core_to_itself_stays_unknown_while_it_is_disturbed() {
    let mut estimator = warm();
    for core_type in [BIG, SMALL] {
        estimator.observe(&reading(core_type, 100.0, 1.0, false), None);
        assert_eq!(estimator.slowdown(core_type), None);
    }
}

#[test]
fn siblings_learn_from_the_applications_table_and_copy_what_they_find() {
    let mut shared = History::new(4);
    let mut first = warm();
    first.observe(&reading(BIG, 100.0, 2.0, true), Some(&mut shared));
    assert_eq!(shared.entries().len(), 1, "a new entry goes there too");

    let mut second = warm();
    let outcome = second.observe(&reading(SMALL, 100.0, 1.0, false), Some(&mut shared));
    assert_eq!(outcome, ReadingOutcome::Hit);
    assert_eq!(second.slowdown(SMALL), Some(2.0));
    let outcome = second.observe(&reading(SMALL, 100.0, 1.0, false), None);
    assert_eq!(outcome, ReadingOutcome::Hit, "copied");
    second.observe(&reading(BIG, 100.0, 4.0, true), Some(&mut shared));
    assert_eq!(shared.entries()[0].ipc, 2.0, "only new entries are written");
    assert_eq!(second.history().entries()[0].ipc, 3.0);
}

#[test]
fn hits_and_inserted_samples_are_counted_over_the_last_k_intervals() {
    let mut estimator = warm();
    estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
    for _ in 0..3 {
        estimator.observe(&reading(SMALL, 100.0, 1.0, false), None);
    }
    estimator.observe(&reading(SMALL, 500.0, 1.0, false), None);
    assert_eq!(estimator.hit_rate(4), 0.75);
    assert_eq!(estimator.hit_rate(50), 0.6);
    assert_eq!((estimator.learned(4), estimator.learned(5)), (0, 1));
    assert_eq!(estimator.totals(), (3, 1));
    for _ in 0..200 {
        estimator.observe(&reading(SMALL, 100.0, 1.0, false), None);
    }
    assert_eq!(estimator.hit_rate(200), 1.0);
    assert!(estimator.average() > 1.9);
}
