// SPDX-License-Identifier: GPL-2.0-or-later
//! Shares, curves and what hardware counts, on made-up samples.

use super::*;
use crate::pmu::sample::{EventCounts, SampleMetrics};
use crate::testing::{MS, board, sample, task};

const LINES: f64 = 1024.0;

fn machine() -> Topology {
    let mut topology = board(2, 2);
    topology.llc_bytes = vec![
        (LINES * LINE_BYTES) as u64,
        (4.0 * LINES * LINE_BYTES) as u64,
    ];
    topology
}

/// A sample of 50 ms with so many misses in 1e6 instructions.
fn missed(of: &Task, misses: f64) -> Sample {
    let mut sample = sample(of, 1.0, 300.0, 0.0);
    sample.run_ns = 50 * MS;
    sample.counts = [
        (Meaning::Instructions, 1e6),
        (Meaning::Cycles, 1e6),
        (Meaning::LlcMisses, misses),
    ]
    .into_iter()
    .collect::<EventCounts>();
    sample.metrics = SampleMetrics::of(&sample.counts, sample.run_ns).unwrap();
    sample
}

/// Looks of 50 ms, in each of which all tasks run where they are.
fn run(ledger: &mut CacheLedger, tasks: &mut [Task], misses: &[f64], looks: usize) {
    let topology = machine();
    for _ in 0..looks {
        for (task, &misses) in tasks.iter_mut().zip(misses) {
            task.run_ns[task.core_type] += 50 * MS;
            ledger.observe(&missed(task, misses), &topology);
        }
        ledger.update(tasks, &topology);
    }
}

#[test]
fn shares_go_by_misses_and_end_with_their_threads() {
    let mut tasks = [task(0, 0, 0), task(1, 1, 0)];
    let mut ledger = CacheLedger::default();
    run(&mut ledger, &mut tasks, &[300.0, 100.0], 100);
    let ids = tasks.map(|task| task.id);
    assert_eq!(ledger.processes, None);
    let bytes = |ledger: &CacheLedger, at: usize| ledger.bytes(ids[at]).unwrap();
    let whole = LINES * LINE_BYTES;
    assert!((bytes(&ledger, 0) / whole - 0.75).abs() < 0.02);
    assert!((bytes(&ledger, 1) / whole - 0.25).abs() < 0.02);
    assert_eq!(ledger.process_bytes(tasks[0].tgid), Some(bytes(&ledger, 0)));
    assert_eq!(ledger.holders().count(), 2);
    ledger.update(&tasks[..1], &machine());
    assert_eq!(ledger.bytes(tasks[1].id), None);
    ledger.follow_processes();
    run(&mut ledger, &mut tasks[..1], &[300.0], 100);
    assert!(bytes(&ledger, 0) > 0.95 * whole);
    let processes = ledger.processes.unwrap();
    let did = ProcessMisses {
        pid: tasks[0].tgid,
        instructions: 100e6,
        misses: 30_000.0,
    };
    assert_eq!(processes.into_iter().collect::<Vec<_>>(), [(did.pid, did)]);
}

#[test]
fn a_thread_that_moves_leaves_its_lines_which_others_evict() {
    let mut tasks = [task(0, 0, 0), task(1, 1, 0)];
    let mut ledger = CacheLedger::default();
    run(&mut ledger, &mut tasks, &[300.0, 300.0], 50);
    (tasks[0].cpu, tasks[0].core_type) = (2, 1);
    let before = ledger.process_bytes(tasks[0].tgid).unwrap();
    run(&mut ledger, &mut tasks, &[0.0, 0.0], 1);
    let after = ledger.process_bytes(tasks[0].tgid).unwrap();
    assert_eq!(ledger.bytes(tasks[0].id), Some(0.0));
    assert!((after / before - 1.0).abs() < 0.7, "{after} of {before}");
    run(&mut ledger, &mut tasks, &[0.0, 300.0], 50);
    assert!(ledger.process_bytes(tasks[0].tgid).unwrap() < 0.05 * before);
}

