// SPDX-License-Identifier: GPL-2.0-or-later
//! One program at a time, on a machine that suffices.

use std::time::Duration;

use hetero_core::goals::{GoalSettings, Goals, Miss};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::bench::{Bench, LOOK, Nearness};
use crate::plant::{MS, Plant, unit};

fn rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// Seeds from here on are others than those on which settings and bounds were chosen.
const HELD_OUT: u64 = 7_000_000;

/// Fifteen seconds each of so many random programs, changed like that.
fn random(first: u64, plants: u64, change: impl Fn(&mut Bench)) -> Nearness {
    let mut sum = Nearness::default();
    for seed in HELD_OUT + first..HELD_OUT + first + plants {
        let mut rng = rng(seed);
        let plant = Plant::random(1, &mut rng, 8.0, 15_000);
        let mut bench = Bench::new(vec![plant], 8.0, rng);
        change(&mut bench);
        bench.run(15_000);
        sum.add(&bench.near);
    }
    sum
}

#[test]
fn thousands_of_random_programs_are_kept_at_their_targets() {
    let near = random(0, 1500, |_| {});
    println!(
        "random programs: {:.2?} %, worst {:.2}",
        near.percent(),
        near.worst
    );
    let [all, settled, beyond] = near.percent();
    assert!(all > 98.0 && settled > 99.8 && beyond < 0.05, "{near:?}");
    assert!(near.worst < 0.3, "{near:?}");
}

/// docs/decisions/goal-allotments.md
#[test]
fn what_is_measured_and_in_force_at_once_is_nearer_than_every_500_ms() {
    let mut percent = [
        ("as it is", LOOK, 150),
        ("measured over 500 ms", LOOK, 500),
        ("every 500 ms", 500, 500),
    ]
    .map(|(what, look_ms, interval)| {
        let near = random(90_000, 300, |bench| {
            let interval = Duration::from_millis(interval);
            bench.goals = Goals::new(GoalSettings {
                interval,
                ..GoalSettings::default()
            });
            bench.look_ms = look_ms;
        });
        println!("{what}: {:.2?} %, worst {:.2}", near.percent(), near.worst);
        near.percent()[0]
    });
    percent.reverse();
    assert!(percent.is_sorted(), "{percent:?}");
}

#[test]
fn noisy_programs_get_no_worse_than_their_noise() {
    let near = random(10_000, 200, |bench| bench.plants[0].noise = 0.3);
    println!(
        "30 % noise: {:.2?} %, worst {:.2}",
        near.percent(),
        near.worst
    );
    let [_, settled, beyond] = near.percent();
    assert!(settled > 93.0 && beyond < 3.0, "{near:?}");

    let near = random(20_000, 200, |bench| {
        let plant = &mut bench.plants[0];
        plant.heavy_each = 12;
        plant.work *= 12.0 / 14.0;
    });
    println!(
        "heavy beats: {:.2?} %, worst {:.2}",
        near.percent(),
        near.worst
    );
    assert!(near.percent()[1] > 86.0 && near.worst < 0.8, "{near:?}");
}

/// x264's pictures come in groups of four, in a run of `experiments/goals-video` 200, 55, 45 and 4 ms apart.
const GROUP: [f64; 4] = [2.63, 0.72, 0.59, 0.06];

/// Percent of windows of a second, or ten beats where that is longer, within 10 % of the target, of such pictures at an
/// allotment that is right all the time.
fn ideal(target: f64) -> f64 {
    let mut rng = rng(HELD_OUT);
    let (mut at, mut beats) = (0.0, vec![0.0]);
    for picture in 0..20_000 {
        let sum: f64 = (0..12).map(|_| unit(&mut rng)).sum();
        at += GROUP[picture % 4] * (1.0 + 0.15 * (sum - 6.0)) / target;
        beats.push(at);
    }
    let window = f64::max(1.0, 10.0 / target);
    let next = |at: f64| beats.partition_point(|beat| *beat < at);
    let starts: Vec<f64> = (1..1000)
        .map(|n| (at - window) * n as f64 / 1000.0)
        .collect();
    let near = |start: &&f64| {
        let (first, last) = (next(**start), next(**start + window));
        let rate = (last - first) as f64 / (beats[last] - beats[first]);
        (rate / target - 1.0).abs() < 0.1
    };
    100.0 * starts.iter().filter(near).count() as f64 / starts.len() as f64
}

