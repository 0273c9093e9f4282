// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::pmu::sample::SampleWatts;
use crate::testing::{board, sample, task};

/// After a sample of this instruction mix from a core type.
fn take(learnt: &mut Learnt, task: &mut Task, place: usize, l1: f64, sf: f64) -> f64 {
    task.core_type = place;
    let mut sample = sample(task, 1.0, l1, 0.0);
    sample.sf = Some(SfEstimate { sf, sigma: 10.0 });
    learnt.observe(&sample);
    learnt.sf(task.id).unwrap().sf
}

#[test]
fn samples_of_a_phase_are_averaged_and_one_that_comes_back_is_known() {
    let (mut learnt, mut it) = (Learnt::default(), task(0, 0, 0));
    assert_eq!(take(&mut learnt, &mut it, 0, 300.0, 2.0), 2.0);
    assert_eq!(take(&mut learnt, &mut it, 0, 300.0, 1.0), 1.5);
    assert_eq!(take(&mut learnt, &mut it, 0, 500.0, 3.0), 3.0);
    let back = take(&mut learnt, &mut it, 0, 300.0, 3.0);
    assert_eq!(back, 2.0, "as before, and a third");
    let usual = learnt.usual(&it).unwrap();
    assert!((1.5..3.0).contains(&usual), "{usual}");
}

#[test]
fn a_core_type_that_counts_nothing_of_phases_leaves_a_thread_in_its_phase() {
    let blind = |learnt: &mut Learnt, task: &mut Task, sf: f64| {
        task.core_type = 1;
        let mut sample = sample(task, 1.0, 0.0, 0.0);
        (sample.metrics.l1_per_kilo, sample.metrics.branch_fraction) = (None, None);
        sample.sf = Some(SfEstimate { sf, sigma: 10.0 });
        learnt.observe(&sample);
        learnt.sf(task.id).unwrap().sf
    };
    let (mut learnt, mut it) = (Learnt::default(), task(0, 0, 0));
    take(&mut learnt, &mut it, 0, 300.0, 2.0);
    assert_eq!(blind(&mut learnt, &mut it, 1.0), 1.5, "of both types");
    assert_eq!(take(&mut learnt, &mut it, 0, 500.0, 3.0), 3.0);
    let mut other = task(1, 1, 1);
    assert_eq!(blind(&mut learnt, &mut other, 1.0), 1.0);
    let seen = take(&mut learnt, &mut other, 0, 300.0, 2.0);
    assert_eq!(seen, 1.5, "it was this one");
}

#[test]
fn of_energy_the_mean_over_types_counts_too_and_none_where_no_model_says() {
    let (mut learnt, mut it) = (Learnt::default(), task(0, 0, 0));
    take(&mut learnt, &mut it, 0, 300.0, 2.0);
    assert_eq!(learnt.energy_ratio(it.id), None);
    for (place, ef) in [(0, 0.8), (0, 0.8), (1, 1.2), (1, f64::NAN)] {
        it.core_type = place;
        let mut sample = sample(&it, 1.0, 300.0, 0.0);
        let (sf, sigma) = (2.0, 0.1);
        (sample.sf, sample.ef) = (Some(SfEstimate { sf, sigma }), Some(ef));
        learnt.observe(&sample);
    }
    assert_eq!(learnt.energy_ratio(it.id), Some(0.5));
}

#[test]
fn without_a_model_watts_are_known_and_nothing_else() {
    let (mut learnt, mut it) = (Learnt::default(), task(0, 0, 0));
    let topology = board(2, 4);
    for place in [0, 0, 0, 0, 1, 1, 1, 1] {
        it.core_type = place;
        let snapshot = Snapshot {
            now_ns: 0,
            topology: &topology,
            tasks: std::slice::from_ref(&it),
        };
        learnt.look(&snapshot, &[Some(2e9), Some(1e9), None, None]);
        let mut sample = sample(&it, 1.0, 300.0, 0.0);
        let (watts, sigma) = if place == 0 { (12.0, 1.0) } else { (4.0, 0.5) };
        sample.watts = Some(SampleWatts::on(place, watts, sigma));
        learnt.observe(&sample);
    }
    let told = learnt
        .watts(it.id)
        .on
        .map(|on| on.map(|on| (on.watts, on.sigma)));
    assert_eq!(told, [Some((12.0, 1.0)), Some((4.0, 0.5)), None, None]);
    assert_eq!((learnt.sf(it.id), learnt.usual(&it)), (None, None));
    assert!(learnt.speeds(it.id).is_none() && !learnt.is_on_trust(it.id));
    let mut found = ThreadProfile::default();
    learnt.find(it.id, &mut found);
    assert!(found.is_empty());
    // A model that comes later knows what was measured before.
    assert_eq!(take(&mut learnt, &mut it, 1, 300.0, 2.0), 2.0);
    assert_eq!(learnt.watts(it.id).on[0].map(|on| on.watts), Some(12.0));
}

