// SPDX-License-Identifier: GPL-2.0-or-later
//! How sure a score is: what it would have been with other programs (the bootstrap, Efron 1979).
//!
//! Programs are drawn and not rows: windows of one program resemble each other, and a pair says
//! nothing that is independent of the other pairs of its programs.

use std::fmt;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// So many times programs are drawn.
const TIMES: usize = 2000;
const SEED: u64 = 1;

/// A score, and where 95 % of those lie that drawn programs have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Of all programs.
    pub value: f64,
    /// 2.5 % are less.
    pub low: f64,
    /// 2.5 % are more.
    pub high: f64,
}

impl Interval {
    /// Of what `score` says where each of so many programs counts as often as its weight says.
    pub fn of(programs: usize, score: impl Fn(&[f64]) -> f64) -> Self {
        let mut rng = SmallRng::seed_from_u64(SEED);
        let draw = |_| {
            let mut weights = vec![0.0; programs];
            for _ in 0..programs {
                weights[rng.gen_range(0..programs)] += 1.0;
            }
            score(&weights)
        };
        let mut drawn: Vec<f64> = (0..TIMES)
            .map(draw)
            // Of one program alone, drawn again and again, there is no pair.
            .filter(|score| score.is_finite())
            .collect();
        drawn.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let last = drawn.len().saturating_sub(1) as f64;
            drawn
                .get((part * last).round() as usize)
                .copied()
                .unwrap_or(f64::NAN)
        };
        Self {
            value: score(&vec![1.0; programs]),
            low: at(0.025),
            high: at(0.975),
        }
    }

    /// A part as percent.
    pub fn of_percent(Self { value, low, high }: Self) -> Self {
        Self {
            value: 100.0 * value,
            low: 100.0 * low,
            high: 100.0 * high,
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, low, high } = self;
        let places = f.precision().unwrap_or(3);
        write!(f, "{value:.places$} ({low:.places$} to {high:.places$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_about_two_standard_errors_wide_on_either_side() {
        let values: Vec<f64> = (0..100).map(|n| f64::from(n * 37 % 100)).collect();
        let mean = |weights: &[f64]| {
            let terms = values.iter().zip(weights).map(|(value, w)| value * w);
            terms.sum::<f64>() / weights.iter().sum::<f64>()
        };
        let interval = Interval::of(100, mean);
        let error = (99.0 * 101.0 / 12.0 / 100.0f64).sqrt();
        assert_eq!(interval.value, 49.5);
        assert!((interval.high - interval.value - 1.96 * error).abs() < 0.6);
        assert!((interval.value - interval.low - 1.96 * error).abs() < 0.6);
        assert_eq!(format!("{:.0}", Interval::of(1, |_| 7.0)), "7 (7 to 7)");
    }

    #[test]
    fn what_has_no_score_has_no_interval() {
        assert!(Interval::of(3, |_| f64::NAN).low.is_nan());
    }
}
