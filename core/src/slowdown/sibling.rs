// SPDX-License-Identifier: GPL-2.0-or-later
//! How much slower a thread is while the other thread of its core (SMT) is busy: its sibling factor.
//!
//! What two threads of a core do together is less than twice what one does alone, so that a thread's speed
//! undisturbed cannot be had while the sibling runs. CAMPS (2018) has machines without SMT; on one whose cores are
//! full nothing would ever be learnt. With the factor known, such samples tell what the thread would do undisturbed
//! ([`super::Reading::sibling`]).
//!
//! It is measured wherever the thread's speed undisturbed in the same phase is known: by a sample that was taken with the
//! sibling idle, or by an earlier run. Until then it is what it was for other threads, or what is usual.

use super::Thresholds;
use crate::knowledge::Sure;
use crate::pmu::sample::SampleMetrics;

/// What is usual, of the logarithm: two threads compute 1.3 times what one does. Assumed, of the order that vendors name.
const USUAL: Sure = Sure {
    value: 0.43, // ln(2 / 1.3)
    variance: 0.15 * 0.15,
};

/// How far apart threads' factors are, of the logarithm, variance: one that waits for memory is hardly disturbed.
const APART: f64 = 0.15 * 0.15;

/// By how much one sample errs, of the logarithm, variance.
const SAMPLE: f64 = 0.1 * 0.1;

/// The latest so many samples count.
const AVERAGED: f64 = 16.0;

/// No factor is believed beyond these, of the logarithm: a sibling takes no more than nine tenths.
const MOST: f64 = 2.3;

/// What a busy sibling takes of a thread that waits for memory, as part of what it takes of others: assumed.
const WAITING: f64 = 0.2;

/// How much slower two that compute all the time make each other, as [`USUAL`] has it.
const EXCESS: f64 = 0.54;

/// One that issues so many instructions a cycle does not wait: about what cores can.
const WIDTH: f64 = 4.0;

/// One that transfers so many times [`Thresholds::low_btr`] waits for memory all the time: at that it does for a tenth of it.
const WAITS: f64 = 10.0;

/// What part of its time a thread computes, 0 to 1: what it does not wait for memory. While it waits, the core is its sibling's.
/// Where that is not counted, each line that it misses is taken to take as long as one that nothing hides, but it computes no less
/// than it takes to issue its instructions.
pub fn computing(metrics: &SampleMetrics, limits: &Thresholds) -> f64 {
    if let Some(stalled) = metrics.stalled {
        return 1.0 - stalled;
    }
    let waits = metrics.btr.unwrap_or(0.0) / (WAITS * limits.low_btr);
    (1.0 - waits).max(metrics.ipc / WIDTH).clamp(0.0, 1.0)
}

/// The speed of a thread, as part of that with the core to itself, beside one that computes for the part `other` of its
/// time, as it does for the part `own`. As usual: what is measured of threads is beside whatever they had for siblings.
pub fn beside(own: f64, other: f64) -> f64 {
    1.0 / (1.0 + EXCESS * own * other)
}

/// How much that speed falls for each part of its time that the other one computes more.
pub fn loss(own: f64, other: f64) -> f64 {
    EXCESS * own * beside(own, other).powi(2)
}

/// A mean of samples; see the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct SiblingFactor {
    samples: f64,
    /// Of logarithms.
    mean: f64,
    /// Of earlier runs.
    past: Option<Sure>,
}

impl SiblingFactor {
    /// Takes note of what earlier runs had.
    pub fn remember(&mut self, past: Sure) {
        self.past = Some(past);
    }

    /// Takes in that the thread was so many times slower than undisturbed.
    pub fn take(&mut self, factor: f64) {
        let value = factor.ln();
        if value.is_finite() {
            self.samples = (self.samples + 1.0).min(AVERAGED);
            self.mean += (value.clamp(0.0, MOST) - self.mean) / self.samples;
        }
    }

    /// What was measured; `None` if nothing was.
    pub fn measured(&self) -> Option<Sure> {
        (self.samples > 0.0).then(|| Sure {
            value: self.mean,
            variance: SAMPLE / self.samples + SAMPLE / AVERAGED,
        })
    }

