// SPDX-License-Identifier: GPL-2.0-only
//! What each policy comes to, in a closed loop with a small model of a machine.

use std::time::Duration;

use crate::model::{BANDWIDTH, Machine, Phase, Program, aggressor, compute, sensitive, steady};
use scx_hetero::policy::adwrr::Adwrr;
use scx_hetero::policy::camps::{Camps, CampsOptions};
use scx_hetero::policy::eqp::Eqp;
use scx_hetero::policy::hsp::Hsp;
use scx_hetero::policy::{Name, Objective, Policy, Settings};
use scx_hetero::slowdown::Thresholds;
use scx_hetero::topology::MAX_CORE_TYPES;

const INTERVAL: Duration = Duration::from_millis(400);

const SFS: [f64; 8] = [1.1, 2.8, 1.7, 2.0, 1.3, 2.5, 1.5, 2.3];

fn mix(phases: impl IntoIterator<Item = Phase>) -> Vec<Program> {
    phases.into_iter().map(steady).collect()
}

fn build(name: Name) -> Box<dyn Policy> {
    name.build(Settings {
        swap_interval: INTERVAL,
        fairness: 100,
        oversubscribe: 2.5,
        objective: Objective::Edp,
        swap_rules: None,
        limits: None,
        without: &[],
    })
}

fn camps(fairness: u8) -> Camps {
    Camps::new(CampsOptions {
        fairness,
        limits: Some(Thresholds::from_bandwidth(BANDWIDTH)),
        ..CampsOptions::default()
    })
}

/// Four big and four small cores for a minute.
fn four_and_four(programs: Vec<Program>, policy: &mut dyn Policy) -> Machine {
    let mut machine = Machine::new(&[4, 4], programs);
    machine.run(policy, 60, |_| {});
    machine
}

/// As much ASP as can be had where none disturbs another: the highest SFs on the big cores.
fn best_asp(sfs: &[f64], big: usize) -> f64 {
    let mut gains: Vec<f64> = sfs.iter().map(|sf| sf - 1.0).collect();
    gains.sort_by(|a, b| b.total_cmp(a));
    gains[..big].iter().sum()
}

#[test]
fn hsp_comes_near_the_best_throughput_wherever_the_threads_start() {
    for turn in 0..8 {
        let mut sfs = SFS;
        sfs.rotate_left(turn);
        let machine = four_and_four(mix(sfs.map(compute)), &mut Hsp::default());
        let share = machine.asp() / best_asp(&sfs, 4);
        assert!(share > 0.96, "{turn}: {share}");
        assert!(machine.swaps < 60, "{turn}: {}", machine.swaps);
    }
}

#[test]
fn hsp_follows_a_thread_into_another_phase() {
    let mut programs = mix(SFS.map(compute));
    programs[0] = Program {
        phases: vec![compute(1.1), compute(3.2)],
        work_ns: 20e9,
    };
    let mut machine = Machine::new(&[4, 4], programs);
    let mut hsp = Hsp::default();
    machine.run(&mut hsp, 20, |_| {});
    assert_eq!(machine.tasks[0].core_type, 1);
    machine.run(&mut hsp, 35, |_| {});
    assert_eq!(machine.tasks[0].core_type, 0);
}

#[test]
fn rank_has_the_best_throughput_at_once_and_moves_few_after_that() {
    for turn in 0..8 {
        let mut sfs = SFS;
        sfs.rotate_left(turn);
        let mut machine = Machine::new(&[4, 4], mix(sfs.map(compute)));
        machine.estimates = true;
        machine.run(&mut *build(Name::Rank), 60, |_| {});
        let share = machine.asp() / best_asp(&sfs, 4);
        assert!(share > 0.98, "{turn}: {share}");
        // Four to their places; each is tried once, there and back; and a model that was not tried yet is worth a visit or two.
        assert!(machine.swaps <= 16, "{turn}: {}", machine.swaps);
    }
}

#[test]
fn rank_follows_a_thread_into_another_phase() {
    let mut programs = mix(SFS.map(compute));
    programs[0] = Program {
        phases: vec![
            compute(1.1),
            Phase {
                l1_per_kilo: 500.0,
                ..compute(3.2)
            },
        ],
        work_ns: 10e9,
    };
    let mut machine = Machine::new(&[4, 4], programs);
    machine.estimates = true;
    let mut rank = build(Name::Rank);
    machine.run(&mut *rank, 8, |_| {});
    assert_eq!(machine.tasks[0].core_type, 1);
    machine.run(&mut *rank, 7, |_| {});
    assert_eq!(machine.tasks[0].core_type, 0);
}

#[test]
fn eqp_slows_all_threads_down_alike() {
    let machine = four_and_four(mix(SFS.map(compute)), &mut Eqp::new(INTERVAL));
    assert!(machine.unfairness() < 1.15, "{}", machine.unfairness());
}

