// SPDX-License-Identifier: GPL-2.0-or-later
//! A thread's speed on every core type, of those on which it was measured. What is not measured
//! follows a **prior**: the types' static capacities, or what a model says of the thread.
//!
//! A type between two measured ones lies between them, by the logarithm, as it does in the prior. A
//! type beyond them is to the nearest measured one as in the prior. So a thread that was never on the
//! slowest type is still told apart from others by the type between.
//!
//! Both have a standard error, and of how much faster one type is than another the mean counts, each
//! weighed by the inverse of its variance, as in a Kalman filter. Nothing is known of the error of static
//! capacities: what was measured then counts alone.

use super::mean::MeasuredSpeed;
use crate::knowledge::Sure;
use crate::pmu::sample::SfEstimate;
use crate::slowdown::estimator::MAX_SLOWDOWN;
use crate::topology::{MAX_CORE_TYPES, Topology};

/// Speeds by core type, relative to that on the fastest one: 1/SF, in (0, 1]. Types that a machine
/// does not have count 1.
pub(crate) type Speeds = [f64; MAX_CORE_TYPES];

/// The fastest core type.
const BIG: usize = 0;

/// What is assumed of a thread of which nothing is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prior {
    speeds: Speeds,
    types: usize,
    /// Of the logarithm of the SF.
    variance: f64,
}

/// What is known of a thread's speeds, and how sure that is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SureSpeeds {
    pub(crate) speeds: Speeds,
    /// Variances of what was measured, by core type.
    measured: [Option<f64>; MAX_CORE_TYPES],
    /// Variance of the prior.
    prior: f64,
}

impl SureSpeeds {
    /// Speeds that are not in question.
    pub(crate) fn sure(speeds: Speeds) -> Self {
        Self {
            speeds,
            measured: [None; MAX_CORE_TYPES],
            prior: 0.0,
        }
    }

    /// Standard error of the logarithm of how much faster one core type is than another, whichever is the faster.
    pub(crate) fn sigma(&self, one: usize, other: usize) -> f64 {
        let variance = match (self.measured[one], self.measured[other]) {
            (Some(a), Some(b)) => (a + b) * believed_part(self.prior, a + b),
            _ => self.prior,
        };
        variance.sqrt()
    }

    /// Whether it was measured on a core type.
    pub(crate) fn is_measured(&self, core_type: usize) -> bool {
        self.measured[core_type].is_some()
    }
}

/// How much of what differs from a prior of this variance is believed of what was measured with that.
fn believed_part(prior: f64, measured: f64) -> f64 {
    if prior.is_infinite() || measured <= 0.0 {
        1.0
    } else {
        prior / (prior + measured)
    }
}

/// Of a machine of which nothing is known, with a single core type.
impl Default for Prior {
    fn default() -> Self {
        Self {
            speeds: [1.0; MAX_CORE_TYPES],
            types: 1,
            variance: f64::INFINITY,
        }
    }
}

impl Prior {
    /// By the static capacities of a machine's core types.
    pub(crate) fn of(topology: &Topology) -> Self {
        let mut prior = Self {
            types: topology.types.len().clamp(1, MAX_CORE_TYPES),
            ..Self::default()
        };
        for (speed, kind) in prior.speeds.iter_mut().zip(&topology.types).skip(1) {
            *speed = believed(f64::from(kind.capacity) / 1024.0);
        }
        prior
    }

    /// Index of the slowest core type.
    pub(crate) fn slowest(&self) -> usize {
        self.types - 1
    }

    /// For a thread that is `sf` times faster on the fastest type than on the slowest, as models have
    /// it. The types between have a part of that, by the logarithm of capacities.
    pub(crate) fn with_sf(self, sf: f64) -> Self {
        let mut prior = self;
        let slowest = self.slowest();
        let all = self.speeds[slowest].ln();
        for core_type in BIG + 1..self.types {
            let part = match core_type == slowest || all == 0.0 {
                true => 1.0,
                false => (self.speeds[core_type].ln() / all).clamp(0.0, 1.0),
            };
            prior.speeds[core_type] = believed(sf.powf(-part));
        }
        prior
    }

    /// The same, with how sure it is.
    pub(crate) fn with_estimate(self, estimate: SfEstimate) -> Self {
        Self {
            variance: estimate.sigma * estimate.sigma,
            ..self.with_sf(estimate.sf)
        }
    }

