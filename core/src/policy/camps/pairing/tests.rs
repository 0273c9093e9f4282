// SPDX-License-Identifier: GPL-2.0-or-later
use super::*;

const LEAST: f64 = 10.0;
const INTERVAL: Duration = Duration::from_millis(400);
const LATER_NS: u64 = 400_000_000;

/// Two that compute on one core, two that wait on another: see [`places`].
const APART: [(u32, f64, f64); 4] = [
    (0, 1.0, 100.0),
    (0, 1.0, 90.0),
    (2, 0.0, 100.0),
    (2, 0.0, 100.0),
];

/// Threads by core, each with what part of its time it computes and what its speed is worth.
fn places(threads: &[(u32, f64, f64)]) -> Vec<SharedPlace> {
    let mut on = std::collections::HashMap::new();
    let place = |(runner, &(core, computing, value)): (usize, &(u32, f64, f64))| {
        let nth: &mut u32 = on.entry(core).or_default();
        *nth += 1;
        SharedPlace {
            task: TaskId {
                slot: runner as u32,
                generation: 1,
            },
            runner,
            core_type: 0,
            core,
            cpu: core + *nth - 1,
            shared: true,
            free: true,
            computing,
            value,
        }
    };
    threads.iter().enumerate().map(place).collect()
}

fn best(places: Vec<SharedPlace>) -> Option<[usize; 2]> {
    let found = Pairing::new(INTERVAL).exchange(places.into_iter(), LEAST, 0);
    found.map(|mut pair| {
        pair.sort_unstable();
        pair
    })
}

#[test]
fn two_that_compute_are_each_put_beside_one_that_waits() {
    let computes = |core, value| (core, 1.0, value);
    let waits = |core| (core, 0.0, 100.0);
    let apart = places(&[computes(0, 100.0), computes(0, 90.0), waits(2), waits(2)]);
    let [one, other] = best(apart).unwrap();
    assert!(one < 2 && other >= 2, "{one}, {other}");
    // Once they are mixed there is nothing to gain, nor among equals.
    let mixed = places(&[computes(0, 100.0), waits(0), computes(2, 90.0), waits(2)]);
    assert_eq!(best(mixed), None);
    let alike = [
        computes(0, 900.0),
        computes(0, 1.0),
        computes(2, 5.0),
        computes(2, 5.0),
    ];
    assert_eq!(best(places(&alike)), None);
}

#[test]
fn of_those_that_compute_the_one_that_lags_most_gets_the_quiet_sibling() {
    let all = places(&[
        (0, 1.0, 100.0),
        (0, 0.0, 50.0),
        (2, 1.0, 300.0),
        (2, 1.0, 200.0),
    ]);
    // Or the other two, which comes to the same.
    assert!([[0, 2], [1, 3]].contains(&best(all).unwrap()));
    let little = places(&[(0, 1.0, 9.0), (0, 0.0, 5.0), (2, 1.0, 12.0), (2, 1.0, 7.0)]);
    assert_eq!(best(little), None, "for less than it is worth");
}

#[test]
fn a_core_with_one_thread_has_a_quiet_half() {
    let mut all = places(&[(0, 1.0, 50.0), (2, 1.0, 300.0), (2, 0.5, 40.0)]);
    all[0].shared = false;
    assert_eq!(best(all.clone()), Some([0, 1]));
    all[0].shared = true;
    assert_eq!(best(all), None, "of its sibling nothing is known");
}

#[test]
fn only_those_move_that_may_and_within_their_type() {
    let mut all = places(&APART);
    all[2].free = false;
    assert_eq!(best(all.clone()).map(|[_, other]| other), Some(3));
    all[2].core_type = 1;
    all[3].core_type = 1;
    assert_eq!(best(all), None);
    // Two that take turns on one CPU are not each other's siblings.
    let mut all = places(&APART);
    all[1].cpu = all[0].cpu;
    assert_eq!(best(all), None);
    assert_eq!(best(Vec::new()), None);
}

#[test]
fn on_a_server_it_is_found_on_each_type() {
    let computes = (0..64).flat_map(|core| [(2 * core, 1.0, 100.0), (2 * core, 1.0, 110.0)]);
    let mut threads: Vec<_> = computes.collect();
    threads[100].1 = 0.0;
    threads[101].1 = 0.0;
    let mut all = places(&threads);
    let waits = |found: [usize; 2]| found.iter().any(|at| [100, 101].contains(at));
    assert!(waits(best(all.clone()).unwrap()));
    all.iter_mut()
        .skip(90)
        .for_each(|place| place.core_type = 1);
    assert!(waits(best(all).unwrap()));
}

#[test]
fn there_is_one_at_a_time_and_one_that_did_not_come_is_left_alone() {
    let mut pairing = Pairing::new(INTERVAL);
    let all = || places(&APART).into_iter();
    assert!(pairing.is_due(0));
    let first = pairing.exchange(all(), LEAST, 0).unwrap();
    assert!(!pairing.is_due(LATER_NS - 1) && pairing.is_due(LATER_NS));
    // Both are still where they were.
    let second = pairing.exchange(all(), LEAST, LATER_NS).unwrap();
    assert!(first.iter().all(|one| !second.contains(one)), "{second:?}");
    assert_eq!(pairing.exchange(all(), LEAST, 2 * LATER_NS), None);
    let forgotten = 2 * LATER_NS + UNMOVED_NS;
    assert_eq!(pairing.exchange(all(), LEAST, forgotten), Some(first));
}