#[test]
fn adwrr_evens_out_scaled_time_and_not_progress() {
    let machine = four_and_four(mix(SFS.map(compute)), &mut Adwrr::new(INTERVAL));
    let scaled: Vec<u64> = machine
        .tasks
        .iter()
        .map(|task| (task.run_ns[0] + task.run_ns[1] / 2) / 1_000_000)
        .collect();
    let (least, most) = (scaled.iter().min().unwrap(), scaled.iter().max().unwrap());
    assert!(most - least < 1000, "two rounds and a bit: {scaled:?} ms");
    assert!(machine.unfairness() > 1.2, "{}", machine.unfairness());
}

#[test]
fn the_policies_for_fairness_have_less_throughput_and_more_fairness_than_hsp() {
    let hsp = four_and_four(mix(SFS.map(compute)), &mut Hsp::default());
    for name in [Name::Rr, Name::Adwrr, Name::Eqp, Name::Acfs, Name::Camps] {
        let other = four_and_four(mix(SFS.map(compute)), &mut *build(name));
        let (asp, unfairness) = (other.asp(), other.unfairness());
        println!("{name}: ASP {asp:.2}, unfairness {unfairness:.2}");
        assert!(asp < hsp.asp() && unfairness < hsp.unfairness(), "{name}");
    }
}

#[test]
fn with_camps_throughput_rises_and_fairness_falls_as_the_knob_is_turned_down() {
    let with_company = [
        compute(2.8),
        aggressor(),
        sensitive(),
        compute(2.4),
        compute(1.2),
        compute(1.6),
        compute(2.1),
        compute(1.4),
    ];
    for phases in [SFS.map(compute), with_company] {
        let turned = |fairness| {
            let machine = four_and_four(mix(phases), &mut camps(fairness));
            (machine.asp(), machine.unfairness())
        };
        let outcomes = [100, 80, 60, 40, 20, 0].map(turned);
        println!("{outcomes:.2?}");
        for pair in outcomes.windows(2) {
            let [(asp, unfairness), (next_asp, next_unfairness)] = pair else {
                unreachable!()
            };
            assert!(next_asp > &(asp - 0.02), "{outcomes:?}");
            assert!(next_unfairness > &(unfairness - 0.02), "{outcomes:?}");
        }
        let (even, none) = (outcomes[0], outcomes[5]);
        assert!(
            none.0 > 1.1 * even.0 && none.1 > 1.4 * even.1,
            "{outcomes:?}"
        );
    }
}

#[test]
fn the_knob_bounds_how_far_the_slowest_falls_back() {
    for fairness in [100, 80, 60, 50] {
        let machine = four_and_four(mix(SFS.map(compute)), &mut camps(fairness));
        let most = 100.0 / f64::from(fairness) * 1.15;
        assert!(
            machine.unfairness() < most,
            "{fairness}: {}",
            machine.unfairness()
        );
    }
}

#[test]
fn camps_without_fairness_comes_near_the_throughput_of_hsp() {
    let hsp = four_and_four(mix(SFS.map(compute)), &mut Hsp::default());
    let camps = four_and_four(mix(SFS.map(compute)), &mut camps(0));
    assert!(
        camps.asp() > 0.95 * hsp.asp(),
        "{} of {}",
        camps.asp(),
        hsp.asp()
    );
}

/// P, E and LP-E cores as in a Meteor Lake laptop, and a busy thread for each, for two minutes.
fn meteor_lake(policy: &mut dyn Policy, estimates: bool) -> Machine {
    let sfs = (0..14).map(|i| 1.1 + 0.05 * f64::from(i * 5 % 14));
    let mut machine = Machine::new(&[4, 8, 2], mix(sfs.map(compute)));
    machine.topology.types[2].low_power_island = true;
    machine.estimates = estimates;
    machine.run(policy, 120, |_| {});
    machine
}

