// SPDX-License-Identifier: GPL-2.0-only
//! What packages may take for long (PL1, by powercap's RAPL), and whether the firmware lowers clocks for heat
//! (Intel's `thermal_throttle`, and what the hardware's feedback says), as [`hetero_core::energy::limit`] judges by.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hetero_core::energy::limit::{AtLimit, LimitJudge, LimitSigns};

use super::feedback::HardwareFeedback;
use crate::files::read_trimmed;

/// At most so many CPUs' counters are read: those of a package are the same on each of its CPUs.
const CPUS: usize = 64;

/// At most so many packages' limits.
const ZONES: usize = 16;

/// Constraints of a zone; RAPL has two or three.
const CONSTRAINTS: usize = 8;

/// Constraints of a powercap zone, by their numbers, with their names.
pub(crate) fn constraints(zone: &Path) -> impl Iterator<Item = (usize, String)> {
    (0..CONSTRAINTS).filter_map(|at| {
        let name = read_trimmed(zone.join(format!("constraint_{at}_name")))?;
        Some((at, name))
    })
}

/// See the module.
pub struct PowerLimits {
    /// Files with the limits of packages, µW, by package; more than one may hold.
    limits: Vec<(String, PathBuf)>,
    throttles: Vec<PathBuf>,
    feedback: Option<HardwareFeedback>,
    /// What these added up to.
    throttled: Option<u64>,
    /// What packages had taken, J.
    before: Option<(Instant, f64)>,
    judge: LimitJudge,
}

impl PowerLimits {
    /// Those of a machine whose files lie below `root`.
    pub fn find(root: &Path) -> Self {
        let folders = fs::read_dir(root.join("sys/class/powercap"));
        let mut limits = Vec::new();
        for zone in folders.into_iter().flatten().flatten() {
            let name = zone.file_name();
            let name = name.to_str().unwrap_or_default();
            // Packages are intel-rapl:0 and so on, and on some machines intel-rapl-mmio:0, too.
            let is_package = name.starts_with("intel-rapl") && name.matches(':').count() == 1;
            let package = read_trimmed(zone.path().join("name"));
            let package = package.filter(|name| is_package && name.starts_with("package"));
            let Some(package) = package else { continue };
            let long_term = constraints(&zone.path()).find(|(_, name)| name == "long_term");
            if let Some((at, _)) = long_term.filter(|_| limits.len() < ZONES) {
                let file = zone.path().join(format!("constraint_{at}_power_limit_uw"));
                limits.push((package, file));
            }
        }
        limits.sort();
        let throttles = (0..CPUS).flat_map(|cpu| {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
            let folder = root.join(folder);
            ["core_throttle_count", "package_throttle_count"].map(|file| folder.join(file))
        });
        Self {
            limits,
            throttles: throttles.filter(|file| file.exists()).collect(),
            feedback: None,
            throttled: None,
            before: None,
            judge: LimitJudge::default(),
        }
    }

    /// Listens to the hardware of this machine, too, where it says what CPUs can do.
    pub fn listening(mut self) -> Self {
        self.feedback = HardwareFeedback::listen();
        self
    }

    /// Looks, when packages have taken so many joules since some time, as far as that is known; what limits now.
    pub fn look(&mut self, now: Instant, joules: Option<f64>) -> Option<AtLimit> {
        let before = std::mem::replace(&mut self.before, joules.map(|joules| (now, joules)));
        let watts = before.zip(joules).and_then(|((at, before), joules)| {
            let seconds = now.saturating_duration_since(at).as_secs_f64();
            (seconds > 0.1 && joules >= before).then(|| (joules - before) / seconds)
        });
        let is_less = self
            .feedback
            .as_mut()
            .is_some_and(HardwareFeedback::is_less);
        let signs = LimitSigns {
            watts,
            limit: self.limit(),
            throttled: self.was_throttled() | is_less,
        };
        self.judge.take(&signs)
    }

    /// What all packages may take for long, W: of each the least. `None` where one says none.
    pub fn limit(&self) -> Option<f64> {
        let mut sum = None;
        let mut packages = self.limits.iter().peekable();
        while let Some((package, file)) = packages.next() {
            let mut least = limit_in(file);
            while let Some((_, file)) = packages.next_if(|(other, _)| other == package) {
                least = match (least, limit_in(file)) {
                    (Some(a), Some(b)) => Some(f64::min(a, b)),
                    (one, other) => one.or(other),
                };
            }
            sum = Some(sum.unwrap_or(0.0) + least?);
        }
        sum
    }

