// SPDX-License-Identifier: GPL-2.0-only
//! What the machine's batteries give while it runs on them: all that it takes, processors among it.

use std::fs;
use std::path::{Path, PathBuf};

use log::debug;

use crate::aside::Aside;
use crate::files::read_trimmed;
use crate::power::{feeds_the_machine, is_battery, is_online};

/// See the module.
pub(super) struct Battery {
    /// Where all supplies are; chargers come and go.
    supplies: PathBuf,
    dirs: Vec<PathBuf>,
    /// Their gauges are the firmware's, which may take its time.
    gauges: Aside<Option<f64>>,
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
            gauges: Aside::default(),
            watts: None,
        }
    }

    pub(super) fn is_there(&self) -> bool {
        !self.dirs.is_empty()
    }

    /// Has the gauges asked, and waits for nothing.
    pub(super) fn look(&mut self) {
        let (dirs, supplies) = (self.dirs.clone(), self.supplies.clone());
        let ask = move || given(&dirs, &supplies);
        if let Err(error) = self.gauges.begin("battery", ask) {
            debug!("what the battery gives is not known: {error}");
        }
    }

    /// What they give by the last answer, W, all together; `None` while a charger is plugged in, one charges, all rest, or one does
    /// not say.
    pub(super) fn watts(&mut self) -> Option<f64> {
        if let Some(answer) = self.gauges.take() {
            self.watts = answer;
        }
        self.watts
    }

    /// Waits for the gauges.
    #[cfg(test)]
    pub(super) fn wait(&self) {
        self.gauges.wait();
    }
}

fn given(dirs: &[PathBuf], supplies: &Path) -> Option<f64> {
    let watts = dirs.iter().map(|dir| discharge(dir));
    let watts = watts.sum::<Option<f64>>().filter(|&watts| watts > 0.0);
    // Beside a charger that is too weak, batteries give only what it lacks.
    let is_plugged = || all(supplies).any(|dir| !is_battery(&dir) && is_online(&dir));
    watts.filter(|_| !is_plugged())
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
