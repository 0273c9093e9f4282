// SPDX-License-Identifier: GPL-2.0-only
//! What a package may take by the limits (PL1, PL2) of its powercap zone.

use std::fs::File;
use std::path::Path;

use super::sensor::number;
use crate::power::limits::constraints;

/// Files of a zone, kept open: limits change while the machine runs.
pub(super) struct ZoneLimits {
    watts: Vec<File>,
    /// Whether limits hold.
    enabled: Option<File>,
}

impl ZoneLimits {
    /// Of the package that a zone is or belongs to, by the zone's file with joules; `None` where it shows no limit.
    pub(super) fn find(energy: &Path) -> Option<Self> {
        let zone = energy.parent()?;
        // intel-rapl:0:1 is of intel-rapl:0.
        let name: Vec<&str> = zone.file_name()?.to_str()?.splitn(3, ':').collect();
        let package = zone.with_file_name(name.get(..2)?.join(":"));
        let means = constraints(&package);
        let means = means.filter(|(_, name)| matches!(&**name, "long_term" | "short_term"));
        // Less may be set than the processor can keep, which the second knows.
        let files = means.flat_map(|(at, _)| {
            ["power_limit_uw", "max_power_uw"].map(|end| format!("constraint_{at}_{end}"))
        });
        let watts: Vec<File> = files
            .filter_map(|file| File::open(package.join(file)).ok())
            .collect();
        (!watts.is_empty()).then(|| Self {
            watts,
            enabled: File::open(package.join("enabled")).ok(),
        })
    }

    /// The highest of them, W; `None` where none holds.
    pub(super) fn highest(&self) -> Option<f64> {
        if self.enabled.as_ref().and_then(number) == Some(0.0) {
            return None;
        }
        let micro = self.watts.iter().filter_map(number);
        let highest = micro.max_by(f64::total_cmp).filter(|micro| *micro > 0.0);
        highest.map(|micro| micro / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SysfsFiles;

    #[test]
    fn the_highest_limit_of_a_package_is_that_of_its_parts_and_is_read_anew() {
        let zone = "sys/class/powercap/intel-rapl:0";
        let files = SysfsFiles::new(&[]);
        let highest = |part: &str| {
            let energy = files.root().join(format!("{zone}{part}/energy_uj"));
            ZoneLimits::find(&energy).map(|limits| limits.highest())
        };
        files.set(&format!("{zone}/energy_uj"), "1");
        assert_eq!(highest(""), None, "as on AMD");
        for (at, name, limit, most) in [
            (0, "long_term", "5000000", "28000000"),
            (1, "short_term", "64000000", "0"),
            (2, "peak_power", "140000000", "0"),
        ] {
            files.set(&format!("{zone}/constraint_{at}_name"), name);
            files.set(&format!("{zone}/constraint_{at}_power_limit_uw"), limit);
            files.set(&format!("{zone}/constraint_{at}_max_power_uw"), most);
        }
        assert_eq!(highest(""), Some(Some(64.0)));
        assert_eq!(highest(":1"), Some(Some(64.0)));
        files.set(&format!("{zone}/constraint_1_power_limit_uw"), "5000000");
        assert_eq!(highest(""), Some(Some(28.0)));
        files.set(&format!("{zone}/enabled"), "0");
        assert_eq!(highest(""), Some(None));
        files.set(&format!("{zone}/enabled"), "1");
        assert_eq!(highest(":0"), Some(Some(28.0)));
    }
}