    fn was_throttled(&mut self) -> bool {
        let mut sum = None;
        for file in &self.throttles {
            let count = read_trimmed(file).and_then(|text| text.parse::<u64>().ok());
            if let Some(count) = count {
                sum = Some(count.wrapping_add(sum.unwrap_or(0)));
            }
        }
        let before = std::mem::replace(&mut self.throttled, sum);
        before.zip(sum).is_some_and(|(before, sum)| sum > before)
    }
}

fn limit_in(file: &Path) -> Option<f64> {
    let micro: f64 = read_trimmed(file)?.parse().ok()?;
    (micro > 0.0 && micro.is_finite()).then_some(micro / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SysfsFiles;
    use std::time::Duration;

    const ZONE: &str = "sys/class/powercap/intel-rapl:0";
    const COUNT: &str = "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count";

    fn laptop() -> SysfsFiles {
        let files = SysfsFiles::new(&[(COUNT, "3")]);
        let zone = |zone: &str, name: &str, constraints: &[(&str, &str)]| {
            files.set(&format!("{zone}/name"), name);
            for (at, (name, limit)) in constraints.iter().enumerate() {
                files.set(&format!("{zone}/constraint_{at}_name"), name);
                files.set(&format!("{zone}/constraint_{at}_power_limit_uw"), limit);
            }
        };
        zone(
            ZONE,
            "package-0",
            &[("long_term", "28000000"), ("short_term", "64000000")],
        );
        zone(&format!("{ZONE}:0"), "core", &[("long_term", "1000000")]);
        zone(
            "sys/class/powercap/intel-rapl-mmio:0",
            "package-0",
            &[("long_term", "15000000")],
        );
        zone(
            "sys/class/powercap/intel-rapl:1",
            "psys",
            &[("long_term", "5000000")],
        );
        files
    }

    #[test]
    fn the_least_limit_of_a_package_counts_and_parts_of_it_do_not() {
        let files = laptop();
        let limits = PowerLimits::find(files.root());
        assert_eq!(limits.limit(), Some(15.0));
        files.set(
            "sys/class/powercap/intel-rapl-mmio:0/constraint_0_power_limit_uw",
            "0",
        );
        assert_eq!(limits.limit(), Some(28.0));
        files.set(&format!("{ZONE}/constraint_0_power_limit_uw"), "nonsense");
        assert_eq!(limits.limit(), None);
        std::fs::remove_dir_all(files.root().join("sys")).unwrap();
        assert_eq!(limits.limit(), None);
        let found = PowerLimits::find(files.root());
        assert!(found.limits.is_empty() && found.throttles.is_empty());
    }

    #[test]
    fn a_package_that_takes_what_it_may_for_some_looks_is_at_its_limit() {
        let files = laptop();
        let mut limits = PowerLimits::find(files.root());
        let (begun, mut joules) = (Instant::now(), 0.0);
        let mut look = |second: u64, watts: f64| {
            joules += 2.0 * watts;
            limits.look(begun + Duration::from_secs(2 * second), Some(joules))
        };
        assert_eq!(look(0, 15.0), None);
        assert_eq!(look(1, 15.0), None);
        assert!(matches!(look(2, 15.0), Some(AtLimit::Power(..))));
        assert!(
            (3..8)
                .map(|second| look(second, 5.0))
                .any(|at| at.is_none())
        );
    }

    #[test]
    fn counters_of_heat_count_where_they_rise() {
        let files = laptop();
        let mut limits = PowerLimits::find(files.root());
        let begun = Instant::now();
        let mut look = |second: u64, count: &str| {
            files.set(COUNT, count);
            limits.look(begun + Duration::from_secs(second), None)
        };
        assert_eq!(look(0, "3"), None);
        assert_eq!(look(1, "4"), None);
        assert_eq!(look(2, "9"), Some(AtLimit::Heat));
        // Odd, and back at nothing: no sign.
        assert_eq!(look(3, "x"), Some(AtLimit::Heat));
        let ends = (4..9).map(|second| look(second, "0")).last();
        assert_eq!(ends, Some(None));
    }
}
