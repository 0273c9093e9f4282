// SPDX-License-Identifier: GPL-2.0-or-later
//! What is counted, of whatever took it.

use crate::topology::MAX_CORE_TYPES;

/// What sensors and CPUs have counted since the backend began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EnergyReading {
    /// Of all processor packages, J; `None` where nothing counts that.
    pub package: Option<f64>,
    /// Of all their cores, J.
    pub cores: Option<f64>,
    /// Of the cores of each type, J.
    pub by_type: [Option<f64>; MAX_CORE_TYPES],
    /// How long CPUs of each type have been busy, together, ns.
    pub busy_ns: [u64; MAX_CORE_TYPES],
}

impl EnergyReading {
    /// All that is counted of the processors, J: packages, or the cores alone, of a machine of so many core types;
    /// `None` where some are not.
    pub fn total_of(&self, nr_types: usize) -> Option<f64> {
        let types = self
            .by_type
            .get(..nr_types)
            .filter(|types| !types.is_empty());
        let by_type = types.and_then(|types| types.iter().copied().sum());
        self.package.or(self.cores).or(by_type)
    }

    /// What has been counted since another one, by what counts in both.
    pub fn since(&self, before: &Self) -> Self {
        let grown = |now: Option<f64>, before: Option<f64>| Some((now? - before?).max(0.0));
        Self {
            package: grown(self.package, before.package),
            cores: grown(self.cores, before.cores),
            by_type: std::array::from_fn(|t| grown(self.by_type[t], before.by_type[t])),
            busy_ns: std::array::from_fn(|t| self.busy_ns[t].saturating_sub(before.busy_ns[t])),
        }
    }
}
