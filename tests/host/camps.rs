// SPDX-License-Identifier: GPL-2.0-only
//! CAMPS and ACFS in a closed loop with a small model of a machine.

use std::time::Duration;

use crate::model::{BANDWIDTH, Machine, Phase, Program, aggressor, compute, sensitive, steady};
use scx_hetero::policy::acfs::Acfs;
use scx_hetero::policy::camps::{Camps, CampsOptions};
use scx_hetero::policy::{Action, Policy, Snapshot};
use scx_hetero::slowdown::{ReadingOutcome, Thresholds};
use scx_hetero::table::TaskState;

const TARGET: Duration = Duration::from_millis(400);

/// What tests/can-fail leaves out is left out.
fn options() -> CampsOptions {
    let without = std::env::var("SCX_HETERO_WITHOUT").unwrap_or_default();
    let options = CampsOptions::default();
    CampsOptions {
        migration_interval: TARGET,
        limits: Some(Thresholds::from_bandwidth(BANDWIDTH)),
        nwc: options.nwc.filter(|_| without != "nwc"),
        escape: options.escape.filter(|_| without != "escape"),
        entries: if without == "history" {
            0
        } else {
            options.entries
        },
        // The paper's.
        fairness: 100,
    }
}

fn camps() -> Camps {
    Camps::new(options())
}

/// None ever moves.
struct Stay;

impl Policy for Stay {
    fn interval(&self) -> Option<Duration> {
        None
    }

    fn decide(&mut self, _snapshot: &Snapshot, _actions: &mut Vec<Action>) {}
}

fn mixed(nr: usize) -> Vec<Program> {
    let programs = [
        compute(3.0),
        aggressor(),
        sensitive(),
        compute(2.2),
        compute(1.6),
        sensitive(),
        aggressor(),
        compute(2.6),
    ];
    programs[..nr].iter().copied().map(steady).collect()
}

fn unfairness(counts: &[u32], programs: &[Program], policy: &mut dyn Policy) -> f64 {
    let mut machine = Machine::new(counts, programs.to_vec());
    machine.run(policy, 120, |_| {});
    machine.unfairness()
}

#[test]
fn unfairness_is_far_below_that_of_threads_that_stay_where_they_are() {
    for counts in [[2, 4], [4, 4]] {
        let programs = mixed(counts.iter().sum::<u32>() as usize);
        let stay = unfairness(&counts, &programs, &mut Stay);
        let camps = unfairness(&counts, &programs, &mut camps());
        println!("{counts:?}: {camps:.3} instead of {stay:.3}");
        assert!(stay > 2.0, "{counts:?}: {stay}");
        assert!(camps < 1.1, "{counts:?}: {camps}");
    }
}

#[test]
fn acfs_is_fair_where_there_is_no_contention() {
    let programs: Vec<_> = [3.0, 1.6, 2.2, 1.8, 2.6, 2.0]
        .map(compute)
        .map(steady)
        .into();
    for policy in [&mut Acfs::new(TARGET) as &mut dyn Policy, &mut camps()] {
        let unfairness = unfairness(&[2, 4], &programs, policy);
        assert!(unfairness < 1.1, "{unfairness}");
    }
}

#[test]
fn with_three_core_types_the_middle_one_takes_part() {
    let programs: Vec<_> = [2.0, 1.3, 1.5, 1.7, 1.4, 1.6]
        .map(compute)
        .map(steady)
        .into();
    let mut machine = Machine::new(&[2, 2, 2], programs);
    machine.run(&mut camps(), 120, |_| {});
    assert!(machine.unfairness() < 1.2, "{}", machine.unfairness());
    let ran = machine.tasks.iter().map(|task| &task.run_ns[..3]);
    let both = |ns: &[u64]| ns[1] > 0 && ns[0] + ns[2] > 0;
    assert!(ran.clone().filter(|ns| both(ns)).count() > 2);
    assert!(ran.clone().all(|ns| ns[0] > 0), "{ran:?}");
}

#[test]
fn the_machine_migrates_about_once_in_400_ms() {
    let mut machine = Machine::new(&[4, 4], mixed(8));
    let mut camps = camps();
    machine.run(&mut camps, 60, |_| {});
    let before = machine.swaps;
    machine.run(&mut camps, 60, |_| {});
    let every_ms = 60_000 / (machine.swaps - before);
    assert!((300..=550).contains(&every_ms), "{every_ms} ms");
}