#[test]
fn with_three_types_hsp_gives_the_middle_ones_to_the_middle_ranks() {
    let machine = meteor_lake(&mut Hsp::default(), false);
    let places: Vec<usize> = by_sf(&machine).iter().map(|&(_, place)| place).collect();
    assert_eq!(places, [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
}

#[test]
fn with_three_types_rank_lets_nobody_wait_who_is_clearly_better() {
    let machine = meteor_lake(&mut *build(Name::Rank), true);
    let ranked = by_sf(&machine);
    let on = |place| ranked.iter().filter(|r| r.1 == place).count();
    assert_eq!([on(0), on(1), on(2)], [4, 8, 2]);
    for (better, there) in &ranked {
        for (worse, here) in &ranked {
            // Estimates are of the slowest type, that is of the square.
            assert!(
                here >= there || better / worse < 1.05_f64.sqrt(),
                "{ranked:?}"
            );
        }
    }
}

/// As much ASP as one thread a CPU can have, of so many CPUs of each type.
fn best_placement(programs: &[Program], cpus: &mut [u32]) -> f64 {
    let Some((first, others)) = programs.split_first() else {
        return 0.0;
    };
    let factor = |core_type| Machine::type_factor(&first.phases[0], core_type);
    let slowest = factor(cpus.len() - 1);
    let mut best = f64::NEG_INFINITY;
    for core_type in 0..cpus.len() {
        if cpus[core_type] > 0 {
            cpus[core_type] -= 1;
            let rest = best_placement(others, cpus);
            best = best.max(slowest / factor(core_type) - 1.0 + rest);
            cpus[core_type] += 1;
        }
    }
    best
}

#[test]
fn hsp_and_rank_come_near_the_best_placement_whatever_each_type_is_worth_to_each_thread() {
    let mut lot = 12345_u32;
    let mut between = |least: f64, most: f64| {
        lot = lot.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        least + (most - least) * f64::from(lot >> 8) / f64::from(1 << 24)
    };
    for (cpus, threads) in [
        (vec![2, 2, 2], 6),
        (vec![2, 4, 2], 6),
        (vec![2, 2, 2], 4),
        (vec![1, 2, 2, 2], 7),
        (vec![1, 2, 2, 2], 5),
    ] {
        let mut least = [f64::INFINITY; 2];
        for _ in 0..10 {
            let programs: Vec<Program> = (0..threads)
                .map(|_| {
                    let mut factors = [1.0; MAX_CORE_TYPES];
                    for slower in 1..MAX_CORE_TYPES {
                        factors[slower] = factors[slower - 1] * between(1.0, 2.2);
                    }
                    steady(Phase {
                        by_type: Some(factors),
                        ..compute(factors[1])
                    })
                })
                .collect();
            let best = best_placement(&programs, &mut cpus.clone());
            for (name, least) in [Name::Hsp, Name::Rank].into_iter().zip(&mut least) {
                let mut machine = Machine::new(&cpus, programs.clone());
                machine.estimates = name == Name::Rank;
                machine.run(&mut *build(name), 120, |_| {});
                *least = least.min(machine.asp() / best);
            }
        }
        println!("{threads} threads on {cpus:?}: {least:.2?} of the best");
        // What a type would be worth that no thread is on, and what a model says of types between
        // the fastest and the slowest, is not known but by capacities.
        let known = if threads == cpus.iter().sum::<u32>() {
            0.9
        } else {
            0.8
        };
        assert!(
            least[0] > known && least[1] > 0.8,
            "{threads} on {cpus:?}: {least:?}"
        );
    }
}

#[test]
fn with_three_types_and_fewer_threads_than_cpus_the_type_that_nobody_visits_plays_no_part() {
    let sfs = [1.1, 1.5, 1.2, 1.4, 1.3, 2.6, 2.4, 2.6];
    for name in [Name::Hsp, Name::Rank] {
        let mut machine = Machine::new(&[4, 8, 2], mix(sfs.map(compute)));
        machine.topology.types[2].low_power_island = true;
        machine.estimates = name == Name::Rank;
        machine.run(&mut *build(name), 60, |_| {});
        let ranked = by_sf(&machine);
        let places: Vec<usize> = ranked.iter().map(|&(_, place)| place).collect();
        assert_eq!(places, [0, 0, 0, 0, 1, 1, 1, 1], "{name}: {ranked:?}");
    }
}

#[test]
fn with_three_types_camps_without_fairness_is_as_fast_as_hsp_whether_all_are_visited_or_not() {
    for threads in [8, 14] {
        let sfs = (0..threads).map(|i| 1.1 + 0.1 * f64::from(i * 5 % threads));
        let run = |policy: &mut dyn Policy| {
            let mut machine = Machine::new(&[4, 8, 2], mix(sfs.clone().map(compute)));
            machine.run(policy, 60, |_| {});
            machine.asp()
        };
        let (hsp, camps) = (run(&mut Hsp::default()), run(&mut camps(0)));
        assert!(camps > 0.93 * hsp, "{threads}: {camps} of {hsp}");
    }
}

/// SF and core type of all threads, the highest SF first.
fn by_sf(machine: &Machine) -> Vec<(f64, usize)> {
    let mut by_sf: Vec<(f64, usize)> = machine
        .programs
        .iter()
        .zip(&machine.tasks)
        .map(|(program, task)| (program.phases[0].sf, task.core_type))
        .collect();
    by_sf.sort_by(|a, b| b.0.total_cmp(&a.0));
    by_sf
}

#[test]
fn with_three_types_the_fair_policies_share_the_fastest_and_use_the_middle_one() {
    for name in [Name::Rr, Name::Adwrr, Name::Eqp, Name::Acfs, Name::Camps] {
        let machine = meteor_lake(&mut *build(name), false);
        for task in &machine.tasks {
            let ran = &task.run_ns[..3];
            assert!(ran[0] > 0 && ran[1] > 0, "{name}: {ran:?}");
        }
        println!("{name}: {:.2}", machine.unfairness());
        let most = if [Name::Rr, Name::Adwrr].contains(&name) {
            1.7
        } else {
            1.2
        };
        assert!(
            machine.unfairness() < most,
            "{name}: {}",
            machine.unfairness()
        );
    }
}
