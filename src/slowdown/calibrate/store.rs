// SPDX-License-Identifier: GPL-2.0-only
//! The file that keeps what was measured, and whether it is of this machine.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use log::info;
use serde::{Deserialize, Serialize};

use super::search::Point;
use crate::files::{self, write_whole};
use crate::slowdown::Thresholds;
use crate::topology::{Identity, Topology, cpu_name};
use hetero_core::parse;

/// Where the scheduler looks for it.
pub const PATH: &str = "/var/lib/scx_hetero/calibration.json";

/// Grows when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// What was measured, when and on which machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When, in UTC, such as `2026-11-21T13:45:00Z`.
    pub date: String,
    /// The kernel's release; for information.
    pub kernel: String,
    /// What must be the same for the rest to be of use.
    pub machine: Identity,
    /// Capacity of each core type, 1024 for the fastest.
    pub capacities: Vec<u32>,
    /// When contention is low; `None` if it could not be measured.
    pub thresholds: Option<Thresholds>,
    /// Why there are no thresholds.
    pub no_thresholds: Option<String>,
    /// Rate of each load that only computes, rounds/s, by core type.
    pub compute: Vec<Compute>,
    /// What was measured in each contention domain.
    pub domains: Vec<ContentionDomain>,
}

/// The rates of a core type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compute {
    /// Its name.
    pub core_type: String,
    /// The CPU that was measured.
    pub cpu: u32,
    /// Rounds/s of each load, in the order of [`super::loads::COMPUTE`].
    pub rates: Vec<f64>,
}

/// A contention domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContentionDomain {
    /// Its CPUs that took part, as a list: one a core.
    pub cpus: String,
    /// The one that was disturbed.
    pub victim: u32,
    /// BTR of all together, streaming as fast as they can, bytes/s.
    pub bandwidth: f64,
    /// What the domain yields for either threshold, bytes/s.
    pub low_btr: f64,
    /// See there.
    pub high_btr: f64,
    /// The victim's slowdown by its own BTR alone, the others streaming as fast as they can.
    pub low: Vec<Point>,
    /// The victim's slowdown by the BTR of all together.
    pub high: Vec<Point>,
}

impl Calibration {
    /// Reads a file; `None` if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match files::read_text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("it cannot be read"),
        };
        let calibration: Self = parse::json_of(&text, SCHEMA..=SCHEMA)?;
        let sane = |limits: Thresholds| limits.low_btr > 0.0 && limits.high_btr >= limits.low_btr;
        ensure!(
            calibration.thresholds.is_none_or(sane),
            "its thresholds make no sense"
        );
        Ok(Some(calibration))
    }

    /// Writes it, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        write_whole(path, text.as_bytes())
    }
}

/// Looks whether the file could be written: better known before a minute of measuring.
pub fn check_writable(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let made = fs::create_dir_all(folder);
    made.and_then(|()| files::check_writable(path))
        .with_context(|| {
            format!(
                "cannot write {} (--output names another place)",
                path.display()
            )
        })
}

/// Takes what was measured on this machine, if anything was: capacities into `topology`, and gives
/// the thresholds. A file that is of no use is told of, and nothing else.
pub fn apply(path: &Path, topology: &mut Topology) -> Option<Thresholds> {
    let ignore = |why: String| {
        info!(
            "calibration {} is ignored: {why}; 'scx_hetero calibrate' makes it anew",
            path.display()
        );
    };
    let calibration = match Calibration::read(path) {
        Ok(calibration) => calibration?,
        Err(error) => {
            ignore(format!("{error:#}"));
            return None;
        }
    };
    let now = Identity::of(topology, cpu_name());
    if let Some(difference) = calibration.machine.differs(&now) {
        ignore(difference);
        return None;
    }
    if !topology.set_capacities(&calibration.capacities) {
        info!("measured capacities do not fall in the order of the core types: not used");
    }
    info!("calibrated {}: {}", calibration.date, calibration.summary());
    calibration.thresholds
}

impl Calibration {
    /// What is used of it, in a line.
    pub fn summary(&self) -> String {
        let types = self.machine.core_types.iter().zip(&self.capacities);
        let types = types.map(|(kind, capacity)| format!("{} {capacity}", kind.name));
        let types = types.collect::<Vec<_>>().join(", ");
        match self.thresholds {
            Some(Thresholds { low_btr, high_btr }) => format!(
                "low_btr {:.2} MB/s, high_btr {:.1} MB/s, capacities {types}",
                low_btr / 1e6,
                high_btr / 1e6
            ),
            None => format!("no thresholds, capacities {types}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use hetero_core::testing::identity;

    use super::*;

    fn calibration() -> Calibration {
        Calibration {
            schema: SCHEMA,
            date: "2026-11-21T00:00:00Z".to_string(),
            kernel: "6.18".to_string(),
            machine: identity(),
            capacities: vec![1024, 555],
            thresholds: Some(Thresholds {
                low_btr: 1e6,
                high_btr: 5e8,
            }),
            no_thresholds: None,
            compute: Vec::new(),
            domains: Vec::new(),
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/down/calibration.json");
        assert_eq!(Calibration::read(&path).unwrap(), None);
        check_writable(&path).unwrap();
        assert!(!path.exists());
        calibration().write(&path).unwrap();
        assert_eq!(Calibration::read(&path).unwrap(), Some(calibration()));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let summary = calibration().summary();
        assert_eq!(
            summary,
            "low_btr 1.00 MB/s, high_btr 500.0 MB/s, capacities P 1024, E 555"
        );
    }

    #[test]
    fn a_file_that_makes_no_sense_is_an_error_that_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calibration.json");
        let mut odd = calibration();
        odd.thresholds = Some(Thresholds {
            low_btr: 2.0,
            high_btr: 1.0,
        });
        let newer = Calibration {
            schema: SCHEMA + 1,
            ..calibration()
        };
        let cases = [
            ("".to_string(), "it is empty"),
            ("[1, 2]".to_string(), "of another kind"),
            ("{\"schema\": 1}".to_string(), "missing field"),
            (serde_json::to_string(&newer).unwrap(), "a later version"),
            (serde_json::to_string(&odd).unwrap(), "no sense"),
        ];
        for (text, expected) in cases {
            fs::write(&path, &text).unwrap();
            let said = format!("{:#}", Calibration::read(&path).unwrap_err());
            assert!(said.contains(expected), "{said}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(Calibration::read(&path).is_err());
        assert!(Calibration::read(folder.path()).is_err());
    }
}