#[test]
fn a_curve_grows_from_changing_company() {
    let mut tasks = [task(0, 0, 0), task(1, 1, 0)];
    let mut ledger = CacheLedger::default();
    // What the first misses falls as the second leaves it more room.
    for (own, other) in [(200.0, 600.0), (150.0, 150.0), (100.0, 20.0)] {
        run(&mut ledger, &mut tasks, &[own, other], 60);
    }
    let curve = ledger.curve(tasks[0].id, 0).unwrap();
    let (least, most) = curve.seen().unwrap();
    assert!(least < 0.4 && most > 0.7, "{least} {most}");
    let [low, high] = [0.27, 0.8].map(|part| curve.at(part).unwrap().mpki);
    assert!(low > 0.17 && high < 0.13, "{low} {high}");
    assert!(ledger.curve(tasks[0].id, 1).is_none());
    // It is there until it was kept.
    let before = curve.clone();
    ledger.update(&tasks[1..], &machine());
    assert_eq!(ledger.bytes(tasks[0].id), None);
    assert_eq!(ledger.curve(tasks[0].id, 0), Some(&before));
    ledger.forget_ended();
    assert_eq!(ledger.curve(tasks[0].id, 0), None);
}

/// `resident` beside a program that fills the cache: its misses are those of a cache that keeps half of its data, and the rule
/// of misses takes it to hold nothing.
#[test]
fn what_hardware_counts_makes_the_curve_alone() {
    let topology = machine();
    let mut tasks = [task(0, 0, 0), task(1, 1, 0)];
    let mut ledger = CacheLedger::default();
    run(&mut ledger, &mut tasks, &[50.0, 9000.0], 100);
    let tgid = tasks[0].tgid;
    assert!(ledger.bytes(tasks[0].id).unwrap() < 0.02 * LINES * LINE_BYTES);
    assert!(ledger.curve(tasks[0].id, 0).is_some());
    for second in 1..6 {
        let bytes = 0.5 * LINES * LINE_BYTES;
        ledger.measured(tgid, second * 1_000_000_000, bytes, &topology);
        assert_eq!(ledger.process_bytes(tgid), Some(bytes));
        run(&mut ledger, &mut tasks, &[50.0, 9000.0], 20);
    }
    let curve = ledger.curve(tasks[0].id, 0).unwrap();
    assert_eq!(curve.seen(), Some((0.5, 0.5)));
    assert!((curve.at(0.5).unwrap().mpki - 0.05).abs() < 1e-9);
}

/// How much of it either has is estimated.
#[test]
fn what_is_counted_of_several_threads_together_makes_no_curve() {
    let mut tasks = [task(0, 0, 0), task(1, 1, 0)];
    tasks[1].tgid = tasks[0].tgid;
    let mut ledger = CacheLedger::default();
    run(&mut ledger, &mut tasks, &[2000.0, 9000.0], 100);
    let before = ledger.curve(tasks[0].id, 0).and_then(MissRateCurve::seen);
    for second in 1..6 {
        let bytes = 0.3 * LINES * LINE_BYTES;
        ledger.measured(tasks[0].tgid, second * 1_000_000_000, bytes, &machine());
        run(&mut ledger, &mut tasks, &[2000.0, 9000.0], 20);
    }
    let after = ledger.curve(tasks[0].id, 0).and_then(MissRateCurve::seen);
    let ((least, most), (least_before, most_before)) = (after.unwrap(), before.unwrap());
    assert!(
        least <= least_before && most > 0.9 * most_before,
        "{most} {most_before}"
    );
}

/// Nothing is left to scale what it was taken to hold by.
#[test]
fn what_was_taken_to_hold_nothing_holds_what_is_counted() {
    let mut ledger = CacheLedger::default();
    let mut of = [task(0, 0, 0)];
    run(&mut ledger, &mut of, &[0.0], 3);
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        ledger.measured(of[0].tgid, 1, bad, &machine());
    }
    assert_eq!(ledger.process_bytes(of[0].tgid), Some(0.0));
    ledger.measured(of[0].tgid, 2, 640.0, &machine());
    assert_eq!(ledger.process_bytes(of[0].tgid), Some(640.0));
}

#[test]
fn without_sizes_or_misses_nothing_is_known() {
    let mut ledger = CacheLedger::default();
    let topology = board(2, 2);
    let of = task(0, 0, 0);
    ledger.observe(&sample(&of, 1.0, 300.0, 0.0), &topology);
    ledger.update(&[of], &topology);
    ledger.update(&[of], &topology);
    assert_eq!(ledger.bytes(of.id).unwrap_or(0.0), 0.0);
    assert!(ledger.curve(of.id, 0).is_none());
}
