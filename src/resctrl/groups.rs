// SPDX-License-Identifier: GPL-2.0-only
//! Monitoring groups: what processes hold of caches and move to memory. A process has one group alone.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use hetero_core::cache::pool::GroupError;
use hetero_core::cache::{MonitoredBytes, MonitoringGroups};
use log::{debug, warn};
use rustc_hash::FxHashMap;

use super::files::{self, Resctrl, ResctrlAbsent};

/// Folder for them, in the root's and in each control group's.
const GROUPS: &str = "mon_groups";

/// Groups that we make at most, and that we leave to others: half of what there are.
const MOST: usize = 32;

/// Last-level caches that are read, at most.
const MOST_CACHES: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct ResctrlGroups {
    resctrl: Resctrl,
    /// Below a group: `mon_data/mon_L3_00` and so on.
    caches: Vec<PathBuf>,
    most: usize,
    /// By process; those that are open.
    folders: FxHashMap<u32, PathBuf>,
    complained: bool,
}

impl ResctrlGroups {
    /// Looks whether there is monitoring in the file system below `root`, and removes what was left there by owners
    /// that have ended. `owner` is the process that asks.
    ///
    /// # Errors
    /// There is none, or we may not use it.
    pub fn find(root: &Path, owner: u32) -> Result<Self, ResctrlAbsent> {
        let resctrl = Resctrl::find(root, owner)?;
        let mut caches = files::names(&resctrl.path("mon_data"));
        caches.retain(|name| name.starts_with("mon_L3_"));
        caches.sort_unstable();
        caches.truncate(MOST_CACHES);
        if caches.is_empty() || !resctrl.path(GROUPS).is_dir() {
            return Err("this processor's resctrl does not monitor".into());
        }
        let rmids = resctrl.read("info/L3_MON/num_rmids");
        let rmids: usize = rmids.and_then(|text| text.parse().ok()).unwrap_or(0);
        if rmids < 2 {
            return Err("this processor's resctrl has no number to monitor by".into());
        }
        Ok(Self {
            resctrl,
            caches: caches
                .iter()
                .map(|name| Path::new("mon_data").join(name))
                .collect(),
            most: (rmids / 2).clamp(1, MOST),
            folders: FxHashMap::default(),
            complained: false,
        })
    }

    /// How many groups we make at most.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Makes a group and moves one thread into it, whose children then follow.
    ///
    /// # Errors
    /// See [`MonitoringGroups::open`].
    pub fn open_for_thread(&mut self, name: u32, tid: u32) -> Result<(), GroupError> {
        let home = self.resctrl.path("");
        self.open_in(&home, name, |_, group| files::move_threads(&[tid], group))
    }

    /// Makes a group for a process, also where another scx_hetero has one for it, as the scheduler may have for
    /// one that is to be counted.
    ///
    /// # Errors
    /// See [`MonitoringGroups::open`].
    pub fn take_over(&mut self, pid: u32) -> Result<(), GroupError> {
        let home = self.resctrl.home(pid).ok_or(GroupError::NotThisOne)?;
        self.open_in(&home, pid, |resctrl, group| {
            resctrl.move_process(pid, group)
        })
    }

    /// The folder of a group of ours, if it is open.
    pub fn folder_of(&self, pid: u32) -> Option<&Path> {
        self.folders.get(&pid).map(PathBuf::as_path)
    }

    /// Makes a group in a control group, and fills it by `fill`.
    fn open_in(
        &mut self,
        home: &Path,
        pid: u32,
        fill: impl Fn(&Resctrl, &Path) -> Result<(), GroupError>,
    ) -> Result<(), GroupError> {
        let group = home.join(GROUPS).join(self.resctrl.name(pid));
        files::make(&group).map_err(|error| {
            let why = files::reason(&error);
            if why == GroupError::Gone && !std::mem::replace(&mut self.complained, true) {
                warn!(
                    "caches are not monitored any more: {} ({error})",
                    group.display()
                );
            }
            debug!("no group {}: {error}", group.display());
            why
        })?;
        match fill(&self.resctrl, &group) {
            Ok(()) => {
                self.folders.insert(pid, group);
                Ok(())
            }
            Err(why) => {
                files::remove(&group);
                Err(why)
            }
        }
    }
}

impl MonitoringGroups for ResctrlGroups {
    fn open(&mut self, pid: u32) -> Result<(), GroupError> {
        let group = self.resctrl.monitored_in(pid).unwrap_or_default();
        if self.resctrl.is_of_another(&group) {
            return Err(GroupError::Taken);
        }
        self.take_over(pid)
    }

    fn read(&mut self, pid: u32) -> Result<MonitoredBytes, GroupError> {
        let group = self.folders.get(&pid).ok_or(GroupError::Gone)?;
        // `pmc` may have taken it into a group of its own, and what is left here stands still.
        let own = group.file_name().and_then(OsStr::to_str);
        let now = self.resctrl.monitored_in(pid);
        if now.is_some_and(|now| own != Some(&now)) {
            return Err(GroupError::Gone);
        }
        let sum = |event: &str| -> Result<Option<f64>, GroupError> {
            let mut sum = None;
            for cache in &self.caches {
                match fs::read_to_string(group.join(cache).join(event)) {
                    // "Unavailable" and "Error" are what the hardware says at times. A sum without one cache would be
                    // a smaller number, and what comes with it again a rate that there never was.
                    Ok(text) => match text.trim().parse::<u64>() {
                        Ok(bytes) => *sum.get_or_insert(0.0) += bytes as f64,
                        Err(_) => return Ok(None),
                    },
                    Err(_) if !group.exists() => return Err(GroupError::Gone),
                    Err(_) => {}
                }
            }
            Ok(sum)
        };
        Ok(MonitoredBytes {
            occupancy: sum("llc_occupancy")?,
            total: sum("mbm_total_bytes")?,
        })
    }

    fn close(&mut self, pid: u32) {
        if let Some(group) = self.folders.remove(&pid) {
            files::remove(&group);
        }
    }
}
