// SPDX-License-Identifier: MIT
//! A pool of rayon that is as large as the scheduler advises: `cargo run --release -p hetero-heartbeats --example pool`.
//!
//! Rayon's threads take work when they have none, so each does as much as its core type allows, and only their number is to be
//! decided. Pools of each size are made once and kept.
//!
//! Arguments: `fine`, for rounds of a sixteenth of the work in as many equal parts as there are threads, which all meet at the
//! end, or anything else; and the number of rounds. It begins with `RAYON_NUM_THREADS` threads, else one for each CPU. With
//! `SCX_HETERO_ADVICE=0` it follows nothing, to compare with (`experiments/advice --compiler rayon`).

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

/// Steps of a piece.
const STEPS: u64 = 20_000;

fn work(seed: u64, steps: u64) -> u64 {
    (0..steps).fold(seed, |x: u64, _| {
        (x ^ x << 13).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// Pieces of a round.
const PIECES: u64 = 256;

/// Those of a round, of which each thread takes the next ones when it has none.
fn shared(round: u64) -> u64 {
    let pieces = (0..PIECES).into_par_iter();
    pieces
        .map(|piece| work(round * PIECES + piece, STEPS))
        .reduce(|| 0, |a, b| a ^ b)
}

/// A sixteenth of these, in equal parts.
fn fine(round: u64) -> u64 {
    let threads = rayon::current_num_threads();
    let steps = STEPS * PIECES / 16 / threads as u64;
    let parts = (0..threads).into_par_iter().with_max_len(1);
    parts
        .map(|nth| work(round + nth as u64, steps))
        .reduce(|| 0, |a, b| a ^ b)
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
    let begins = std::env::var("RAYON_NUM_THREADS").ok();
    let begins = begins.and_then(|number| number.parse().ok());
    let (mut pools, mut threads) = (Pools::default(), begins.unwrap_or(most));
    let nr_rounds = std::env::args()
        .next_back()
        .and_then(|last| last.parse().ok());
    let nr_rounds: u64 = nr_rounds.unwrap_or(ROUNDS);
    let is_fine = std::env::args().nth(1).as_deref() == Some("fine");
    let follows = std::env::var("SCX_HETERO_ADVICE").as_deref() != Ok("0");
    let mut advice = Subscription::new(None)?;
    let (mut sum, begin) = (0u64, Instant::now());
    let (mut told, mut rounds) = (begin, 0);
    for round in 0..nr_rounds {
        if let Some(news) = advice.news() {
            let advised = match is_fine {
                true => news.threads_equal,
                false => news.threads,
            };
            let advised = advised.clamp(1, most);
            if follows && advised != threads {
                eprintln!(
                    "{threads} threads become {advised}: others want {:.1} CPUs",
                    news.company
                );
                (threads, told, rounds) = (advised, Instant::now(), 0);
            }
        }
        let all = if is_fine { fine } else { shared };
        sum ^= pools.of(threads)?.install(|| all(round));
        rounds += 1;
        if told.elapsed() >= TOLD {
            // In return: with so many threads it does so much.
            let rate = 1000.0 * f64::from(rounds) / told.elapsed().as_secs_f64();
            advice.tell_time(threads as u32, Some(rate as u64), None);
            (told, rounds) = (Instant::now(), 0);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let name = if is_fine { "fine" } else { "pool" };
    println!("{name} {nr_rounds} rounds, {threads} threads, {seconds:.4} s, {sum:x}");
    Ok(())
}