    /// What earlier runs of the program say beside this: how much faster the fastest core type is than others,
    /// each as sure as it is said to be.
    pub(crate) fn with_past(self, sf: &[Option<Sure>; MAX_CORE_TYPES]) -> Self {
        let slowest = self.slowest();
        let sure = |on: usize| sf[on].filter(|of| of.variance.is_finite());
        let Some(last) = (BIG + 1..self.types).rev().find_map(sure) else {
            return self;
        };
        let own = Sure {
            value: -self.speeds[slowest].ln(),
            variance: self.variance,
        };
        let known = std::array::from_fn(|on| match on {
            BIG => Some(1.0),
            _ => sure(on).map(|of| 1.0 / of.factor()),
        });
        let past = self.speeds(&known);
        if !self.variance.is_finite() {
            return Self {
                speeds: past,
                variance: last.variance,
                ..self
            };
        }
        let fused = Sure {
            value: -past[slowest].ln(),
            variance: last.variance,
        }
        .with(own);
        Self {
            variance: fused.variance,
            ..self.with_sf(fused.factor())
        }
    }

    /// Of a thread that was `measured` on some core types, in one unit; see the module.
    pub(crate) fn fused(&self, measured: &[Option<MeasuredSpeed>; MAX_CORE_TYPES]) -> SureSpeeds {
        let mut believed = measured.map(|of| of.map(|of| of.speed));
        let known = |of: &MeasuredSpeed| of.speed > 0.0;
        let is_known = |of: &Option<MeasuredSpeed>| of.as_ref().is_some_and(known);
        let fastest = measured.iter().take(self.types).position(is_known);
        if let Some(fast) = fastest.filter(|_| self.variance.is_finite())
            && let Some(base) = measured[fast]
        {
            for slow in fast + 1..self.types {
                let Some(here) = measured[slow].filter(known) else {
                    continue;
                };
                let part = believed_part(self.variance, base.variance + here.variance);
                let prior = base.speed * self.speeds[slow] / self.speeds[fast];
                believed[slow] = Some(prior.powf(1.0 - part) * here.speed.powf(part));
            }
        }
        SureSpeeds {
            speeds: self.speeds(&believed),
            measured: measured.map(|of| of.map(|of| of.variance)),
            prior: self.variance,
        }
    }

    /// Speeds of a thread that was `measured` on some core types, in any unit. See the module.
    pub(crate) fn speeds(&self, measured: &[Option<f64>; MAX_CORE_TYPES]) -> Speeds {
        let known = |core_type: &usize| measured[*core_type].is_some_and(|speed| speed > 0.0);
        let mut speeds = self.speeds;
        for (core_type, speed) in speeds.iter_mut().enumerate().take(self.types) {
            let faster = (0..=core_type).rev().find(known);
            let slower = (core_type..self.types).find(known);
            let from = |known: usize| {
                let prior = self.speeds[core_type] / self.speeds[known];
                measured[known].unwrap_or(1.0) * prior
            };
            *speed = match (faster, slower) {
                (Some(a), Some(b)) if a < b => {
                    let (all, part) = (self.between(a, b), self.between(a, core_type));
                    let part = match all > 0.0 {
                        true => part / all,
                        false => (core_type - a) as f64 / (b - a) as f64,
                    };
                    let (a, b) = (measured[a].unwrap_or(1.0), measured[b].unwrap_or(1.0));
                    a.powf(1.0 - part) * b.powf(part)
                }
                (Some(known), _) | (None, Some(known)) => from(known),
                (None, None) => self.speeds[core_type],
            };
        }
        let fastest = speeds[BIG];
        for speed in &mut speeds[..self.types] {
            *speed = believed(*speed / fastest);
        }
        speeds
    }

    /// How far apart two core types are in the prior, by the logarithm.
    fn between(&self, fast: usize, slow: usize) -> f64 {
        (self.speeds[fast] / self.speeds[slow]).ln()
    }
}

