// SPDX-License-Identifier: GPL-2.0-or-later
//! What the threads of a core (SMT) cost each other where one is chosen for a core type, and not for a core: each may get any sibling.

use super::worth::Forecast;
use crate::slowdown::sibling::loss;
use crate::topology::MAX_CORE_TYPES;

/// What part of the threads on each core type share their core, 0 to 1.
pub(super) type SharedParts = [f64; MAX_CORE_TYPES];

/// What siblings cost on each core type: *S(t)* of [`super::worth`].
pub(super) struct Crowding {
    /// How many runners are there, and what part of their time they compute, summed up.
    runners: [f64; MAX_CORE_TYPES],
    computing: [f64; MAX_CORE_TYPES],
    /// What they lose for each part of its time that a sibling computes, summed up.
    losses: [f64; MAX_CORE_TYPES],
}

impl Crowding {
    /// By runners' core types and weights.
    pub(super) fn of<'a>(
        runners: impl Iterator<Item = (usize, f64, &'a Forecast)> + Clone,
        shared: &SharedParts,
    ) -> Self {
        let mut all = Self {
            runners: [0.0; MAX_CORE_TYPES],
            computing: [0.0; MAX_CORE_TYPES],
            losses: [0.0; MAX_CORE_TYPES],
        };
        for (on, _, forecast) in runners.clone() {
            all.runners[on] += 1.0;
            all.computing[on] += forecast.computing;
        }
        for (on, weight, forecast) in runners {
            all.losses[on] += all.loss(weight, forecast, on, shared);
        }
        all
    }

    /// What one on `on` loses for each part of its time that its sibling computes more, beside what all there do in the mean.
    fn loss(&self, weight: f64, forecast: &Forecast, on: usize, shared: &SharedParts) -> f64 {
        // So on all machines without SMT, at each look.
        if shared[on] == 0.0 {
            return 0.0;
        }
        let mean = self.computing[on] / self.runners[on];
        shared[on] * weight * forecast.unshared * loss(forecast.computing, mean)
    }

    /// The mean loss of those on `on`, but for one that is there and asks.
    pub(super) fn without(
        &self,
        own: Option<(f64, &Forecast)>,
        on: usize,
        shared: &SharedParts,
    ) -> f64 {
        let (less, own) = match own {
            Some((weight, forecast)) => (1.0, self.loss(weight, forecast, on, shared)),
            None => (0.0, 0.0),
        };
        (self.losses[on] - own) / (self.runners[on] - less).max(1.0)
    }
}
