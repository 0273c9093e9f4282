// SPDX-License-Identifier: GPL-2.0-only
//! Energy of the processor packages, where the kernel shows it.

use std::path::Path;

use crate::pmu::virtual_counters::{CounterName, VirtualCounters, VirtualReading, difference};

/// Counts from when it was made. To be read more often than the counters wrap around, which at
/// 100 W takes some forty minutes.
pub struct Energy {
    counters: VirtualCounters,
    last: Vec<VirtualReading>,
    joules: f64,
}

impl Energy {
    /// From now on.
    pub fn from_now() -> Self {
        Self::of(Path::new("/"))
    }

    fn of(root: &Path) -> Self {
        let mut counters = VirtualCounters::discover(root);
        counters.retain(|counter| counter.name == CounterName::EnergyPackage);
        let last = counters.read();
        Self {
            counters,
            last,
            joules: 0.0,
        }
    }

    /// Joules since, of all packages together; `None` if one of them does not say.
    pub fn joules(&mut self) -> Option<f64> {
        let now = self.counters.read();
        let pairs = self.last.iter().zip(&now);
        let counters = self.counters.describe().iter().zip(pairs);
        let joules = counters
            .map(|(counter, (before, after))| difference(counter.kind, before, after).value());
        let joules: Vec<f64> = joules.collect::<Option<_>>()?;
        if joules.is_empty() {
            return None;
        }
        self.last = now;
        self.joules += joules.iter().sum::<f64>();
        Some(self.joules)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn joules_add_up_from_one_look_to_the_next_also_where_the_counter_wraps() {
        let root = tempfile::tempdir().unwrap();
        let zone = root.path().join("sys/class/powercap/intel-rapl:0");
        fs::create_dir_all(&zone).unwrap();
        let write = |file: &str, text: &str| fs::write(zone.join(file), text).unwrap();
        write("name", "package-0\n");
        write("max_energy_range_uj", "10000000\n");
        write("energy_uj", "9000000\n");
        let mut energy = Energy::of(root.path());
        write("energy_uj", "1000000\n");
        assert!((energy.joules().unwrap() - 2.0).abs() < 1e-5);
        write("energy_uj", "4000000\n");
        assert!((energy.joules().unwrap() - 5.0).abs() < 1e-5);

        let without = tempfile::tempdir().unwrap();
        assert_eq!(Energy::of(without.path()).joules(), None);
    }
}
