// SPDX-License-Identifier: GPL-2.0-or-later
//! Without noise and in one phase the loop has no limit cycle, whichever program it is closed over.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::bench::Bench;
use crate::plant::Plant;

/// Seeds from here on are others than those on which settings and bounds were chosen.
const HELD_OUT: u64 = 17_000_000;

const PLANTS: u64 = 2000;

/// A millisecond.
const STEPS: u32 = 5;

/// What the loop has settled by, and how long it is watched from then on, ms.
const SETTLED: u64 = 6000;
const WATCHED: u64 = 10_000;

/// The furthest that windows of a second, or ten beats where that is longer, are from each other in each of so many random
/// programs, of the target; in ascending order. It is changed like that at first, and so once it has settled.
fn swings(first: impl Fn(&mut Bench), then: impl Fn(&mut Bench)) -> Vec<f64> {
    let swing = |seed| {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        // Without phases.
        let mut plant = Plant::random(1, &mut rng, 8.0, 0);
        plant.noise = 0.0;
        plant.steps = STEPS;
        let mut bench = Bench::new(vec![plant], 8.0, rng);
        first(&mut bench);
        bench.run(SETTLED);
        then(&mut bench);
        bench.run(SETTLED);
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for _ in 0..WATCHED / 100 {
            bench.run(100);
            let reached = bench.reached(0);
            (least, most) = (least.min(reached), most.max(reached));
        }
        most - least
    };
    let mut swings: Vec<f64> = (HELD_OUT..HELD_OUT + PLANTS).map(swing).collect();
    swings.sort_by(f64::total_cmp);
    swings
}

/// How many swing by more than 15 % of their target.
fn beyond_15(what: &str, swings: &[f64]) -> usize {
    let beyond = swings.iter().filter(|&&swing| swing > 0.15).count();
    let (median, worst) = (swings[swings.len() / 2], swings[swings.len() - 1]);
    println!(
        "{what}: {beyond} of {} swing by more than 15 %, median {median:.3}, worst {worst:.2}",
        swings.len()
    );
    beyond
}

/// So many of them may: some that get 40 % less than they are allotted, of 8 to 12 beats/s.
const FEW: usize = 4;

#[test]
fn no_program_is_made_to_swing() {
    let swings = swings(|_| {}, |_| {});
    assert!(beyond_15("as it is", &swings) <= FEW);
    assert!(swings.last() < Some(&0.1), "{swings:?}");
}

#[test]
fn nor_is_one_of_which_the_controller_expects_more_or_less_than_it_gets() {
    let less = swings(|bench| bench.delivered = 0.6, |_| {});
    assert!(beyond_15("40 % less than allotted", &less) <= FEW);
    // Beats/s of a fast core.
    for gain in [1.4, 0.6] {
        let changed = swings(|_| {}, |bench| bench.plants[0].work /= gain);
        let what = format!("{gain} times the gain that was learnt");
        assert!(beyond_15(&what, &changed) <= FEW);
    }
}

/// Full answers made three of ten swing, some by more than the whole target (docs/decisions/goal-swing.md).
#[test]
fn few_are_whose_beats_come_an_interval_late() {
    for delivered in [1.0, 0.6] {
        let late = |bench: &mut Bench| {
            bench.plants[0].lag = 150;
            bench.delivered = delivered;
        };
        let swings = swings(late, |_| {});
        let what = format!("150 ms late, {delivered} of what is allotted");
        assert!(beyond_15(&what, &swings) <= 6);
        assert!(swings.last() < Some(&0.25), "{swings:?}");
    }
}