#[test]
fn a_new_phase_is_missed_at_first_and_hit_once_it_was_seen_on_a_big_core() {
    let mut programs = mixed(6);
    programs[3] = Program {
        phases: vec![
            compute(2.2),
            Phase {
                l1_per_kilo: 420.0,
                branches: 0.2,
                ..compute(3.0)
            },
        ],
        work_ns: 15e9,
    };
    let mut machine = Machine::new(&[2, 4], programs);
    let mut camps = camps();
    let mut seen: [Vec<Option<ReadingOutcome>>; 4] = Default::default();
    for _ in 0..1600 {
        machine.run(&mut camps, 0, |_| {});
        for _ in 0..5 {
            for sample in machine.tick() {
                camps.observe(&sample);
            }
        }
        let before = (machine.work_ns[3] / 15e9) as usize;
        let mut actions = Vec::new();
        camps.decide(&machine.snapshot(), &mut actions);
        machine.apply(actions);
        if before < seen.len() {
            seen[before].push(camps.threads().last_outcome(machine.tasks[3].id));
        }
    }
    let count = |turn: usize, wanted: fn(&ReadingOutcome) -> bool| {
        seen[turn].iter().flatten().filter(|o| wanted(o)).count()
    };
    let is_miss = |o: &ReadingOutcome| {
        matches!(
            o,
            ReadingOutcome::Miss | ReadingOutcome::Learned { new: true }
        )
    };
    let is_hit = |o: &ReadingOutcome| {
        matches!(
            o,
            ReadingOutcome::Hit | ReadingOutcome::Learned { new: false }
        )
    };
    assert!(count(1, is_miss) > 0, "the second phase is new");
    assert!(count(1, is_hit) > 4 * count(1, is_miss));
    assert!(
        !seen[2].is_empty() && count(2, is_miss) == 0,
        "the first is remembered"
    );
    let estimator = camps.threads().estimator(machine.tasks[3].id).unwrap();
    assert_eq!(estimator.history().entries().len(), 2);
}

#[test]
fn halving_every_clock_in_mid_run_changes_no_decision() {
    let programs: Vec<_> = [3.0, 1.6, 2.2, 1.8, 2.6, 2.0]
        .map(compute)
        .map(steady)
        .into();
    let run = |clock: f64| {
        let mut machine = Machine::new(&[2, 4], programs.clone());
        let mut camps = camps();
        machine.run(&mut camps, 20, |_| {});
        let before = camps.nwc().unwrap().episodes();
        machine.clock = clock;
        machine.run(&mut camps, 40, |_| {});
        assert_eq!(camps.nwc().unwrap().episodes(), before, "no NWC entry");
        machine.moves
    };
    let (full, half) = (run(1.0), run(0.5));
    assert!(full.len() > 50);
    assert_eq!(full, half);
}

/// How a policy did on a mix, over all rotations of what starts where.
#[derive(Debug, Default)]
struct Outcomes {
    /// Ticks in which a sensitive thread was on a big core, and those of them in which an
    /// aggressor was there too.
    exposed: u64,
    disturbed: u64,
    /// Mean over the rotations.
    unfairness: f64,
}

fn outcomes(counts: &[u32], mix: &[Phase], new: fn() -> Box<dyn Policy>) -> Outcomes {
    let mut sum = Outcomes::default();
    for turn in 0..mix.len() {
        let mut mix = mix.to_vec();
        mix.rotate_left(turn);
        let mut machine = Machine::new(counts, mix.iter().copied().map(steady).collect());
        machine.run(&mut *new(), 60, |machine| {
            let on_big = |is: fn(&Phase) -> bool| {
                let mut tasks = machine.tasks.iter().zip(&mix);
                tasks.any(|(task, phase)| task.core_type == 0 && is(phase))
            };
            let exposed = on_big(|phase| phase.sensitivity > 1.0);
            sum.exposed += u64::from(exposed);
            sum.disturbed += u64::from(exposed && on_big(|phase| phase.btr > 5e9));
        });
        sum.unfairness += machine.unfairness() / mix.len() as f64;
    }
    sum
}