    /// What is known of the thread, beside what it `else` would be taken for.
    pub fn known(&self, otherwise: Sure) -> Sure {
        let prior = self.past.unwrap_or(otherwise);
        self.measured().map_or(prior, |own| own.with(prior))
    }

    /// How many times slower it makes a thread that waits for memory: while nothing is measured of it, little of what it
    /// is taken to make others slower.
    pub fn of_waiting(&self, otherwise: Sure) -> f64 {
        let factor = self.known(otherwise).factor();
        match self.measured().or(self.past) {
            Some(_) => factor,
            None => 1.0 + WAITING * (factor - 1.0),
        }
    }

    /// What another thread's is taken for, by what it is for all threads that were measured.
    pub fn of_others(&self) -> Sure {
        let measured = self.measured().map(|all| Sure {
            variance: all.variance + APART,
            ..all
        });
        measured.map_or(USUAL, |all| all.with(USUAL))
    }

    /// Forgets what earlier runs had.
    pub fn forget_the_past(&mut self) {
        self.past = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_memory_loses_little_unless_it_was_measured() {
        let others = Sure::of_factor(1.5, 0.01).unwrap();
        let mut own = SiblingFactor::default();
        assert!((own.of_waiting(others) - 1.1).abs() < 1e-9);
        own.take(1.4);
        assert_eq!(own.of_waiting(others), own.known(others).factor());
        let mut known = SiblingFactor::default();
        known.remember(Sure::of_factor(1.3, 0.01).unwrap());
        assert!((known.of_waiting(others) - 1.3).abs() < 1e-9);
    }

    #[test]
    fn what_has_many_misses_and_few_instructions_waits_and_all_else_computes() {
        let limits = Thresholds {
            low_btr: 1e6,
            high_btr: 1e8,
        };
        let of = |ipc, btr, stalled| {
            let metrics = SampleMetrics {
                ips: ipc * 1e9,
                ipc,
                frequency: 1e9,
                l1_per_kilo: None,
                branch_fraction: None,
                btr,
                stalled,
            };
            computing(&metrics, &limits)
        };
        assert_eq!(of(1.0, None, None), 1.0);
        assert_eq!(of(0.1, Some(0.0), None), 1.0, "a chain of divisions, say");
        assert!((of(0.1, Some(1e6), None) - 0.9).abs() < 1e-9);
        assert_eq!(of(0.1, Some(1e8), None), 0.025);
        assert_eq!(of(2.0, Some(1e8), None), 0.5, "prefetched in time");
        assert_eq!(of(6.0, Some(1e8), None), 1.0);
        assert_eq!(of(0.1, Some(0.0), Some(0.75)), 0.25, "as counted");
    }

    #[test]
    fn what_computes_loses_by_how_much_its_sibling_computes() {
        assert!((0.64..0.66).contains(&beside(1.0, 1.0)));
        assert_eq!((beside(1.0, 0.0), beside(0.0, 1.0)), (1.0, 1.0));
        for (own, other) in [(1.0, 0.2), (0.5, 0.9), (0.0, 0.5)] {
            let more = (beside(own, other) - beside(own, other + 1e-6)) / 1e-6;
            assert!((loss(own, other) - more).abs() < 1e-4);
        }
    }

    #[test]
    fn what_is_measured_soon_outweighs_what_is_usual_or_was() {
        let mut factor = SiblingFactor::default();
        let usual = factor.known(factor.of_others());
        assert_eq!(usual, USUAL);
        let mut again = SiblingFactor::default();
        again.remember(USUAL);
        for of in [&mut factor, &mut again] {
            (0..8).for_each(|_| of.take(1.1));
            let known = of.known(USUAL).factor();
            assert!((1.09..1.15).contains(&known), "{known}");
        }
        let others = factor.of_others();
        assert!(others.variance > factor.measured().unwrap().variance);
        assert!((1.1..1.4).contains(&others.factor()), "{others:?}");
    }

    #[test]
    fn no_sample_makes_more_of_it_than_there_can_be() {
        let mut factor = SiblingFactor::default();
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            factor.take(wrong);
        }
        assert_eq!(factor.measured(), None);
        factor.take(0.5);
        assert_eq!(factor.measured().unwrap().factor(), 1.0);
        factor.take(1e9);
        assert!(factor.measured().unwrap().factor() < 10.0);
    }
}
