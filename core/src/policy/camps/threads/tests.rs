// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::policy::camps::Worths;
use crate::policy::tools::swap::SwapCandidate;
use crate::testing::{MS, board, sample, task};

/// How fast the first of two threads on big cores with one cache is expected to be there, after
/// looks at what both did, `(ipc, btr)`, 50 ms each.
fn expected(looks: &[[(f64, f64); 2]], then_ns: u64) -> f64 {
    let topology = board(2, 4);
    let mut tasks = [task(0, 0, 0), task(1, 1, 0)];
    let mut threads = ThreadEstimators::new(None, 22);
    let mut now_ns = 0;
    for (number, look) in looks.iter().enumerate() {
        now_ns += if number + 1 == looks.len() {
            then_ns
        } else {
            50 * MS
        };
        for (task, &(ipc, btr)) in tasks.iter_mut().zip(look) {
            task.run_ns[0] += 50 * MS;
            if ipc > 0.0 {
                threads.take(&sample(task, ipc, 300.0, btr));
            }
        }
        let snapshot = Snapshot {
            now_ns,
            topology: &topology,
            tasks: &tasks,
        };
        threads.look(&snapshot, &mut Vec::new());
    }
    let mut worths = Worths::default();
    worths.look(&topology, threads.load());
    let runner = SwapCandidate::new(&tasks[0], 0, 0);
    threads.forecast(&topology, &runner, &worths).speed[0]
}

/// Alone at first, and then half as fast beside one that uses memory much.
fn disturbed() -> Vec<[(f64, f64); 2]> {
    let mut looks = vec![[(2.0, 1e9), (2.0, 0.0)]; 5];
    looks.extend([[(1.0, 1e9), (1.0, 4e9)]; 3]);
    looks
}

#[test]
fn a_neighbour_that_left_within_a_sample_is_no_reason_to_keep_away_for_ever() {
    let mut looks = disturbed();
    // Slowed down for most of a sample at whose end the other uses hardly any.
    looks.push([(1.1, 1e9), (2.0, 1e4)]);
    // Nothing is known of the first since; the other is at it again.
    looks.push([(0.0, 0.0), (1.0, 4e9)]);
    let speed = expected(&looks, 50 * MS);
    assert!((0.4..0.7).contains(&speed), "{speed}");
}

#[test]
fn what_contention_did_long_ago_is_asked_again() {
    let mut looks = disturbed();
    looks.push([(0.0, 0.0), (1.0, 4e9)]);
    let [soon, late] = [50 * MS, 120_000 * MS].map(|then_ns| expected(&looks, then_ns));
    assert!((0.4..0.7).contains(&soon) && late > 0.9, "{soon} {late}");
}

#[test]
fn a_clock_that_was_wrong_once_is_forgotten() {
    let mut clocks = Recent::default();
    let second = 1_000_000_000;
    clocks.note(second, [3e9, 9e9].into_iter());
    assert_eq!(clocks.highest(), Some(9e9));
    for s in 2..70 {
        clocks.note(s * second, [2e9, 3e9].into_iter());
    }
    assert_eq!(clocks.highest(), Some(3e9));
    clocks.note(200 * second, std::iter::empty());
    clocks.note(300 * second, std::iter::empty());
    assert_eq!(clocks.highest(), Some(3e9));
}

#[test]
fn the_part_of_the_core_type_is_no_greater_than_the_whole_and_comes_back_with_the_phase() {
    let mut thread = Thread::new(22);
    let slower = |thread: &mut Thread, slowdown: f64| {
        let phase = crate::testing::phase(300.0);
        thread.estimator.remember(&phase, 2.0, 1e9, true);
        let reading = Reading {
            core_type: 1,
            phase,
            ips: 2e9 / slowdown,
            ipc: 2.0 / slowdown,
            frequency: 1e9,
            big_frequency: None,
            low_contention: false,
            sibling: Some(1.0),
        };
        (0..3).for_each(|_| {
            thread.estimator.observe(&reading, None);
        });
        let near = |value: Option<f64>| value.map(|value| (value * 100.0).round() / 100.0);
        (near(thread.alone(1)), near(thread.contention(1)))
    };
    assert_eq!(slower(&mut thread, 2.4), (None, None));
    thread.asymmetry[1] = Some(2.5);
    // One that waits for memory.
    assert_eq!(slower(&mut thread, 1.2), (Some(1.2), Some(1.0)));
    assert_eq!(slower(&mut thread, 3.0), (Some(2.5), Some(1.2)));
}

#[test]
fn while_another_decides_samples_do_not_pile_up() {
    let topology = board(2, 4);
    let mut threads = ThreadEstimators::new(None, 22);
    let mut tasks = [task(0, 0, 0), task(1, 1, 0)];
    let look = |threads: &mut ThreadEstimators, tasks: &[Task], now_ns: u64, rests: bool| {
        tasks
            .iter()
            .for_each(|task| threads.take(&sample(task, 2.0, 300.0, 0.0)));
        let snapshot = Snapshot {
            now_ns,
            topology: &topology,
            tasks,
        };
        match rests {
            true => threads.rest(&snapshot),
            false => threads.look(&snapshot, &mut Vec::new()),
        }
    };
    look(&mut threads, &tasks, 50 * MS, false);
    tasks[1].id.generation += 1;
    for now in 2..100 {
        look(&mut threads, &tasks, now * 50 * MS, true);
    }
    assert!(threads.noted.is_empty());
    assert_eq!((threads.threads.len(), threads.applications.len()), (1, 2));
    // It goes on with what comes then.
    assert_eq!(
        threads.last_outcome(tasks[0].id),
        Some(ReadingOutcome::Discarded)
    );
    look(&mut threads, &tasks, 5000 * MS, false);
    assert_eq!(threads.threads.len(), 2);
}

#[test]
fn of_a_past_that_was_wrong_nothing_is_left_of_what_it_transfers() {
    use crate::knowledge::Sure;
    let mut known = ThreadProfile::default();
    known.btr[..2].fill(Sure::of_factor(5e9, 0.01));
    let mut thread = Thread::new(22);
    thread.remember(&known);
    assert!(thread.btr_on[..2].iter().all(Option::is_some));
    // It was sampled on the fastest type.
    (thread.btr_on[0], thread.sampled) = (Some(1e6), 1);
    thread.forget_the_past();
    assert_eq!(thread.btr_on[..2], [Some(1e6), None]);
}
