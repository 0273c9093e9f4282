// SPDX-License-Identifier: GPL-2.0-only
//! What the machine's batteries give while it runs on them: all that it takes, processors among it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::read_trimmed;
use crate::power::{feeds_the_machine, is_battery};

/// See the module.
pub(super) struct Battery {
    dirs: Vec<PathBuf>,
    watts: Option<f64>,
}

impl Battery {
    pub(super) fn find(root: &Path) -> Self {
        let supplies = fs::read_dir(root.join("sys/class/power_supply"));
        let dirs = supplies.into_iter().flatten().flatten();
        let dirs = dirs.map(|supply| supply.path());
        let dirs = dirs.filter(|dir| is_battery(dir) && feeds_the_machine(dir));
        Self {
            dirs: dirs.collect(),
            watts: None,
        }
    }

    pub(super) fn is_there(&self) -> bool {
        !self.dirs.is_empty()
    }

    /// Asks the gauges.
    pub(super) fn look(&mut self) {
        let watts = self.dirs.iter().map(|dir| discharge(dir));
        self.watts = watts.sum::<Option<f64>>().filter(|&watts| watts > 0.0);
    }

    /// What they give, W, all together; `None` while one charges, all rest, or one does not say.
    pub(super) fn watts(&self) -> Option<f64> {
        self.watts
    }
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
