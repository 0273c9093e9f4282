// SPDX-License-Identifier: GPL-2.0-only
//! Monitoring groups as folders below `/sys/fs/resctrl/mon_groups`.
//!
//! resctrl has no folders in folders, so ours are told by their names, `scx_hetero-OWNER-PROCESS`. Those of
//! owners that have ended are removed when another one begins. Others' groups are never touched, nor are processes
//! that belong to one: a process has one group alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hetero_core::cache::pool::GroupError;
use hetero_core::cache::{MonitoredBytes, MonitoringGroups};
use log::{debug, warn};

/// Where the kernel mounts it.
const RESCTRL: &str = "sys/fs/resctrl";

/// What our folders' names begin with.
const PREFIX: &str = "scx_hetero-";

/// Groups that we make at most, and that we leave to others: half of what there are.
const MOST: usize = 32;

/// Threads of a process that are moved one by one, at most; those that they make later follow by
/// themselves.
const MOST_THREADS: usize = 4096;

/// Last-level caches that are read, at most.
const MOST_CACHES: usize = 64;

/// Why there is no monitoring here: a phrase for people, with the remedy where there is one.
pub type ResctrlAbsent = String;

/// See the module.
#[derive(Debug)]
pub struct ResctrlGroups {
    /// Usually `/`.
    root: PathBuf,
    owner: u32,
    /// Below a group: `mon_data/mon_L3_00` and so on.
    caches: Vec<PathBuf>,
    most: usize,
    complained: bool,
}

