// SPDX-License-Identifier: GPL-2.0-or-later
//! The policy as a whole on plain values.

use super::*;
use crate::table::TaskState;
use crate::testing::{MS, board, sample, task, with_smt};

/// Six threads on two big and four small cores; all samples are given to the policy each 50 ms.
struct Bench {
    topology: Topology,
    tasks: Vec<Task>,
    camps: Camps,
    now_ns: u64,
}

impl Bench {
    fn new(options: CampsOptions) -> Self {
        Self {
            topology: board(2, 4),
            tasks: (0..6).map(|i| task(i, i, usize::from(i >= 2))).collect(),
            camps: Camps::new(options),
            now_ns: 0,
        }
    }

    /// Runs for 50 ms with `(ipc, btr)` for each thread, and decides.
    fn step(&mut self, doing: &[(f64, f64)]) -> Vec<Action> {
        self.now_ns += 50 * MS;
        for (task, &(ipc, btr)) in self.tasks.iter_mut().zip(doing) {
            task.run_ns[task.core_type] += 50 * MS;
            self.camps.observe(&sample(task, ipc, 300.0, btr));
        }
        let mut actions = Vec::new();
        let snapshot = Snapshot {
            now_ns: self.now_ns,
            topology: &self.topology,
            tasks: &self.tasks,
        };
        self.camps.decide(&snapshot, &mut actions);
        actions
    }
}

const QUIET: [(f64, f64); 6] = [(2.0, 0.0); 6];

fn no_nwc() -> CampsOptions {
    CampsOptions {
        nwc: None,
        fairness: 100,
        ..CampsOptions::default()
    }
}

#[test]
fn a_slowdown_is_passed_on_when_it_changed_and_not_for_noise() {
    let mut bench = Bench::new(no_nwc());
    let told = |actions: &[Action]| {
        let slowdowns = actions.iter().filter_map(|action| match action {
            Action::Slowdown(task, inverse) => Some((task.slot, inverse[0], inverse[1])),
            _ => None,
        });
        slowdowns.collect::<Vec<_>>()
    };
    assert_eq!(told(&bench.step(&QUIET)), []);
    assert_eq!(told(&bench.step(&QUIET)), []);
    // On the big cores 1, elsewhere nothing is known: the static capacity.
    assert_eq!(told(&bench.step(&QUIET)), [(0, 1.0, 0.5), (1, 1.0, 0.5)]);
    bench.tasks[0].core_type = 1;
    bench.tasks[0].cpu = 2;
    bench.tasks[2].core_type = 0;
    bench.tasks[2].cpu = 0;
    let mut slower = QUIET;
    slower[0].0 = 0.5;
    assert_eq!(told(&bench.step(&slower)), [(0, 1.0, 0.25), (2, 1.0, 0.5)]);
    slower[0].0 = 0.51;
    assert_eq!(told(&bench.step(&slower)), []);
    slower[0].0 = 0.8;
    assert_eq!(told(&bench.step(&slower)), [(0, 1.0, 0.4)]);
}

#[test]
fn contention_on_a_big_core_is_slowdown_once_the_phase_is_known() {
    let mut bench = Bench::new(no_nwc());
    for _ in 0..5 {
        bench.step(&QUIET);
    }
    let mut loud = QUIET;
    loud[0] = (1.0, 1e9);
    loud[1] = (2.0, 9e9);
    for _ in 0..2 {
        bench.step(&loud);
    }
    let slowdown = |slot: usize| {
        let estimator = bench.camps.threads().estimator(bench.tasks[slot].id);
        estimator.unwrap().slowdown(0)
    };
    assert_eq!(slowdown(0), Some(2.0));
    assert_eq!(slowdown(1), Some(1.0));
}

#[test]
fn beside_a_busy_sibling_is_learned_what_would_be_without() {
    let learned = |siblings: bool| {
        let mut bench = Bench::new(no_nwc());
        if siblings {
            for cpu in &mut bench.topology.cpus[..2] {
                cpu.siblings = vec![0, 1];
            }
        }
        for _ in 0..5 {
            bench.step(&QUIET);
        }
        let tally = bench.camps.tally();
        assert_eq!(tally.phase_hits + tally.phase_misses, 18);
        assert_eq!((tally.samples_learned, tally.phases_learned), (6, 2));
        let history = bench.camps.history(bench.tasks[0].id).unwrap();
        history.entries()[0]
    };
    let (without, beside) = (learned(false), learned(true));
    assert!(without.exact && !beside.exact);
    let factor = beside.ipc / without.ipc;
    assert!((1.3..1.7).contains(&factor), "{factor}");
}

#[test]
fn the_one_ahead_on_a_big_core_changes_places_with_the_one_behind() {
    let mut bench = Bench::new(no_nwc());
    for _ in 0..5 {
        bench.step(&QUIET);
    }
    bench.tasks[1].amp_progress = 150 * MS;
    for (slot, ms) in [(0, 80), (2, 60), (3, 20), (4, 30), (5, 100)] {
        bench.tasks[slot].amp_progress = ms * MS;
    }
    let actions = bench.step(&QUIET);
    let (one, other) = ((&bench.tasks[1]).into(), (&bench.tasks[3]).into());
    assert_eq!(actions, [Action::Swap([(one, 1), (other, 0)])]);
}

