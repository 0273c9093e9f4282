// SPDX-License-Identifier: GPL-2.0-or-later
//! How good a model is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A confusion matrix of two classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confusion {
    /// Yes, and said so.
    pub true_yes: u64,
    /// Yes, and said no.
    pub false_no: u64,
    /// No, and said yes.
    pub false_yes: u64,
    /// No, and said so.
    pub true_no: u64,
}

impl Confusion {
    /// Counts what was said of what is.
    pub fn add(&mut self, is: bool, said: bool) {
        let cell = match (is, said) {
            (true, true) => &mut self.true_yes,
            (true, false) => &mut self.false_no,
            (false, true) => &mut self.false_yes,
            (false, false) => &mut self.true_no,
        };
        *cell += 1;
    }

    /// How many there are.
    pub fn number(&self) -> u64 {
        self.true_yes + self.false_no + self.false_yes + self.true_no
    }

    /// The part that was said right; 0 where there is none.
    pub fn accuracy(&self) -> f64 {
        part(self.true_yes + self.true_no, self.number())
    }

    /// Of those said to be yes, the part that is.
    pub fn precision(&self) -> f64 {
        part(self.true_yes, self.true_yes + self.false_yes)
    }

    /// Of those that are yes, the part said so.
    pub fn recall(&self) -> f64 {
        part(self.true_yes, self.true_yes + self.false_no)
    }

    /// The harmonic mean of precision and recall.
    pub fn f1(&self) -> f64 {
        part(
            2 * self.true_yes,
            2 * self.true_yes + self.false_yes + self.false_no,
        )
    }
}

fn part(of: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        of as f64 / all as f64
    }
}

/// What is, and what was said of it, of a row of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowEstimate {
    /// The program's number.
    pub program: usize,
    /// What is.
    pub is: f64,
    /// What was said.
    pub said: f64,
}

/// How near numbers are to what they should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nearness {
    /// How many there are.
    pub number: u64,
    /// Mean absolute error.
    pub mae: f64,
    /// Pearson's correlation; 0 where one of both is always the same.
    pub correlation: f64,
    /// Root mean square of the errors of the logarithm, where each program counts alike, however many rows it has:
    /// they err alike. `None` in models that were made before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigma: Option<f64>,
}

impl Nearness {
    /// Of all rows.
    pub fn of(all: &[RowEstimate]) -> Self {
        let number = all.len().max(1) as f64;
        let mean = |value: fn(&RowEstimate) -> f64| all.iter().map(value).sum::<f64>() / number;
        let (mean_is, mean_said) = (mean(|it| it.is), mean(|it| it.said));
        let sum = |value: &dyn Fn(f64, f64) -> f64| {
            let terms = all
                .iter()
                .map(|it| value(it.is - mean_is, it.said - mean_said));
            terms.sum::<f64>()
        };
        let spread = (sum(&|is, _| is * is) * sum(&|_, said| said * said)).sqrt();
        Self {
            number: all.len() as u64,
            mae: mean(|it| (it.is - it.said).abs()),
            sigma: Some(sigma(all)).filter(|sigma| sigma.is_finite()),
            correlation: if spread > 0.0 {
                sum(&|is, said| is * said) / spread
            } else {
                0.0
            },
        }
    }
}

/// See [`Nearness::sigma`].
fn sigma(all: &[RowEstimate]) -> f64 {
    let mut programs: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for it in all {
        let (sum, number) = programs.entry(it.program).or_default();
        *sum += (it.is / it.said).ln().powi(2);
        *number += 1.0;
    }
    let squares: f64 = programs.values().map(|(sum, number)| sum / number).sum();
    (squares / programs.len().max(1) as f64).sqrt()
}

/// The median; NaN of none.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let half = numbers.len() / 2;
    let at = |n: usize| numbers.get(n).copied().unwrap_or(f64::NAN);
    match numbers.len() % 2 {
        0 => (at(half.wrapping_sub(1)) + at(half)) / 2.0,
        _ => at(half),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_gives_the_usual_numbers() {
        let mut matrix = Confusion::default();
        for (is, said, times) in [
            (true, true, 8),
            (true, false, 2),
            (false, true, 1),
            (false, false, 9),
        ] {
            (0..times).for_each(|_| matrix.add(is, said));
        }
        assert_eq!(matrix.number(), 20);
        assert_eq!(matrix.accuracy(), 0.85);
        assert_eq!(matrix.precision(), 8.0 / 9.0);
        assert_eq!(matrix.recall(), 0.8);
        assert_eq!(matrix.f1(), 16.0 / 19.0);
        assert_eq!(Confusion::default().f1(), 0.0);
    }

    #[test]
    fn the_median_is_between_the_middle_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    /// Of rows of one program.
    fn of(pairs: &[(f64, f64)]) -> Vec<RowEstimate> {
        let program = 0;
        let row = |&(is, said)| RowEstimate { program, is, said };
        pairs.iter().map(row).collect()
    }

    #[test]
    fn nearness_is_error_and_correlation() {
        let near = Nearness::of(&of(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]));
        assert!((near.correlation - 1.0).abs() < 1e-12);
        assert_eq!(near.mae, 2.0);
        assert!((near.sigma.unwrap() - 2.0_f64.ln()).abs() < 1e-12);
        let flat = Nearness::of(&of(&[(1.0, 1.0), (2.0, 1.0)]));
        assert_eq!(flat.correlation, 0.0);
        let none = Nearness::of(&[]);
        assert_eq!((none.number, none.sigma), (0, Some(0.0)));
    }

    #[test]
    fn a_program_of_many_rows_says_no_more_of_sigma_than_one_of_one() {
        let mut rows = of(&[(2.0, 1.0); 9]);
        rows.push(RowEstimate {
            program: 1,
            is: 1.0,
            said: 1.0,
        });
        let sigma = Nearness::of(&rows).sigma.unwrap();
        assert!((sigma - 2.0_f64.ln() / 2.0_f64.sqrt()).abs() < 1e-12);
    }
}