#[test]
fn aggressors_are_kept_from_sensitive_threads_more_than_under_acfs() {
    // No two alike, or they would move in step.
    let with_sf = |phase: Phase, sf| Phase { sf, ..phase };
    let few = [
        with_sf(aggressor(), 1.5),
        with_sf(sensitive(), 2.0),
        compute(2.1),
        with_sf(sensitive(), 2.3),
        with_sf(aggressor(), 1.7),
        compute(2.5),
    ];
    let one = [
        with_sf(aggressor(), 1.5),
        with_sf(sensitive(), 2.0),
        compute(2.1),
        compute(2.3),
        compute(1.9),
        compute(2.5),
        with_sf(sensitive(), 2.2),
        compute(2.2),
    ];
    let mut many = one;
    many[3] = with_sf(aggressor(), 1.7);
    many[7] = with_sf(aggressor(), 1.9);
    for (counts, mix) in [([2, 4], &few[..]), ([4, 4], &one), ([4, 4], &many)] {
        let camps = outcomes(&counts, mix, || Box::new(camps()));
        let acfs = outcomes(&counts, mix, || Box::new(Acfs::new(TARGET)));
        println!("{counts:?}: camps {camps:?}, acfs {acfs:?}");
        let share = |o: &Outcomes| o.disturbed as f64 / o.exposed as f64;
        let (ours, theirs) = (share(&camps), share(&acfs));
        assert!(ours < 0.95 * theirs, "{counts:?}: {ours} against {theirs}");
        assert!(
            camps.unfairness < acfs.unfairness,
            "{counts:?}: {camps:?}, {acfs:?}"
        );
    }
}

#[test]
fn nwc_mode_is_rare_where_it_is_not_needed_and_bounded_where_it_cannot_help() {
    let quiet: Vec<_> = [3.0, 1.6, 2.2, 1.8, 2.6, 2.0]
        .map(compute)
        .map(steady)
        .into();
    let loud = vec![steady(aggressor()); 6];
    for (programs, most) in [(quiet, 0.0), (mixed(6), 0.02), (loud, 0.05)] {
        let mut machine = Machine::new(&[2, 4], programs);
        let mut camps = camps();
        machine.run(&mut camps, 120, |_| {});
        let share = camps.nwc().unwrap().spent_ns() as f64 / machine.now_ns as f64;
        println!("{share} of the time in NWC mode, {most} allowed");
        assert!(share <= most, "{share}");
    }
}

/// As four that stream and four that compute: on the big cores the first would disturb each other.
#[test]
fn who_lags_far_is_swapped_though_neither_gains() {
    let mix = [
        aggressor(),
        aggressor(),
        aggressor(),
        aggressor(),
        compute(1.7),
        compute(2.8),
        compute(1.3),
        compute(1.6),
    ];
    let mut machine = Machine::new(&[4, 4], mix.map(steady).to_vec());
    let mut camps = camps();
    machine.run(&mut camps, 60, |_| {});
    let forced = camps.tally().forced_swaps;
    println!("{forced} of {} swaps", machine.swaps);
    assert!(forced > 0);
}

#[test]
fn what_is_never_undisturbed_otherwise_is_learned_in_nwc_mode() {
    let mut programs = vec![steady(aggressor()); 6];
    programs[5] = steady(sensitive());
    let mut machine = Machine::new(&[2, 4], programs);
    let mut camps = camps();
    machine.run(&mut camps, 120, |_| {});
    let tally = camps.tally();
    println!("{tally:?}");
    assert!(tally.nwc_episodes > 0 && tally.nwc_learned > 0);
}

#[test]
fn equal_input_gives_equal_output() {
    let run = || {
        let mut machine = Machine::new(&[4, 4], mixed(8));
        machine.run(&mut camps(), 30, |_| {});
        machine.moves
    };
    assert_eq!(run(), run());
}

#[test]
fn a_thousand_threads_are_no_trouble() {
    let programs = (0..1000).map(|i| steady(mixed(8)[i % 8].phases[0]));
    let mut machine = Machine::new(&[4, 4], programs.collect());
    for (slot, task) in machine.tasks.iter_mut().enumerate() {
        if slot >= 8 {
            task.state = TaskState::Queued;
        }
    }
    let mut camps = camps();
    let mut decided = 0;
    for look in 1..=200u64 {
        machine.now_ns = look * 50_000_000;
        if look == 2 {
            for (slot, task) in (0..).zip(&mut machine.tasks) {
                task.amp_progress = slot * 7_919_000_000 % 1_000_000_007;
            }
        }
        for slot in 0..8 {
            machine.tasks[slot].run_ns[machine.topology.cpus[slot].core_type] += 50_000_000;
        }
        let mut actions = Vec::new();
        camps.decide(&machine.snapshot(), &mut actions);
        decided += actions.len();
    }
    assert!(decided > 0);
}