impl ResctrlGroups {
    /// Looks whether there is monitoring in the file system below `root`, and removes what was left there by owners
    /// that have ended. `owner` is the process that asks.
    ///
    /// # Errors
    /// There is none, or we may not use it.
    pub fn find(root: &Path, owner: u32) -> Result<Self, ResctrlAbsent> {
        let resctrl = root.join(RESCTRL);
        if !resctrl.exists() {
            return Err("this processor or kernel has no resctrl".into());
        }
        if !resctrl.join("info").exists() {
            return Err("resctrl is not mounted: mount -t resctrl resctrl /sys/fs/resctrl".into());
        }
        let names = |folder: PathBuf| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.collect::<Vec<_>>()
        };
        let mut caches = names(resctrl.join("mon_data"));
        caches.retain(|name| name.starts_with("mon_L3_"));
        caches.sort_unstable();
        caches.truncate(MOST_CACHES);
        if caches.is_empty() || !resctrl.join("mon_groups").is_dir() {
            return Err("this processor's resctrl does not monitor".into());
        }
        let rmids = fs::read_to_string(resctrl.join("info/L3_MON/num_rmids"));
        let rmids: usize = rmids
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0);
        if rmids < 2 {
            return Err("this processor's resctrl has no number to monitor by".into());
        }
        let groups = Self {
            root: root.to_path_buf(),
            owner,
            caches: caches
                .iter()
                .map(|name| Path::new("mon_data").join(name))
                .collect(),
            most: (rmids / 2).clamp(1, MOST),
            complained: false,
        };
        for name in names(groups.folder()) {
            let Some(of) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let of = of.split('-').next().and_then(|pid| pid.parse().ok());
            if of.is_none_or(|of| of == owner || !groups.is_ours(of)) {
                groups.remove(&groups.folder().join(&name));
            }
        }
        Ok(groups)
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
        self.make(name)?;
        let moved = self.put_in(name, &[tid]);
        if moved.is_err() {
            self.remove(&self.group(name));
        }
        moved
    }

    fn folder(&self) -> PathBuf {
        self.root.join(RESCTRL).join("mon_groups")
    }

    /// The folder of a group of ours.
    pub fn folder_of(&self, pid: u32) -> PathBuf {
        self.group(pid)
    }

    fn group(&self, pid: u32) -> PathBuf {
        self.folder().join(format!("{PREFIX}{}-{pid}", self.owner))
    }

    /// Whether a process is a scx_hetero that runs.
    fn is_ours(&self, pid: u32) -> bool {
        let comm = fs::read_to_string(self.root.join(format!("proc/{pid}/comm")));
        comm.is_ok_and(|comm| comm.starts_with("scx_hetero"))
    }

    fn make(&mut self, pid: u32) -> Result<(), GroupError> {
        let group = self.group(pid);
        let made = match fs::create_dir(&group) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Of a process that had this number before.
                self.remove(&group);
                fs::create_dir(&group)
            }
            made => made,
        };
        made.map_err(|error| {
            let why = reason(&error);
            if why == GroupError::Gone && !std::mem::replace(&mut self.complained, true) {
                warn!(
                    "caches are not monitored any more: {} ({error})",
                    group.display()
                );
            }
            debug!("no group {}: {error}", group.display());
            why
        })
    }

    fn put_in(&self, pid: u32, tids: &[u32]) -> Result<(), GroupError> {
        let tasks = self.group(pid).join("tasks");
        let mut outcome = Err(GroupError::Ended);
        for tid in tids {
            match fs::write(&tasks, format!("{tid}\n")) {
                Ok(()) => outcome = Ok(()),
                // It has ended meanwhile.
                Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                Err(error) => {
                    debug!("{tid} does not go into {}: {error}", tasks.display());
                    let gone = error.kind() == io::ErrorKind::NotFound;
                    return Err(match gone {
                        true => GroupError::Gone,
                        // It is in a control group of another's, say.
                        false => GroupError::NotThisOne,
                    });
                }
            }
        }
        outcome
    }

    fn threads(&self, pid: u32) -> Vec<u32> {
        let entries = fs::read_dir(self.root.join(format!("proc/{pid}/task")));
        let entries = entries.into_iter().flatten().flatten();
        let tids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        tids.take(MOST_THREADS).collect()
    }

    /// Whether a process belongs to no group but ours and the first one.
    fn is_free(&self, pid: u32) -> bool {
        let file = self.root.join(format!("proc/{pid}/cpu_resctrl_groups"));
        // Kernels without that file: the kernel refuses what it must.
        let Ok(text) = fs::read_to_string(file) else {
            return true;
        };
        text.lines().all(|line| match line.split_once(':') {
            Some(("res", group)) => group.is_empty() || group == "/",
            Some(("mon", group)) => {
                let group = group.trim_matches('/');
                group.is_empty() || group.starts_with(PREFIX)
            }
            _ => true,
        })
    }

    fn remove(&self, group: &Path) {
        match fs::remove_dir(group) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                debug!("{} stays: {error}", group.display());
            }
            _ => {}
        }
    }
}

impl MonitoringGroups for ResctrlGroups {
    fn open(&mut self, pid: u32) -> Result<(), GroupError> {
        if !self.is_free(pid) {
            return Err(GroupError::NotThisOne);
        }
        let threads = self.threads(pid);
        if threads.is_empty() {
            return Err(GroupError::Ended);
        }
        self.make(pid)?;
        let moved = self.put_in(pid, &threads);
        if moved.is_err() {
            self.remove(&self.group(pid));
        }
        moved
    }

    fn read(&mut self, pid: u32) -> Result<MonitoredBytes, GroupError> {
        let group = self.group(pid);
        let sum = |event: &str| -> Result<Option<f64>, GroupError> {
            let mut sum = None;
            for cache in &self.caches {
                match fs::read_to_string(group.join(cache).join(event)) {
                    Ok(text) => {
                        // "Unavailable" and "Error" are what the hardware says at times.
                        if let Ok(bytes) = text.trim().parse::<u64>() {
                            *sum.get_or_insert(0.0) += bytes as f64;
                        }
                    }
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
        self.remove(&self.group(pid));
    }
}

/// What an error of `mkdir` says.
fn reason(error: &io::Error) -> GroupError {
    match error.raw_os_error() {
        Some(nix::libc::ENOSPC | nix::libc::EBUSY) => GroupError::NoneLeft,
        _ => GroupError::Gone,
    }
}
