// SPDX-License-Identifier: GPL-2.0-or-later
//! Means over runs of a program, with how much runs differ.

use serde::{Deserialize, Serialize};

/// What was measured before counts for so many values at most, so that a program that changes is followed.
pub(super) const MOST: f64 = 32.0;

/// What runs of a program are taken to differ by before that is known, of the logarithm: standard deviation.
const SPREAD: f64 = 0.1;

/// So many values' worth is that taken for.
const SPREAD_COUNTS: f64 = 2.0;

/// A value, and the variance of its error; of factors, both are of the logarithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sure {
    /// The value.
    pub value: f64,
    /// Variance of its error.
    pub variance: f64,
}

impl Sure {
    /// Whether its numbers are such that one can go by them: they may come from a file.
    pub(super) fn is_sound(&self) -> bool {
        self.value.abs() <= 1e3 && (0.0..=1e6).contains(&self.variance)
    }

    /// Of a factor, such as an SF; `None` unless both are numbers that one can go by.
    pub fn of_factor(factor: f64, variance: f64) -> Option<Self> {
        let value = factor.ln();
        (value.is_finite() && variance.is_finite() && variance >= 0.0)
            .then_some(Self { value, variance })
    }

    /// The factor.
    pub fn factor(&self) -> f64 {
        self.value.exp()
    }

    /// The two as one: each counts by the inverse of its variance.
    pub fn with(self, other: Self) -> Self {
        let all = self.variance + other.variance;
        if all <= 0.0 {
            return self;
        }
        let part = self.variance / all;
        Self {
            value: self.value + (other.value - self.value) * part,
            variance: self.variance * other.variance / all,
        }
    }
}

/// A mean over threads of a program's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptMean {
    /// How many values it counts for, at most 32.
    pub values: f64,
    /// The mean.
    pub mean: f64,
    /// Sum of squares of what they differ from it by.
    pub squares: f64,
    /// Mean of the variances that they came with.
    pub noise: f64,
}

impl KeptMean {
    /// Takes a value in.
    pub fn take(&mut self, of: Sure) {
        self.merge(&Self {
            values: 1.0,
            mean: of.value,
            squares: 0.0,
            noise: of.variance,
        });
    }

    /// Takes in what another one knows: each counts by its values.
    pub fn merge(&mut self, other: &Self) {
        if !other.is_sound() || other.values <= 0.0 {
            return;
        }
        let all = self.values + other.values;
        let (apart, part) = (other.mean - self.mean, other.values / all);
        self.squares += other.squares + apart * apart * self.values * part;
        self.mean += apart * part;
        self.noise += (other.noise - self.noise) * part;
        self.values = all.min(MOST);
        self.squares *= self.values / all;
    }

    /// What was known proved wrong: what comes next counts as much as all of it.
    pub fn doubt(&mut self) {
        let kept = self.values.min(1.0);
        if self.values > 0.0 {
            self.squares *= kept / self.values;
        }
        self.values = kept;
    }

    /// What the next run's value will be, and how sure that is; `None` before the first one.
    pub fn next(&self) -> Option<Sure> {
        if self.values <= 0.0 {
            return None;
        }
        let apart = (self.squares + SPREAD_COUNTS * SPREAD * SPREAD) / (self.values + 1.0);
        Some(Sure {
            value: self.mean,
            variance: apart + self.noise / self.values,
        })
    }

    /// Whether all numbers are such that one can go by them: it may come from a file.
    pub fn is_sound(&self) -> bool {
        let least_and_most = [
            (self.values, 0.0, MOST),
            (self.mean, -1e3, 1e3),
            (self.squares, 0.0, 1e6),
            (self.noise, 0.0, 1e6),
        ];
        let within = |&(number, least, most): &(f64, f64, f64)| (least..=most).contains(&number);
        least_and_most.iter().all(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(values: &[f64]) -> KeptMean {
        let mut kept = KeptMean::default();
        let variance = 0.0025;
        for &value in values {
            kept.take(Sure { value, variance });
        }
        kept
    }

    #[test]
    fn the_more_runs_agree_the_surer_it_is() {
        assert_eq!(KeptMean::default().next(), None);
        let sigma = |values: &[f64]| after(values).next().unwrap().variance.sqrt();
        let (one, few, many) = (sigma(&[0.5]), sigma(&[0.5; 4]), sigma(&[0.5; 40]));
        assert!(one > 0.1 && few < 0.08 && many < 0.03, "{one} {few} {many}");
        let apart = sigma(&[0.2, 0.8].repeat(20));
        assert!((apart - 0.3).abs() < 0.02, "{apart}");
    }

    #[test]
    fn a_program_that_changes_is_followed_and_at_once_where_it_proved_wrong() {
        let mut kept = after(&[0.5; 100]);
        assert_eq!(kept.values, MOST);
        let mut doubted = kept;
        doubted.doubt();
        for of in [&mut kept, &mut doubted] {
            for _ in 0..3 {
                let variance = 0.0025;
                of.take(Sure {
                    value: 1.0,
                    variance,
                });
            }
        }
        assert!(kept.mean < 0.6, "{kept:?}");
        let next = doubted.next().unwrap();
        assert!(next.value > 0.85 && next.variance.sqrt() > 0.15, "{next:?}");
    }

    #[test]
    fn two_are_merged_by_how_much_each_has_seen() {
        let mut both = after(&[0.2; 3]);
        both.merge(&after(&[1.0; 9]));
        assert!((both.mean - 0.8).abs() < 1e-9 && both.values == 12.0);
        let one_by_one = after(&[[0.2; 3].as_slice(), &[1.0; 9]].concat());
        assert!((both.squares - one_by_one.squares).abs() < 1e-9);
        let before = both;
        let mean = f64::NAN;
        both.merge(&KeptMean { mean, ..before });
        assert_eq!(both, before);
    }

    #[test]
    fn the_surer_of_two_counts_more() {
        let [sure, unsure] =
            [(1.0, 0.01), (2.0, 0.03)].map(|(value, variance)| Sure { value, variance });
        let both = sure.with(unsure);
        assert!((both.value - 1.25).abs() < 1e-9 && both.variance < 0.01);
        assert_eq!(Sure::of_factor(0.0, 0.1), None);
        assert!((Sure::of_factor(2.0, 0.1).unwrap().factor() - 2.0).abs() < 1e-9);
    }
}
