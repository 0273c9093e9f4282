// SPDX-License-Identifier: GPL-2.0-or-later
//! How often classes are told right.

use super::{CLASSES, InterferenceClass};

/// How often each class was taken for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassConfusion {
    /// By what it was, and by what it was taken for.
    pub counts: [[u64; CLASSES]; CLASSES],
}

impl ClassConfusion {
    /// One more.
    pub fn add(&mut self, is: InterferenceClass, said: InterferenceClass) {
        self.counts[is as usize][said as usize] += 1;
    }

    /// How many there were of a class.
    pub fn of(&self, class: InterferenceClass) -> u64 {
        self.counts[class as usize].iter().sum()
    }

    /// Part of all that was told right.
    pub fn accuracy(&self) -> f64 {
        let all: u64 = self.counts.iter().flatten().sum();
        let right: u64 = (0..CLASSES).map(|class| self.counts[class][class]).sum();
        right as f64 / all.max(1) as f64
    }

    /// Harmonic mean of the parts of a class that were found, and of what was taken for it that is it; `None` if
    /// there is none, nor was anything taken for it.
    pub fn f1(&self, class: InterferenceClass) -> Option<f64> {
        let at = class as usize;
        let right = self.counts[at][at];
        let said: u64 = self.counts.iter().map(|is| is[at]).sum();
        let both = self.of(class) + said;
        (both > 0).then(|| 2.0 * right as f64 / both as f64)
    }

    /// Mean of [`Self::f1`] over the classes that there are examples of.
    pub fn macro_f1(&self) -> f64 {
        let there = InterferenceClass::ALL.iter().filter(|&&c| self.of(c) > 0);
        let scores: Vec<f64> = there.filter_map(|&class| self.f1(class)).collect();
        scores.iter().sum::<f64>() / scores.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_is_by_class_and_each_class_counts_alike() {
        use InterferenceClass::{Llc, None, Power};
        let mut all = ClassConfusion::default();
        for _ in 0..8 {
            all.add(None, None);
        }
        all.add(Llc, None);
        all.add(Llc, Llc);
        assert_eq!(all.accuracy(), 0.9);
        assert_eq!(all.f1(Llc), Some(2.0 / 3.0));
        assert_eq!(all.f1(Power), Option::None);
        assert!((all.macro_f1() - (16.0 / 17.0 + 2.0 / 3.0) / 2.0).abs() < 1e-12);
    }
}
