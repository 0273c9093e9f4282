// SPDX-License-Identifier: GPL-2.0-only
//! Energy of the processor packages, where the kernel shows it.

use std::path::Path;

use crate::pmu::virtual_counters::{Name, Reading, VirtualCounters, difference};

/// Counts from when it was made.
pub struct Energy {
    counters: VirtualCounters,
    before: Vec<Reading>,
}

impl Energy {
    /// From now on.
    pub fn from_now() -> Self {
        let mut counters = VirtualCounters::discover(Path::new("/"));
        counters.retain(|counter| counter.name == Name::EnergyPackage);
        let before = counters.read();
        Self { counters, before }
    }

    /// Joules since, of all packages together; `None` if one of them does not say.
    pub fn joules(&self) -> Option<f64> {
        let after = self.counters.read();
        let pairs = self.before.iter().zip(&after);
        let counters = self.counters.describe().iter().zip(pairs);
        let joules = counters
            .map(|(counter, (before, after))| difference(counter.kind, before, after).value());
        let joules: Vec<f64> = joules.collect::<Option<_>>()?;
        (!joules.is_empty()).then(|| joules.iter().sum())
    }
}
