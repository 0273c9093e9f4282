// SPDX-License-Identifier: GPL-2.0-or-later
//! Phases of a thread: what its instructions are made of (CAMPS 2018, section 4.2).
//!
//! Two intervals belong to the same phase if their instruction mixes are close. Both components
//! are properties of the program, so neither contention nor the core type moves them much.

use serde::{Deserialize, Serialize};

use crate::pmu::sample::SampleMetrics;

/// L1 data accesses per kilo-instruction that make one point of distance.
///
/// Among SPEC CPU programs L1 accesses are about 350 ± 100 per kilo-instruction and branches 12 ± 7
/// percent of the instructions. In raw units the former would drown the latter; with both in
/// percent of the instructions they spread alike, 10 points against 7.
pub const L1_PER_POINT: f64 = 10.0;

/// Percent of branches that make one point of distance; see [`L1_PER_POINT`].
pub const BRANCH_PERCENT_PER_POINT: f64 = 1.0;

/// Phases nearer than so many points are the same.
///
/// Mixes of a steady program measured over 20 to 50 ms move by one or two percent of their value,
/// which is about one point; twice that and some air. Programs differ by ten and more.
pub const THRESHOLD: f64 = 4.0;

/// The vector by which history tables are indexed. A component that the machine cannot count is
/// absent and is left out of comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// L1 data accesses per 1,000 instructions.
    pub l1_per_kilo: Option<f64>,
    /// Branches among the instructions, in percent.
    pub branch_percent: Option<f64>,
}

impl Phase {
    /// The phase that these metrics show.
    pub fn of(metrics: &SampleMetrics) -> Self {
        Self {
            l1_per_kilo: metrics.l1_per_kilo,
            branch_percent: metrics.branch_fraction.map(|fraction| fraction * 100.0),
        }
    }

    /// Manhattan distance, in points, over the components that both have. Infinite if they have
    /// none in common; zero if neither has any, for then nothing tells phases apart.
    pub fn distance(&self, other: &Self) -> f64 {
        let along = |a: Option<f64>, b: Option<f64>, per_point: f64| {
            a.zip(b).map(|(a, b)| (a - b).abs() / per_point)
        };
        let l1 = along(self.l1_per_kilo, other.l1_per_kilo, L1_PER_POINT);
        let branches = along(
            self.branch_percent,
            other.branch_percent,
            BRANCH_PERCENT_PER_POINT,
        );
        match (l1, branches) {
            (None, None) if *self == *other => 0.0,
            (None, None) => f64::INFINITY,
            (l1, branches) => l1.unwrap_or(0.0) + branches.unwrap_or(0.0),
        }
    }

    /// Whether `other` is nearer than [`THRESHOLD`].
    pub fn is_same(&self, other: &Self) -> bool {
        self.distance(other) < THRESHOLD
    }

    /// Whether all numbers are such that one can go by them: it may come from a file.
    pub(crate) fn is_sound(&self) -> bool {
        let parts = [self.l1_per_kilo, self.branch_percent];
        parts
            .iter()
            .flatten()
            .all(|part| (0.0..=1e40).contains(part))
    }

    /// Moves by `weight`, 0 to 1, of the way towards `other`.
    pub(crate) fn approach(&mut self, other: &Self, weight: f64) {
        let step = |from: &mut Option<f64>, to: Option<f64>| match (*from, to) {
            (Some(a), Some(b)) => *from = Some(a + (b - a) * weight),
            (None, b) => *from = b,
            (Some(_), None) => {}
        };
        step(&mut self.l1_per_kilo, other.l1_per_kilo);
        step(&mut self.branch_percent, other.branch_percent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(l1: f64, branches: f64) -> Phase {
        Phase {
            l1_per_kilo: Some(l1),
            branch_percent: Some(branches),
        }
    }

    #[test]
    fn either_component_alone_can_tell_phases_apart() {
        let here = phase(350.0, 12.0);
        assert!(here.is_same(&phase(357.0, 12.24)), "2 % of noise");
        assert!(!here.is_same(&phase(400.0, 12.0)));
        assert!(!here.is_same(&phase(350.0, 17.0)));
        assert!(
            !here.is_same(&phase(375.0, 14.0)),
            "both by half a threshold and more"
        );
    }

    #[test]
    fn metrics_give_the_phase_in_percent() {
        let metrics = SampleMetrics {
            l1_per_kilo: Some(300.0),
            branch_fraction: Some(0.15),
            ..SampleMetrics::default()
        };
        assert_eq!(Phase::of(&metrics), phase(300.0, 15.0));
    }

    #[test]
    fn what_is_not_counted_is_not_compared() {
        let only_branches = Phase {
            l1_per_kilo: None,
            branch_percent: Some(12.0),
        };
        assert_eq!(only_branches.distance(&phase(350.0, 13.0)), 1.0);
        let nothing = Phase::default();
        assert!(nothing.is_same(&nothing));
        assert_eq!(nothing.distance(&only_branches), f64::INFINITY);
    }
}