/// No core type makes a thread faster than the fastest does, and none slower than is believed.
fn believed(speed: f64) -> f64 {
    if speed.is_finite() {
        speed.clamp(1.0 / MAX_SLOWDOWN, 1.0)
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::board;

    /// Four core types, each half as fast as the one before.
    fn prior() -> Prior {
        let mut topology = board(2, 4);
        for capacity in [256, 128] {
            let mut kind = topology.types[1].clone();
            kind.capacity = capacity;
            topology.types.push(kind);
        }
        Prior::of(&topology)
    }

    fn near(speeds: Speeds, expected: Speeds) {
        let differs = |(a, b): (f64, f64)| (a / b - 1.0).abs() > 1e-9;
        let differ = speeds.into_iter().zip(expected).any(differs);
        assert!(!differ, "{speeds:?}, not {expected:?}");
    }

    #[test]
    fn before_anything_is_measured_speeds_are_those_of_the_prior() {
        near(prior().speeds(&[None; 4]), [1.0, 0.5, 0.25, 0.125]);
        near(Prior::default().speeds(&[None; 4]), [1.0; 4]);
        let modelled = prior().with_sf(27.0_f64.powf(0.5));
        let root = 3.0_f64.sqrt();
        near(
            modelled.speeds(&[None; 4]),
            [1.0, 1.0 / root, 1.0 / 3.0, 1.0 / (3.0 * root)],
        );
    }

    #[test]
    fn a_type_beyond_is_to_the_nearest_measured_one_as_in_the_prior() {
        let measured = [Some(3.0), Some(1.0), None, None];
        near(
            prior().speeds(&measured),
            [1.0, 1.0 / 3.0, 1.0 / 6.0, 1.0 / 12.0],
        );
        let measured = [None, None, Some(2.0), Some(0.5)];
        near(prior().speeds(&measured), [1.0, 0.5, 0.25, 0.0625]);
        // By a model, in which a type costs the thread a factor of 1.2.
        let modelled = prior().with_sf(1.2_f64.powi(3));
        let measured = [Some(1.5), Some(1.0), None, None];
        near(
            modelled.speeds(&measured),
            [1.0, 1.0 / 1.5, 1.0 / 1.8, 1.0 / 2.16],
        );
    }

    #[test]
    fn a_type_between_two_measured_ones_lies_between() {
        let measured = [Some(8.0), None, Some(2.0), None];
        near(prior().speeds(&measured), [1.0, 0.5, 0.25, 0.125]);
        let measured = [Some(27.0), None, None, Some(8.0)];
        near(
            prior().speeds(&measured),
            [1.0, 18.0 / 27.0, 12.0 / 27.0, 8.0 / 27.0],
        );
    }

    #[test]
    fn what_was_measured_and_the_prior_weigh_as_much_as_they_are_sure() {
        let of = |speed: f64, variance: f64| Some(MeasuredSpeed { speed, variance });
        let measured = [of(4.0, 0.01), of(1.0, 0.03), None, None];
        let fused = prior().fused(&measured);
        near(fused.speeds, [1.0, 0.25, 0.125, 0.0625]);
        assert!((fused.sigma(0, 1) - 0.2).abs() < 1e-9);
        assert!(fused.sigma(0, 2).is_infinite() && fused.is_measured(1) && !fused.is_measured(2));
        // A model that is as sure says 2 between the first two.
        let (sf, sigma) = (8.0, 0.2);
        let modelled = prior().with_estimate(SfEstimate { sf, sigma });
        let fused = modelled.fused(&measured);
        let speed = 1.0 / 8.0_f64.sqrt();
        near(fused.speeds, [1.0, speed, speed / 2.0, speed / 4.0]);
        assert!((fused.sigma(0, 1) - 0.2 / 2.0_f64.sqrt()).abs() < 1e-9);
        assert!((fused.sigma(0, 3) - 0.2).abs() < 1e-9);
        let certain = prior().with_estimate(SfEstimate { sf, sigma: 0.0 });
        near(certain.fused(&measured).speeds, [1.0, 0.5, 0.25, 0.125]);
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let measured = [Some(1.0), Some(2.0), Some(1e-9), None];
        let least = 1.0 / MAX_SLOWDOWN;
        near(prior().speeds(&measured), [1.0, 1.0, least, least]);
        let nonsense = [Some(0.0), Some(-1.0), None, None];
        near(prior().speeds(&nonsense), [1.0, 0.5, 0.25, 0.125]);
        near(prior().with_sf(f64::NAN).speeds(&[None; 4]), [1.0; 4]);
    }
}
