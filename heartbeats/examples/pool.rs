// SPDX-License-Identifier: MIT
//! A pool of rayon that is as large as the scheduler advises: `cargo run --release -p hetero-heartbeats --example pool`.
//!
//! Rayon's threads take work when they have none, so each does as much as its core type allows, and only their number is to be
//! decided. Pools of each size are made once and kept. A last argument is the number of rounds; with `SCX_HETERO_ADVICE=0` it
//! follows nothing, to compare with (`experiments/advice --compiler rayon`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use hetero_heartbeats::advice::Subscription;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// Rounds of work, of some ten milliseconds each, if no number is given.
const ROUNDS: u64 = 500;

/// Between two words on how fast a pool was.
const TOLD: Duration = Duration::from_millis(200);

fn work(seed: u64) -> u64 {
    (0..20_000).fold(seed, |x: u64, _| {
        (x ^ x << 13).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// The pools that there were so far, by size.
#[derive(Default)]
struct Pools(BTreeMap<usize, ThreadPool>);

impl Pools {
    fn of(&mut self, threads: usize) -> Result<&ThreadPool, ThreadPoolBuildError> {
        Ok(match self.0.entry(threads) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(none) => {
                none.insert(ThreadPoolBuilder::new().num_threads(threads).build()?)
            }
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let most = std::thread::available_parallelism()?.get();
    let (mut pools, mut threads) = (Pools::default(), most);
    let nr_rounds = std::env::args()
        .next_back()
        .and_then(|last| last.parse().ok());
    let nr_rounds: u64 = nr_rounds.unwrap_or(ROUNDS);
    let follows = std::env::var("SCX_HETERO_ADVICE").as_deref() != Ok("0");
    let mut advice = Subscription::new(None)?;
    let (mut sum, begin) = (0u64, Instant::now());
    let (mut told, mut rounds) = (begin, 0);
    for round in 0..nr_rounds {
        if let Some(news) = advice.news() {
            let advised = news.threads.clamp(1, most);
            if follows && advised != threads {
                eprintln!(
                    "{threads} threads become {advised}: others want {:.1} CPUs",
                    news.company
                );
                (threads, told, rounds) = (advised, Instant::now(), 0);
            }
        }
        let pieces = (0..256u64).into_par_iter();
        sum ^= pools.of(threads)?.install(|| {
            pieces
                .map(|piece| work(round * 256 + piece))
                .reduce(|| 0, |a, b| a ^ b)
        });
        rounds += 1;
        if told.elapsed() >= TOLD {
            // In return: with so many threads it does so much.
            let rate = 1000.0 * f64::from(rounds) / told.elapsed().as_secs_f64();
            advice.tell_time(threads as u32, Some(rate as u64), None);
            (told, rounds) = (Instant::now(), 0);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("pool {nr_rounds} rounds, {threads} threads, {seconds:.4} s, {sum:x}");
    Ok(())
}