/// Of groups of four a second holds more or fewer by itself ([`ideal`]), so that at low rates this is below 95 %; it is to become no worse.
#[test]
fn an_encoder_whose_pictures_come_in_groups_is_kept_near_its_target() {
    for (target, least) in [(14.4, 85.0), (21.6, 87.0), (30.0, 96.0), (60.0, 99.0)] {
        let mut sum = Nearness::default();
        for seed in HELD_OUT + 60_000..HELD_OUT + 60_020 {
            let mut plant = Plant::new(1, target, 2.5 / target);
            plant.threads = 8;
            plant.noise = 0.15;
            plant.group = GROUP.to_vec();
            plant.fills = 55;
            plant.phases = vec![(7000, 1.4), (12_000, 0.8)];
            let mut bench = Bench::new(vec![plant], 6.4, rng(seed));
            bench.run(15_000);
            sum.add(&bench.near);
        }
        let near = sum.percent();
        println!(
            "pictures in groups, {target}/s: {near:.2?} %, worst {:.2}; ideal {:.1} %",
            sum.worst,
            ideal(target)
        );
        assert!(near[1] > least, "{target}: {sum:?}");
    }
}

/// An encoder of eight threads whose pictures take about the same, and come up to so many ms late, in order.
fn hands_out_in_order(target: f64, jitter: u64) -> Plant {
    let mut plant = Plant::new(1, target, 1.2 / target);
    plant.threads = 8;
    plant.noise = 0.1;
    plant.jitter = jitter;
    plant.phases = vec![(8000, 1.7), (16_000, 1.0)];
    plant
}

/// Percent of its settled windows within 10 % of the target at an allotment that is right all the time.
fn constant(target: f64, jitter: u64, seeds: std::ops::Range<u64>) -> f64 {
    let (mut near, mut all) = (0, 0);
    for seed in seeds {
        let mut rng = rng(seed);
        let mut plant = hands_out_in_order(target, jitter);
        for ms in 0..24_000 {
            let factor = if (8000..16_000).contains(&ms) {
                1.7
            } else {
                1.0
            };
            plant.step(ms * MS, 1.2 * factor, 6.4, &mut rng);
            let settled = ms > plant.phase_began(ms) + 1000 + plant.window_began();
            if ms % 100 == 0 && ms > 2000 && settled {
                all += 1;
                let off = plant.rate_before(ms * MS) / target - 1.0;
                near += u32::from(off.abs() <= 0.1);
            }
        }
    }
    100.0 * f64::from(near) / f64::from(all)
}

/// Work that is spread over several pictures at once says little of when one of them comes. At low rates a second sees that
/// whatever is allotted, and the controller takes a little of it for what the program needs; it is to become no worse.
#[test]
fn an_encoder_that_hands_pictures_out_in_order_is_kept_near_its_target() {
    let seeds = HELD_OUT + 80_000..HELD_OUT + 80_020;
    for (target, jitter, least) in [
        (12.0, 0, 99.0),
        (12.0, 100, 92.0),
        (12.0, 150, 79.0),
        (18.0, 150, 83.0),
        (48.0, 150, 89.0),
    ] {
        let mut sum = Nearness::default();
        for seed in seeds.clone() {
            let mut bench = Bench::new(vec![hands_out_in_order(target, jitter)], 6.4, rng(seed));
            bench.run(24_000);
            sum.add(&bench.near);
        }
        let right = constant(target, jitter, seeds.clone());
        println!(
            "in order, {target}/s, up to {jitter} ms late: {:.1?} %; by the right allotment {right:.1} %",
            sum.percent()
        );
        assert!(sum.percent()[1] > least, "{target} {jitter}: {sum:?}");
    }
}

#[test]
fn what_is_delivered_short_is_asked_for_on_top() {
    let near = random(30_000, 100, |bench| bench.delivered = 0.93);
    println!(
        "7 % short: {:.2?} %, worst {:.2}",
        near.percent(),
        near.worst
    );
    assert!(near.percent()[1] > 99.0, "{near:?}");
    // So short that the state decides nothing.
    let near = random(30_000, 100, |bench| bench.delivered = 0.6);
    println!(
        "40 % short: {:.2?} %, worst {:.2}",
        near.percent(),
        near.worst
    );
}

#[test]
fn slow_beats_are_kept_too() {
    let mut near = Nearness::default();
    for seed in 0..20 {
        let mut plant = Plant::new(1, 0.2 + 0.1 * seed as f64, 0.0);
        plant.work = 0.6 / plant.target;
        plant.noise = 0.02;
        let mut bench = Bench::new(vec![plant], 4.0, rng(seed));
        bench.run(30_000);
        bench.near = Nearness::default();
        bench.run(60_000);
        near.add(&bench.near);
    }
    println!(
        "slow beats: {:.2?} %, worst {:.2}",
        near.percent(),
        near.worst
    );
    assert!(near.percent()[1] > 99.0, "{near:?}");
}

