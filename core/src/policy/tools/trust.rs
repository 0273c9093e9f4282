// SPDX-License-Identifier: GPL-2.0-or-later
//! How far a model is believed of the programs that run. It says how much it errs with programs that it
//! was not learnt from; but it may have been learnt on another machine, or from programs that are nothing
//! like these. What was measured tells, by its **residuals**: logarithms of the measured SF over the
//! estimated one. Their mean is what all estimates are wrong by, their spread how much each may be.

use crate::pmu::sample::SfEstimate;

/// Before anything was measured a model may err by so much more than it says: standard deviation of the
/// logarithm of SF, about half of what the SFs of programs differ by.
const UNTRIED: f64 = 0.1;

/// Threads that the model's own word counts for, beside those that were measured.
const WORD: f64 = 2.0;

/// Where what was measured of one phase of a thread is so many standard errors from what is believed, the
/// model knows that thread so badly that it says nothing of its other phases.
const BEYOND: f64 = 2.5;

/// By how much two phases of a thread differ in that: standard deviation, of the usual order of a good model's.
const PHASES: f64 = 0.1;

/// As many that are gone are remembered at the most: the next ones may be others.
const REMEMBERED: f64 = 16.0;

/// Logarithm of what was measured over what the model said, and the variance of the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Residual {
    pub(super) value: f64,
    pub(super) variance: f64,
}

/// Residuals of threads, one each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Residuals {
    number: f64,
    sum: f64,
    squares: f64,
}

/// What follows from them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    /// What all estimates are too small by, of the logarithm.
    bias: f64,
    /// The part that the model's own variance has in that of an estimate.
    word: f64,
    /// What is added to that.
    variance: f64,
}

/// A model is taken at its word.
impl Default for Trust {
    fn default() -> Self {
        Self {
            bias: 0.0,
            word: 1.0,
            variance: 0.0,
        }
    }
}

impl Residuals {
    /// Counts one more, measured with such a variance, which is no error of the model's.
    pub(super) fn add(&mut self, Residual { value, variance }: Residual) {
        if value.is_finite() && variance.is_finite() {
            self.number += 1.0;
            self.sum += value;
            self.squares += value * value - variance;
        }
    }

    /// Counts that of a thread that has ended, for a while.
    pub(super) fn remember(&mut self, residual: Residual) {
        self.add(residual);
        let kept = (REMEMBERED / self.number.max(1.0)).min(1.0);
        self.number *= kept;
        self.sum *= kept;
        self.squares *= kept;
    }

    /// How far the model is believed.
    pub(super) fn trust(&self) -> Trust {
        let bias = self.sum / (self.number + 1.0);
        let apart = self.squares - bias * (2.0 * self.sum - self.number * bias);
        let seen = apart.max(0.0) / (self.number + WORD);
        Trust {
            bias,
            word: WORD / (self.number + WORD),
            variance: seen + UNTRIED * UNTRIED / (1.0 + self.number),
        }
    }
}

impl Trust {
    /// What is believed where the model says `sf`, with `variance` of the logarithm.
    pub(super) fn of(&self, sf: f64, variance: f64) -> SfEstimate {
        SfEstimate {
            sf: sf * self.bias.exp(),
            sigma: (self.word * variance + self.variance).sqrt(),
        }
    }

    /// The same of a thread of which `another` phase was measured. If the model was far off there, it is taken
    /// to be as far off here: some programs are like none that a model was learnt from.
    pub(super) fn of_thread(
        &self,
        sf: f64,
        variance: f64,
        another: Option<Residual>,
    ) -> SfEstimate {
        let believed = self.of(sf, variance);
        let beyond = |of: &Residual| {
            let apart = (of.value - self.bias).abs();
            let sigma = (believed.sigma * believed.sigma + of.variance).sqrt();
            apart.is_finite() && apart > BEYOND * sigma
        };
        match another.filter(beyond) {
            Some(Residual { value, variance }) => SfEstimate {
                sf: sf * value.exp(),
                sigma: (variance + PHASES * PHASES).sqrt(),
            },
            None => believed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64) -> Residual {
        let variance = 0.0;
        Residual { value, variance }
    }

    fn after(residuals: &[f64]) -> Residuals {
        let mut all = Residuals::default();
        residuals.iter().for_each(|&value| all.add(of(value)));
        all
    }

    #[test]
    fn a_model_that_was_not_tried_is_less_sure_than_it_says_and_one_that_was_right_is_as_sure() {
        let sigma = |residuals: &[f64]| after(residuals).trust().of(2.0, 0.05 * 0.05);
        let untried = sigma(&[]);
        assert_eq!(untried.sf, 2.0);
        assert!((untried.sigma - 0.05_f64.hypot(UNTRIED)).abs() < 1e-9);
        let right = sigma(&[[0.05, -0.05]; 16].concat());
        assert!((right.sigma - 0.05).abs() < 0.005, "{right:?}");
    }

    #[test]
    fn a_model_that_was_wrong_is_believed_as_little_as_it_deserves() {
        let wrong = after(&[[0.6, 0.0]; 8].concat()).trust().of(2.0, 0.0025);
        assert!(
            (wrong.sf / 2.0).ln() > 0.25 && wrong.sigma > 0.25,
            "{wrong:?}"
        );
        let biased = after(&[0.5; 16]).trust().of(2.0, 0.0025);
        assert!(
            (biased.sf - 3.3).abs() < 0.15 && biased.sigma < 0.15,
            "{biased:?}"
        );
        // What was measured is not exact.
        let mut noisy = Residuals::default();
        for value in [0.2, -0.2].repeat(8) {
            let variance = 0.04;
            noisy.add(Residual { value, variance });
        }
        let noisy = noisy.trust().of(2.0, 0.0025);
        assert!(noisy.sigma < 0.05, "{noisy:?}");
        // One is enough to doubt all others.
        let doubted = after(&[0.5]).trust().of(2.0, 0.0025);
        assert!(doubted.sigma > 0.15, "{doubted:?}");
    }

    #[test]
    fn a_thread_that_the_model_was_far_off_with_is_as_far_off_in_its_other_phases() {
        let trust = after(&[0.05, -0.05, 0.1, -0.6]).trust();
        let usual = trust.of(2.0, 0.0025);
        let same = trust.of_thread(2.0, 0.0025, None);
        assert_eq!((same.sf, same.sigma), (usual.sf, usual.sigma));
        let near = trust.of_thread(2.0, 0.0025, Some(of(0.2)));
        assert_eq!((near.sf, near.sigma), (usual.sf, usual.sigma));
        let far = trust.of_thread(2.0, 0.0025, Some(of(-0.9)));
        assert!((far.sf - 0.81).abs() < 0.01, "{far:?}");
        assert!((far.sigma - 0.1).abs() < 1e-9, "{far:?}");
        let none = trust.of_thread(2.0, 0.0025, Some(of(f64::INFINITY)));
        assert_eq!(none.sf, usual.sf);
    }

    #[test]
    fn threads_that_are_gone_are_remembered_but_not_for_ever() {
        let mut all = Residuals::default();
        (0..100).for_each(|_| all.remember(of(0.5)));
        (0..100).for_each(|_| all.remember(of(0.0)));
        let now = all.trust().of(2.0, 0.0025);
        assert!((now.sf / 2.0).ln() < 0.01, "{now:?}");
        all.add(of(f64::NAN));
        assert!(all.trust().of(2.0, 0.0025).sf.is_finite());
    }
}
