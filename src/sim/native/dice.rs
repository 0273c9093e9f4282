// SPDX-License-Identifier: GPL-2.0-only
//! Chance, from a seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

/// All that is random in a simulated life.
pub struct Dice(Pcg64Mcg);

impl Dice {
    /// The same seed gives the same throws.
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// 0 to `n` - 1; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.0.next_u64() % n }
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// From half of `mean` to one and a half.
    pub fn around(&mut self, mean: u64) -> u64 {
        mean / 2 + self.below(mean + 1) + 1
    }
}