#[test]
fn another_target_is_reached_within_two_seconds() {
    let mut plant = Plant::new(1, 30.0, 0.02);
    plant.noise = 0.05;
    let mut bench = Bench::new(vec![plant], 4.0, rng(1));
    for target in [30.0, 45.0, 10.0, 40.0] {
        bench.plants[0].target = target;
        bench.run(2000);
        let reached = bench.reached(0);
        assert!((reached - 1.0).abs() < 0.1, "{target}: {reached}");
    }
}

#[test]
fn one_that_waits_for_a_clock_is_left_what_it_uses() {
    let mut plant = Plant::new(1, 60.0, 0.004);
    plant.paced = 60.0;
    plant.noise = 0.1;
    let mut bench = Bench::new(vec![plant], 4.0, rng(1));
    bench.run(20_000);
    let [all, settled, beyond] = bench.near.percent();
    println!("paced: {all:.2} {settled:.2} {beyond:.2}");
    assert!(settled > 99.0, "{:?}", bench.near);

    // It holds itself back below its target: no more is asked for than it can use, and that is said.
    bench.plants[0].target = 90.0;
    bench.run(10_000);
    let state = bench.state(0);
    assert!((bench.reached(0) - 60.0 / 90.0).abs() < 0.02);
    assert!(state.demand < 1.0, "{state:?}");
    assert_eq!(state.miss, Some(Miss::Waits), "{state:?}");
}

#[test]
fn a_deadline_for_the_work_is_kept_though_beats_come_less_often() {
    // 30 beats a second, each 10 ms of work for one thread, or 2.5 for four.
    for (threads, deadline_ms, most) in [(1, 15.0, 0.75), (4, 15.0, 1.0), (4, 5.0, 2.5)] {
        let mut plant = Plant::new(1, 1000.0 / deadline_ms, 0.01);
        plant.threads = threads;
        plant.paced = 30.0;
        plant.noise = 0.1;
        plant.timed = true;
        let mut bench = Bench::new(vec![plant], 4.0, rng(1));
        bench.run(2000);
        let before = (bench.plants[0].beats, bench.plants[0].worked_ns);
        bench.run(10_000);
        let beats = bench.plants[0].beats - before.0;
        let worked = (bench.plants[0].worked_ns - before.1) as f64 / 1e6 / beats as f64;
        let state = bench.state(0);
        println!("deadline {deadline_ms} ms: {worked:.1} ms, {state}");
        assert!((298..=302).contains(&beats), "{beats}");
        assert!(worked < 1.1 * deadline_ms, "{worked}");
        assert!(state.fast_cores <= most, "{state:?}");
    }
}

#[test]
fn what_runs_on_where_a_cpu_is_idle_asks_for_what_it_needs_only() {
    let mut plant = Plant::new(1, 20.0, 0.025);
    plant.surplus = true;
    let mut bench = Bench::new(vec![plant], 4.0, rng(1));
    bench.run(5000);
    assert!((bench.reached(0) - 2.0).abs() < 0.1);
    let state = bench.state(0);
    assert!((state.demand - 0.5).abs() < 0.02, "{state:?}");
    assert_eq!(state.miss, None);
}

#[test]
fn too_few_threads_are_said_and_nothing_winds_up() {
    // Needs 1.5, and has one thread.
    let mut bench = Bench::new(vec![Plant::new(1, 60.0, 0.025)], 4.0, rng(1));
    bench.run(20_000);
    let state = *bench.state(0);
    assert_eq!(state.miss, Some(Miss::Threads { threads: 1 }), "{state:?}");
    assert!((state.demand - 1.5).abs() < 0.1, "{state:?}");
    assert!(state.fast_cores <= 1.0);
    // A second later it is light enough, and at its target at once.
    bench.plants[0].work = 0.01;
    bench.run(2500);
    assert!(
        (bench.reached(0) - 1.0).abs() < 0.05,
        "{}",
        bench.reached(0)
    );
}

#[test]
fn one_that_falls_silent_and_comes_back_is_where_it_was() {
    let mut bench = Bench::new(vec![Plant::new(1, 30.0, 0.02)], 4.0, rng(1));
    bench.run(3000);
    assert_eq!(bench.state(0).miss, None);
    let demand = bench.state(0).demand;
    // It computes something else.
    bench.plants[0].work = 1000.0;
    bench.run(6000);
    assert_eq!(bench.state(0).miss, Some(Miss::NoBeats));
    bench.plants[0].work = 0.02;
    bench.plants[0].again();
    bench.run(1500);
    let state = bench.state(0);
    assert!((state.demand / demand - 1.0).abs() < 0.1, "{state:?}");
    assert!((bench.reached(0) - 1.0).abs() < 0.1, "{}", bench.reached(0));
}