#[test]
fn where_a_thread_is_does_not_change_its_sf_once_it_was_everywhere() {
    let (mut learnt, mut it) = (Learnt::default(), task(0, 0, 0));
    for _ in 0..30 {
        take(&mut learnt, &mut it, 0, 300.0, 2.2);
    }
    assert_eq!(take(&mut learnt, &mut it, 1, 300.0, 1.8), 2.0);
    for place in [1, 1, 1, 0, 0] {
        let sf = take(&mut learnt, &mut it, place, 300.0, 2.2 - 0.4 * place as f64);
        assert!((sf - 2.0).abs() < 1e-9, "{sf}");
    }
}

#[test]
fn what_was_measured_on_both_types_is_believed_before_a_model() {
    let (mut learnt, mut it) = (Learnt::default(), task(0, 0, 0));
    let topology = board(2, 4);
    let clocks = [Some(2e9), Some(1e9), None, None];
    let mut sf = |place: usize, ipc: f64, times: usize| {
        it.core_type = place;
        for _ in 0..times {
            let snapshot = Snapshot {
                now_ns: 0,
                topology: &topology,
                tasks: std::slice::from_ref(&it),
            };
            learnt.look(&snapshot, &clocks);
            let mut sample = sample(&it, ipc, 300.0, 0.0);
            sample.sf = Some(SfEstimate {
                sf: 2.0,
                sigma: 10.0,
            });
            learnt.observe(&sample);
        }
        learnt.sf(it.id).unwrap().sf
    };
    assert_eq!(sf(0, 0.75, 10), 2.0);
    assert_eq!(sf(1, 1.0, 2), 2.0);
    let measured = sf(1, 1.0, 1);
    assert!((measured - 1.5).abs() < 0.001, "{measured}");
    // As much as is believed, and never less than nothing.
    assert_eq!(sf(1, 100.0, 30), 1.0);
}

#[test]
fn a_model_that_was_far_off_in_one_phase_of_a_thread_is_not_believed_of_its_others() {
    let (mut learnt, mut it) = (Learnt::default(), task(0, 0, 0));
    let topology = board(2, 4);
    let mut sf = |place: usize, ipc: f64, l1: f64, times: usize| {
        it.core_type = place;
        for _ in 0..times {
            let snapshot = Snapshot {
                now_ns: 0,
                topology: &topology,
                tasks: std::slice::from_ref(&it),
            };
            learnt.look(&snapshot, &[Some(2e9), Some(1e9), None, None]);
            let mut sample = sample(&it, ipc, l1, 0.0);
            let (sf, sigma) = (2.0, 0.05);
            sample.sf = Some(SfEstimate { sf, sigma });
            learnt.observe(&sample);
        }
        learnt.sf(it.id).unwrap()
    };
    // A phase that is known already when another one is measured.
    assert_eq!(sf(0, 0.5, 900.0, 3).sf, 2.0);
    sf(0, 0.5, 300.0, 5);
    assert!(sf(1, 1.0, 300.0, 5).sf < 1.2);
    let back = sf(0, 0.5, 900.0, 2);
    assert!(back.sf < 1.2 && back.sigma > 0.1, "{back:?}");
}

#[test]
fn who_is_new_is_taken_for_one_of_its_program() {
    let (mut learnt, mut it) = (Learnt::default(), task(0, 0, 0));
    let mut new = task(1, 1, 1);
    new.tgid = it.tgid;
    assert_eq!(learnt.usual(&new), None);
    take(&mut learnt, &mut it, 0, 300.0, 2.0);
    assert_eq!((learnt.sf(new.id), learnt.usual(&new)), (None, Some(2.0)));
    let mut brief = sample(&new, 1.0, 300.0, 0.0);
    let (sf, sigma) = (1.0, 0.1);
    (brief.sf, brief.last) = (Some(SfEstimate { sf, sigma }), true);
    learnt.observe(&brief);
    assert_eq!(learnt.usual(&new), Some(1.5));
    let topology = board(2, 4);
    let mut forget = |tasks: &[Task]| {
        let snapshot = Snapshot {
            now_ns: 0,
            topology: &topology,
            tasks,
        };
        learnt.look(&snapshot, &[None; MAX_CORE_TYPES]);
        (learnt.sf(it.id), learnt.usual(&new))
    };
    assert_eq!(forget(&[new]), (None, Some(1.5)));
    assert_eq!(forget(&[]), (None, None));
}

#[test]
fn the_phase_not_seen_for_longest_gives_way_and_nonsense_is_no_estimate() {
    let (mut learnt, mut it) = (Learnt::default(), task(0, 0, 0));
    for turn in 0..=PHASES {
        take(&mut learnt, &mut it, 0, 100.0 * turn as f64, turn as f64);
    }
    let second = take(&mut learnt, &mut it, 0, 100.0, 5.0);
    assert_eq!(second, 3.0, "still known");
    assert_eq!(take(&mut learnt, &mut it, 0, 0.0, 5.0), 5.0, "forgotten");
    assert_eq!(take(&mut learnt, &mut it, 0, 0.0, f64::NAN), 5.0);
}
