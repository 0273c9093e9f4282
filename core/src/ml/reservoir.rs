// SPDX-License-Identifier: GPL-2.0-or-later
//! Examples that are kept to learn from while scheduling: so many at most, and of one program no
//! more than its share, or a busy one would soon be all that a model knows.

use std::collections::BTreeMap;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use super::examples::Example;

/// The most examples.
pub const MOST: usize = 4096;
/// The most of one program.
pub const SHARE: usize = 256;

/// An example, and when it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// It.
    pub example: Example,
    /// How many came before it.
    pub number: u64,
}

/// See the module. What gives way is drawn by chance, always alike.
#[derive(Clone, Debug)]
pub struct Reservoir {
    kept: Vec<Kept>,
    most: usize,
    share: usize,
    came: u64,
    rng: Pcg64Mcg,
}

impl Default for Reservoir {
    fn default() -> Self {
        Self::new(MOST, SHARE)
    }
}

impl Reservoir {
    /// For so many examples, and so many of each program.
    pub fn new(most: usize, share: usize) -> Self {
        Self {
            kept: Vec::new(),
            most,
            share,
            came: 0,
            rng: Pcg64Mcg::seed_from_u64(1),
        }
    }

    /// Takes an example in. One of the same program gives way if that has its share; if there is no
    /// room, one of the program that has most.
    pub fn add(&mut self, example: Example) {
        let number = self.came;
        self.came += 1;
        let of_program = |program: &str| -> Vec<usize> {
            let kept = self.kept.iter().enumerate();
            let same = kept.filter(|(_, kept)| kept.example.program == program);
            same.map(|(place, _)| place).collect()
        };
        let own = of_program(&example.program);
        let crowded = if own.len() >= self.share {
            own
        } else if self.kept.len() >= self.most {
            of_program(&self.largest())
        } else {
            Vec::new()
        };
        let kept = Kept { example, number };
        if crowded.is_empty() {
            self.kept.push(kept);
        } else {
            let drawn = self.rng.next_u64() % crowded.len() as u64;
            self.kept[crowded[drawn as usize]] = kept;
        }
    }

    fn largest(&self) -> String {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for kept in &self.kept {
            *numbers.entry(&kept.example.program).or_default() += 1;
        }
        let largest = numbers.into_iter().max_by_key(|&(_, number)| number);
        largest.map_or_else(String::new, |(program, _)| program.to_string())
    }

    /// What is kept, in no order.
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// How many came in all.
    pub fn came(&self) -> u64 {
        self.came
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(program: &str) -> Example {
        Example {
            program: program.into(),
            core_type: 0,
            features: vec![1.0],
            sf: 1.5,
        }
    }

    fn number_of(reservoir: &Reservoir, program: &str) -> usize {
        let kept = reservoir.kept().iter();
        kept.filter(|kept| kept.example.program == program).count()
    }

    #[test]
    fn one_program_does_not_fill_it() {
        let mut reservoir = Reservoir::new(100, 30);
        for _ in 0..1000 {
            reservoir.add(example("busy"));
        }
        assert_eq!(number_of(&reservoir, "busy"), 30);
        for n in 0..20 {
            (0..10).for_each(|_| reservoir.add(example(&format!("other {n}"))));
        }
        assert_eq!(reservoir.kept().len(), 100);
        let busy = number_of(&reservoir, "busy");
        assert!(busy <= 10, "the one that had most gave way: {busy}");
        assert_eq!(reservoir.came(), 1200);
    }

    #[test]
    fn what_came_long_ago_gives_way_sooner_or_later() {
        let mut reservoir = Reservoir::new(100, 30);
        (0..1000).for_each(|_| reservoir.add(example("busy")));
        let oldest = reservoir.kept().iter().map(|kept| kept.number).min();
        assert!(oldest > Some(500), "{oldest:?}");
    }
}
