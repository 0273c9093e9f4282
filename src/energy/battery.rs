// SPDX-License-Identifier: GPL-2.0-only
//! What the machine's batteries give while it runs on them: all that it takes, processors among it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::read_trimmed;
use crate::power::{feeds_the_machine, is_battery, is_online};

/// See the module.
pub(super) struct Battery {
    /// Where all supplies are; chargers come and go.
    supplies: PathBuf,
    dirs: Vec<PathBuf>,
    watts: Option<f64>,
}

impl Battery {
    pub(super) fn find(root: &Path) -> Self {
        let supplies = root.join("sys/class/power_supply");
        let dirs = all(&supplies);
        let dirs = dirs.filter(|dir| is_battery(dir) && feeds_the_machine(dir));
        Self {
            dirs: dirs.collect(),
            supplies,
            watts: None,
        }
    }

    pub(super) fn is_there(&self) -> bool {
        !self.dirs.is_empty()
    }

    /// Asks the gauges.
    pub(super) fn look(&mut self) {
        let watts = self.dirs.iter().map(|dir| discharge(dir));
        let watts = watts.sum::<Option<f64>>().filter(|&watts| watts > 0.0);
        // Beside a charger that is too weak, batteries give only what it lacks.
        let is_plugged = || all(&self.supplies).any(|dir| !is_battery(&dir) && is_online(&dir));
        self.watts = watts.filter(|_| !is_plugged());
    }

    /// What they give, W, all together; `None` while a charger is plugged in, one charges, all rest, or one does not say.
    pub(super) fn watts(&self) -> Option<f64> {
        self.watts
    }
}

fn all(supplies: &Path) -> impl Iterator<Item = PathBuf> {
    let there = fs::read_dir(supplies).into_iter().flatten().flatten();
    there.map(|supply| supply.path())
}

/// What one gives, W: 0 where it rests.
fn discharge(dir: &Path) -> Option<f64> {
    match read_trimmed(dir.join("status"))?.as_str() {
        "Discharging" => {}
        "Charging" => return None,
        _ => return Some(0.0),
    }
    let micro = |file: &str| {
        let number: f64 = read_trimmed(dir.join(file))?.parse().ok()?;
        // Some drivers show a discharge as negative.
        Some(number.abs() / 1e6)
    };
    micro("power_now").or_else(|| Some(micro("current_now")? * micro("voltage_now")?))
}