#[test]
fn who_disturbs_one_that_lags_leaves_the_fast_cores_though_it_lags_itself() {
    let mut bench = Bench::new(no_nwc());
    for _ in 0..5 {
        bench.step(&QUIET);
    }
    let swap = |actions: Vec<Action>| {
        actions.into_iter().find_map(|action| match action {
            Action::Swap([(one, _), (other, _)]) => Some((one.task.slot, other.task.slot)),
            _ => None,
        })
    };
    // On the fast cores 1 uses memory, and 0 is slowed down by it to half.
    let mut loud = QUIET;
    loud[0] = (1.0, 1e9);
    loud[1] = (2.0, 9e9);
    let threshold = bench.camps.amp_threshold() as u64;
    let lag = |bench: &mut Bench, of_0: u64, of_1: u64| {
        for task in &mut bench.tasks {
            task.amp_progress = 100 * threshold;
        }
        bench.tasks[0].amp_progress -= of_0;
        bench.tasks[1].amp_progress -= of_1;
    };
    lag(&mut bench, 10 * threshold, threshold / 10);
    assert_eq!(swap(bench.step(&loud)), Some((1, 2)));
    let why = bench.camps.reason(bench.tasks[1].id);
    assert_eq!(why, Some(Reason::Relief));
    // But not if it is the one that lags.
    lag(&mut bench, 0, 10 * threshold);
    assert_eq!(swap(bench.step(&loud)), None);
}

#[test]
fn nwc_mode_swaps_in_stops_fairness_swaps_and_wishes_cores_idle() {
    let rules = NwcRules {
        intervals: 10,
        share: 1.0,
        episode_ns: 400 * MS,
        ..NwcRules::default()
    };
    let mut bench = Bench::new(CampsOptions {
        nwc: Some(rules),
        fairness: 100,
        ..CampsOptions::default()
    });
    // All memory-bound: no thread ever learns anything.
    let loud = [(1.0, 5e9); 6];
    let mut swapped_in = None;
    for _ in 0..40 {
        let actions = bench.step(&loud);
        if let Some(thread) = bench.camps.nwc().unwrap().thread() {
            swapped_in = Some((thread, actions));
            break;
        }
    }
    let (thread, actions) = swapped_in.expect("NWC mode");
    assert_eq!(thread, bench.tasks[0].id, "all know nothing, so the first");
    // It is on a big core already. The small ones have a cache of their own.
    assert_eq!(actions, [Action::Park(1, Duration::from_millis(100))]);
    // No swap for fairness, however far they are apart.
    bench.tasks[1].amp_progress = 100_000 * MS;
    let swaps = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::Swap(_)));
    assert!(!swaps(&bench.step(&loud)));
    // If the core were idled, it would learn, and the mode end.
    bench.tasks[1].state = TaskState::Blocked;
    let mut left = 0;
    while bench.camps.nwc().unwrap().thread() == Some(thread) {
        bench.step(&loud);
        left += 1;
        assert!(left < 8);
    }
    assert_eq!(
        bench.camps.nwc().unwrap().last_exit(),
        Some(nwc::Exit::Learned)
    );
}

/// Four threads on two big cores, and two on small ones, so far ahead or behind, ms.
fn shared_cores(progress: [u64; 6]) -> Bench {
    let mut bench = Bench::new(no_nwc());
    bench.topology = with_smt(board(4, 2), 0);
    bench.tasks = (0..6).map(|i| task(i, i, usize::from(i >= 4))).collect();
    for (task, ms) in bench.tasks.iter_mut().zip(progress) {
        task.amp_progress = ms * MS;
    }
    bench
}

#[test]
fn two_that_wait_for_memory_are_put_beside_two_that_compute() {
    // What waits issues little and transfers much.
    let (computes, waits) = ((2.0, 0.0), (0.01, 3e9));
    let pairs = |doing: [(f64, f64); 6], state: TaskState| {
        let mut bench = shared_cores([0; 6]);
        bench.tasks[3].state = state;
        let mut found = Vec::new();
        // As long as one is decided at most.
        for _ in 0..8 {
            for action in bench.step(&doing) {
                if let Action::Swap([(a, 0), (b, 0)]) = action {
                    assert_eq!(bench.camps.reason(a.task), Some(Reason::Siblings));
                    found.push([a.task.slot, b.task.slot]);
                }
            }
        }
        assert!(found.len() < 2, "{found:?}");
        found.pop().map(|mut slots| {
            slots.sort_unstable();
            slots
        })
    };
    let apart = [computes, computes, waits, waits, computes, computes];
    let [one, other] = pairs(apart, TaskState::Running).unwrap();
    assert!(one < 2 && (2..4).contains(&other), "{one}, {other}");
    let mixed = [computes, waits, computes, waits, computes, computes];
    assert_eq!(pairs(mixed, TaskState::Running), None);
    assert_eq!(pairs([computes; 6], TaskState::Running), None);
    // One that waits for memory has its core to itself: so has one that computes beside it.
    let [_, other] = pairs(apart, TaskState::Blocked).unwrap();
    assert_eq!(other, 2);
}
