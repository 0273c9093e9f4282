// SPDX-License-Identifier: GPL-2.0-or-later
//! How much a thread slows others down, for each byte that it transfers: 1 is what threads do in the mean.
//!
//! By BTR alone (CAMPS 2018, section 2.2) one that fills the last-level cache with what it will not use again is as
//! harmful as one that waits for each line. Where a thread is slowed down by more, or by less, than its own
//! [`super::sensitivity::Sensitivity`] to all traffic says, those beside it are the reason, each by its part of the traffic.

use crate::knowledge::Sure;

/// Before anything is known it is 1, within this, of the logarithm: variance.
const USUAL: Sure = Sure {
    value: 0.0,
    variance: 0.3 * 0.3,
};

/// By how much one sample of a victim errs if one thread transfers all that it meets, of the logarithm: variance. What
/// a part of that says is worth the square of the part.
const SAMPLE: f64 = 0.5 * 0.5;

/// The latest so many samples' worth counts.
const AVERAGED: f64 = 32.0;

/// Of the logarithm: one sample is believed no further, and no mean.
const MOST: f64 = 1.0;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggressiveness {
    /// Samples' worth.
    samples: f64,
    /// Of logarithms.
    mean: f64,
    /// Of earlier runs.
    past: Option<Sure>,
}

impl Aggressiveness {
    /// Takes in that a thread was so many times more slowed down than it was taken to be, beside others of whose traffic
    /// this one's was a `part`.
    pub(super) fn take(&mut self, times: f64, part: f64) {
        let apart = times.ln();
        if !apart.is_finite() {
            return;
        }
        let worth = part * part;
        let now = self.known().value + apart.clamp(-MOST, MOST);
        self.samples = (self.samples + worth).min(AVERAGED);
        self.mean += (now.clamp(-MOST, MOST) - self.mean) * worth / self.samples.max(worth);
    }

    /// Takes note of what earlier runs had.
    pub(super) fn remember(&mut self, past: Sure) {
        self.past = Some(past);
    }

    /// Forgets it.
    pub(super) fn forget_the_past(&mut self) {
        self.past = None;
    }

    /// For later runs; `None` where it says little.
    pub(super) fn found(&self) -> Option<Sure> {
        (self.samples >= 1.0).then(|| self.measured())
    }

    /// How much a byte of it counts.
    pub(super) fn factor(&self) -> f64 {
        self.known().factor()
    }

    fn measured(&self) -> Sure {
        Sure {
            value: self.mean,
            variance: SAMPLE / self.samples,
        }
    }

    fn known(&self) -> Sure {
        let prior = self.past.map_or(USUAL, |past| past.with(USUAL));
        match self.samples > 0.0 {
            true => self.measured().with(prior),
            false => prior,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_beside_which_others_suffer_more_counts_more_for_each_byte() {
        let mut of = Aggressiveness::default();
        assert_eq!((of.factor(), of.found()), (1.0, None));
        // Taken for 1 it would do twice what was foreseen.
        for _ in 0..100 {
            let foreseen = of.factor();
            of.take(2.0 / foreseen, 1.0);
        }
        assert!((1.8..2.1).contains(&of.factor()), "{}", of.factor());
        let mut small = Aggressiveness::default();
        (0..100).for_each(|_| small.take(2.0, 0.1));
        assert!((1.0..1.5).contains(&small.factor()));
        let mut odd = Aggressiveness::default();
        odd.take(f64::NAN, 1.0);
        odd.take(0.0, 1.0);
        assert_eq!(odd.factor(), 1.0);
        odd.take(1e9, 1.0);
        assert!(odd.factor() < 3.0);
    }
}
