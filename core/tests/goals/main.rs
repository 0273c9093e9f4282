// SPDX-License-Identifier: GPL-2.0-or-later
//! The loop of goals, closed over random programs.

mod plant;

use hetero_core::goals::{GoalMachine, GoalSettings, Goals, SessionSight};
use plant::{MS, Plant};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

/// How near rates were to their targets.
#[derive(Clone, Copy, Debug, Default)]
struct Nearness {
    windows: u32,
    within: u32,
    /// Of those 2 s or more after a phase began.
    settled: u32,
    settled_within: u32,
    settled_beyond_15: u32,
    worst: f64,
}

impl Nearness {
    fn note(&mut self, off: f64, settled: bool) {
        self.windows += 1;
        self.within += u32::from(off.abs() <= 0.1);
        if settled {
            self.settled += 1;
            self.settled_within += u32::from(off.abs() <= 0.1);
            self.settled_beyond_15 += u32::from(off.abs() > 0.15);
            self.worst = self.worst.max(off.abs());
        }
    }
}

fn run(
    settings: GoalSettings,
    plants: &mut [Plant],
    fast_cores: f64,
    ms: u64,
    rng: &mut Pcg64Mcg,
) -> Nearness {
    let mut goals = Goals::new(settings);
    let machine = GoalMachine {
        fast_cores,
        others: 0.0,
    };
    let mut near = Nearness::default();
    let mut given = vec![0.0; plants.len()];
    let trace = std::env::var_os("GOALS_TRACE").is_some();
    for at in 0..ms {
        if at % 50 == 0 {
            let sights: Vec<SessionSight> = plants.iter().map(Plant::sight).collect();
            let allotments = goals.look(at * MS, &machine, &sights);
            for (given, allotment) in given.iter_mut().zip(allotments) {
                *given = allotment.fast_cores;
            }
            if trace {
                let it = &allotments[0];
                println!(
                    "{at} rate {:.2} of {:.2} given {:.3} demand {:.3} spent {:.3} {:?} {:?}",
                    it.rates.windowed.unwrap_or(0.0), it.target, it.fast_cores, it.demand, it.spent, it.miss, it.model.map(|m| (m.a(), m.b(), m.gain(), m.resets()))
                );
            }
        }
        let mut free = fast_cores;
        for (plant, given) in plants.iter_mut().zip(&given) {
            free -= plant.step(at * MS, *given, free, rng) * 1000.0;
        }
        if at % 100 == 99 && at > 2000 {
            for plant in plants.iter() {
                let off = plant.rate_before((at + 1) * MS) / plant.target - 1.0;
                let phase = plant.phases.iter().rev().find(|(begin, _)| *begin <= at);
                let window = (11_000.0 / plant.target).max(1000.0) as u64;
                let settled = at > window + 1000 + phase.map_or(0, |(begin, _)| *begin + 1000);
                near.note(off, settled);
            }
        }
    }
    near
}

fn many(settings: GoalSettings, plants: u64, seed: u64) -> Nearness {
    let mut sum = Nearness::default();
    for n in 0..plants {
        let mut rng = Pcg64Mcg::seed_from_u64(seed * 1_000_000 + n);
        let mut plant = [Plant::random(1, &mut rng, 8.0, 20_000)];
        let near = run(settings, &mut plant, 8.0, 20_000, &mut rng);
        if std::env::var_os("GOALS_EACH").is_some() {
            println!("{n} {:.3} {:.3} {:?}", f64::from(near.within) / f64::from(near.windows), near.worst, (plant[0].target, plant[0].threads, plant[0].serial, plant[0].spins, plant[0].depth, &plant[0].phases));
        }
        sum.windows += near.windows;
        sum.within += near.within;
        sum.settled += near.settled;
        sum.settled_within += near.settled_within;
        sum.settled_beyond_15 += near.settled_beyond_15;
        sum.worst = sum.worst.max(near.worst);
    }
    sum
}

#[test]
fn explore() {
    let plants = std::env::var("GOALS_PLANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let seed = std::env::var("GOALS_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let part = |a: u32, b: u32| 100.0 * f64::from(a) / f64::from(b.max(1));
    let poles: Vec<f64> = std::env::var("GOALS_POLES").unwrap_or("0.5".into()).split(',').map(|p| p.parse().unwrap()).collect();
    let times: Vec<u64> = std::env::var("GOALS_TIMES").unwrap_or("200".into()).split(',').map(|p| p.parse().unwrap()).collect();
    for pole in &poles {
        for interval in &times {
            let settings = GoalSettings { pole: *pole, interval: std::time::Duration::from_millis(*interval), ..GoalSettings::default() };
            let near = many(settings, plants, seed);
            println!("pole {pole} interval {interval}: all {:.2} % settled {:.2} %, beyond 15: {:.3} %, worst {:.2}",
                part(near.within, near.windows), part(near.settled_within, near.settled),
                part(near.settled_beyond_15, near.settled), near.worst);
        }
    }
}
