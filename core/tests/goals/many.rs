// SPDX-License-Identifier: GPL-2.0-or-later
//! Many sessions: when the machine does not suffice, when there are a thousand, when they come and go.

use hetero_core::goals::room::GoalRoom;
use hetero_core::goals::{GoalMachine, GoalSettings, Goals, MAX_SESSIONS, Miss, SessionId};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::bench::{Bench, Nearness};
use crate::plant::{MS, Plant};

fn rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

fn wide(id: u64, target: f64, fast_cores: f64) -> Plant {
    let mut plant = Plant::new(id, target, fast_cores / target);
    plant.threads = 8;
    plant.noise = 0.05;
    plant
}

#[test]
fn two_programs_with_targets_8_and_12_keep_both() {
    let mut one = wide(1, 8.0, 2.0);
    one.phases = vec![(5000, 1.3), (11_000, 0.7), (17_000, 1.1)];
    let mut two = wide(2, 12.0, 3.0);
    two.phases = vec![(7000, 0.6), (13_000, 1.2), (22_000, 0.8)];
    let mut bench = Bench::new(vec![one, two], 6.0, rng(1));
    bench.run(30_000);
    println!("8 and 12: {:.2?}", bench.near.percent());
    assert!(bench.near.percent()[1] > 99.0, "{:?}", bench.near);
}

#[test]
fn goals_beyond_the_machine_degrade_alike_and_by_weight() {
    // 4, 6 and 8 fast cores of 9: half for each.
    let plants = vec![wide(1, 30.0, 4.0), wide(2, 50.0, 6.0), wide(3, 10.0, 8.0)];
    let mut bench = Bench::new(plants, 9.0, rng(1));
    bench.run(10_000);
    for plant in 0..3 {
        let reached = bench.reached(plant);
        assert!((reached - 0.5).abs() < 0.05, "{plant}: {reached}");
        let state = bench.state(plant);
        let Some(Miss::Machine { lacks }) = state.miss else {
            panic!("{state:?}");
        };
        assert!((lacks / state.demand - 0.5).abs() < 0.05, "{state:?}");
    }
    // The first counts twice: 4, and of what is left 5/14 each.
    bench.plants[0].weight = 200;
    bench.run(10_000);
    let reached = [0, 1, 2].map(|plant| bench.reached(plant));
    let level = 9.0 / (2.0 * 4.0 + 6.0 + 8.0);
    for (reached, expected) in reached.iter().zip([2.0 * level, level, level]) {
        assert!(
            (reached - expected).abs() < 0.05,
            "{reached}, not {expected}"
        );
    }
    // Once the machine suffices all are at their targets within two seconds.
    bench.machine.fast_cores = 20.0;
    bench.run(2000);
    for plant in 0..3 {
        let reached = bench.reached(plant);
        assert!((reached - 1.0).abs() < 0.1, "{plant}: {reached}");
    }
}

#[test]
fn what_others_are_to_keep_is_left_to_them() {
    let mut bench = Bench::new(vec![wide(1, 30.0, 6.0)], 4.0, rng(1));
    bench.machine.others = 1.0;
    bench.run(4000);
    let state = bench.state(0);
    assert!((state.fast_cores - 3.0).abs() < 1e-6, "{state:?}");
}

/// Two programs may use CPUs of four fast cores, and one any of eight.
#[test]
fn what_cpus_lack_to_which_some_are_confined_is_taken_from_these_alone() {
    let mut plants = vec![wide(1, 30.0, 4.0), wide(2, 50.0, 6.0), wide(3, 10.0, 3.8)];
    (plants[0].room, plants[1].room) = (Some(0), Some(0));
    let mut bench = Bench::new(plants, 8.0, rng(1));
    bench.rooms = vec![GoalRoom {
        fast_cores: 4.0,
        holds: 1,
    }];
    bench.run(10_000);
    for (plant, expected) in [0.4, 0.4, 1.0].into_iter().enumerate() {
        let (reached, state) = (bench.reached(plant), bench.state(plant));
        assert!((reached - expected).abs() < 0.05, "{reached}: {state:?}");
        match state.miss {
            Some(Miss::Cpus { lacks }) if plant < 2 => {
                assert!((lacks / state.demand - 0.6).abs() < 0.05, "{state:?}");
            }
            miss => assert!(miss.is_none() && plant == 2, "{state:?}"),
        }
    }
    // Once these suffice all are at their targets.
    (bench.plants[0].target, bench.plants[1].target) = (15.0, 15.0);
    bench.run(4000);
    for plant in 0..3 {
        let reached = bench.reached(plant);
        assert!((reached - 1.0).abs() < 0.1, "{plant}: {reached}");
    }
}

#[test]
fn a_thousand_sessions_are_kept_at_their_targets() {
    let mut rng = rng(1);
    let plants = (0..1000).map(|id| {
        let mut plant = Plant::random(id, &mut rng, 1.0, 0);
        plant.phases.clear();
        plant
    });
    let plants: Vec<Plant> = plants.collect();
    let mut bench = Bench::new(plants, 1000.0, rng);
    bench.run(3000);
    bench.near = Nearness::default();
    bench.run(1000);
    println!("a thousand sessions: {:.2?}", bench.near.percent());
    assert!(bench.near.percent()[0] > 99.0, "{:?}", bench.near);
}

#[test]
fn no_more_sessions_than_there_may_be_get_anything() {
    let plants: Vec<Plant> = (0..2000).map(|id| Plant::new(id, 30.0, 0.01)).collect();
    let mut sights: Vec<_> = plants.iter().map(Plant::sight).collect();
    let mut goals = Goals::new(GoalSettings::default());
    let machine = GoalMachine {
        fast_cores: 8.0,
        others: 1.0,
    };
    assert_eq!(goals.look(0, &machine, &sights).len(), MAX_SESSIONS);
    let sum: f64 = goals.states().iter().map(|it| it.fast_cores).sum();
    assert!(sum <= 7.0 + 1e-6, "{sum}");
    // What is out of order or there twice is not looked at.
    sights.truncate(10);
    sights[5].id = SessionId(1);
    sights[7].id = SessionId(6);
    assert_eq!(goals.look(50 * MS, &machine, &sights).len(), 8);
    assert_eq!(goals.look(100 * MS, &machine, &[]), &[]);
}

#[test]
fn sessions_that_come_and_go_each_100_ms_harm_no_other() {
    let (one, two) = (wide(1, 30.0, 2.0), wide(2, 50.0, 3.0));
    let mut bench = Bench::new(vec![one, two], 8.0, rng(1));
    bench.run(2000);
    let mut next = 3;
    for _ in 0..100 {
        bench.plants.truncate(2);
        for _ in 0..50 {
            bench.plants.push(wide(next, 1e6, 100.0));
            next += 1;
        }
        bench.run(100);
        for plant in 0..2 {
            let reached = bench.reached(plant);
            assert!((reached - 1.0).abs() < 0.15, "{plant}: {reached}");
        }
    }
}
