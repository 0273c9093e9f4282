// SPDX-License-Identifier: GPL-2.0-or-later
//! How much a thread suffers from what others transfer: *k* of "1 + *k* B times slower where others
//! transfer B bytes/s", by least squares over the samples of late.
//!
//! The others may come or leave while a sample is taken, so that a single one says little: a sample is
//! weighed by how much the others transferred, and there is no more to be learned from threads beside which
//! contention is low ([`FLOOR`]). What is known fades, so that a thread is tried again where contention
//! kept it away.

use crate::knowledge::Slope;
use crate::slowdown::Thresholds;

/// A new sample counts for one in so many: what a queue for memory does to a thread is not quite linear
/// in what others transfer, so that the latest ones are the best guide.
const AVERAGED: f64 = 3.0;

/// What is known is half as certain after so long without samples, ns.
const HALF_LIFE_NS: f64 = 5e9;

/// Less than this part of `high_btr` is no contention ([`Thresholds`]), so that whatever slows a thread
/// down beside it is something else.
const FLOOR: f64 = 0.1;

/// Sums over samples, each of which counts less from one to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sensitivity {
    /// B times the slowdown beyond 1, (bytes/s).
    covariance: f64,
    /// B squared, (bytes/s)².
    variance: f64,
    /// When the last sample was taken in, ns.
    at_ns: u64,
    /// All of it is of an earlier run.
    past: bool,
}

impl Sensitivity {
    /// Takes in that a thread was `contention` times slower where others transferred `others` bytes/s.
    pub(super) fn take(&mut self, contention: f64, others: f64, now_ns: u64) {
        let kept = (1.0 - 1.0 / AVERAGED) * self.fades(now_ns);
        let excess = (contention - 1.0).max(0.0);
        self.covariance = self.covariance * kept + others * excess;
        self.variance = self.variance * kept + others * others;
        self.at_ns = now_ns;
        self.past = false;
    }

    /// What an earlier run knew.
    pub(super) fn remembered(slope: &Slope, now_ns: u64) -> Self {
        Self {
            covariance: slope.covariance,
            variance: slope.variance,
            at_ns: now_ns.max(1),
            past: true,
        }
    }

    /// For later runs; `None` where it says nothing new.
    pub(super) fn found(&self) -> Option<Slope> {
        let Self {
            covariance,
            variance,
            ..
        } = *self;
        (self.is_known() && !self.past && variance > 0.0).then_some(Slope {
            covariance,
            variance,
        })
    }

    /// Whether anything is known.
    pub(super) fn is_known(&self) -> bool {
        self.at_ns > 0
    }

    /// *k*, seconds per byte.
    pub(super) fn per_byte(&self, limits: &Thresholds, now_ns: u64) -> f64 {
        let kept = self.fades(now_ns);
        let floor = FLOOR * limits.high_btr;
        self.covariance * kept / (self.variance * kept + floor * floor)
    }

    /// What part of what was known at the last sample still counts.
    fn fades(&self, now_ns: u64) -> f64 {
        let age = now_ns.saturating_sub(self.at_ns) as f64;
        (-age / HALF_LIFE_NS).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    const LIMITS: Thresholds = Thresholds {
        low_btr: 10.0,
        high_btr: 1000.0,
    };

    /// *k* after samples of (contention, others), in thousandths.
    fn k(samples: &[(f64, f64)], after_ns: u64) -> f64 {
        let mut sensitivity = Sensitivity::default();
        for &(contention, others) in samples {
            sensitivity.take(contention, others, S);
        }
        1000.0 * sensitivity.per_byte(&LIMITS, S + after_ns)
    }

    #[test]
    fn it_is_the_slope_of_what_was_seen() {
        let steady = k(&[(1.5, 500.0); 20], 0);
        assert!((steady - 1.0).abs() < 0.02, "{steady}");
        let mixed = k(&[(1.5, 500.0), (2.0, 1000.0)].repeat(10), 0);
        assert!((mixed - 1.0).abs() < 0.02, "{mixed}");
        assert_eq!(k(&[(0.9, 500.0); 20], 0), 0.0);
    }

    #[test]
    fn one_sample_in_which_the_others_came_or_left_changes_little() {
        let mut samples = vec![(1.5, 500.0); 20];
        samples.push((1.5, 0.001));
        let left = k(&samples, 0);
        samples.pop();
        samples.push((1.0, 500.0));
        let came = k(&samples, 0);
        assert!((0.95..1.01).contains(&left), "{left}");
        assert!((0.6..1.0).contains(&came), "{came}");
        // Nor is more made of the very first one than there can be.
        let first = k(&[(2.0, 0.001)], 0);
        assert!(first < 0.001, "{first}");
    }

    #[test]
    fn it_follows_and_fades() {
        let mut samples = vec![(1.5, 500.0); 20];
        samples.extend([(1.0, 500.0); 20]);
        assert!(k(&samples, 0) < 0.1);
        let samples = [(1.5, 500.0); 20];
        let fading = [0, 10, 30, 60].map(|seconds| k(&samples, seconds * S));
        assert!(fading.is_sorted_by(|a, b| a > b), "{fading:?}");
        assert!(fading[1] > 0.9 && fading[3] < 0.1 * fading[0], "{fading:?}");
    }
}
