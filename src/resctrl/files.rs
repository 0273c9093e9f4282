// SPDX-License-Identifier: GPL-2.0-only
//! The folders of `/sys/fs/resctrl`, and which threads belong to which.
//!
//! There are control groups, folders whose tasks have ways of the caches in common, and within each, and within the
//! root, monitoring groups. Ours are told by their names, `scx_hetero-OWNER...`. Those of owners that have ended are removed when another one begins, or by `scx_hetero restore`.
//! Others' groups are never touched, nor are processes that belong to one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hetero_core::cache::pool::GroupError;
use log::debug;
use rustc_hash::FxHashSet;

/// Where the kernel mounts it.
const RESCTRL: &str = "sys/fs/resctrl";

/// What our folders' names begin with.
const PREFIX: &str = "scx_hetero-";

/// Threads of a process that are moved one by one between two looks, at most; those that they make later follow by
/// themselves.
const MOST_THREADS: usize = 4096;

/// Looks for threads, at most: the first ones may have made others meanwhile.
const ROUNDS: usize = 3;

/// Why there is no resctrl here, or not what is asked of it: a phrase for people, with the remedy where there is one.
pub type ResctrlAbsent = String;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Resctrl {
    /// Usually `/`.
    root: PathBuf,
    owner: u32,
}

impl Resctrl {
    /// Looks whether it is mounted below `root`, and removes what was left there by owners that have ended. `owner` is
    /// the process that asks.
    pub(super) fn find(root: &Path, owner: u32) -> Result<Self, ResctrlAbsent> {
        let resctrl = Self {
            root: root.to_path_buf(),
            owner,
        };
        if !resctrl.path("").exists() {
            return Err("this processor or kernel has no resctrl".into());
        }
        if !resctrl.path("info").exists() {
            return Err("resctrl is not mounted: mount -t resctrl resctrl /sys/fs/resctrl".into());
        }
        resctrl.remove_leftovers(&resctrl.path("mon_groups"));
        resctrl.remove_leftovers(&resctrl.path(""));
        Ok(resctrl)
    }

    /// Removes folders in `folder` that are ours by name and that no owner that runs has made.
    fn remove_leftovers(&self, folder: &Path) {
        for name in names(folder) {
            if name.starts_with(PREFIX) && !self.is_of_another(&name) {
                remove(&folder.join(&name));
            }
        }
    }

    /// A file or folder of it.
    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.root.join(RESCTRL).join(below)
    }

    /// What a file of it says, without blanks at the ends.
    pub(super) fn read(&self, below: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(below)).ok()?;
        Some(text.trim().to_string())
    }

    /// A folder of ours.
    pub(super) fn name(&self, what: impl std::fmt::Display) -> String {
        format!("{PREFIX}{}-{what}", self.owner)
    }

    /// Moves all threads of a process into a group, or none where one belongs to a group of another's, as libvirt
    /// does with the virtual CPUs of a QEMU. Those that it makes later follow by themselves.
    pub(super) fn move_process(&self, pid: u32, group: &Path) -> Result<(), GroupError> {
        let threads = self.threads(pid);
        let mut moved = threads.iter().take(ROUNDS * MOST_THREADS);
        match moved.any(|&tid| self.is_others(pid, tid)) {
            true => Err(GroupError::NotThisOne),
            false => self.move_ours(pid, group),
        }
    }

    /// Moves those threads of a process into a group that belong to no group of another's.
    pub(super) fn move_ours(&self, pid: u32, group: &Path) -> Result<(), GroupError> {
        let mut tried = FxHashSet::default();
        let mut outcome = Err(GroupError::Ended);
        for _ in 0..ROUNDS {
            let mut new = self.untried(pid, &mut tried);
            if new.is_empty() {
                break;
            }
            new.retain(|&tid| !self.is_others(pid, tid));
            match move_threads(&new, group) {
                Err(GroupError::Ended) => {}
                Err(why) => return Err(why),
                Ok(()) => outcome = Ok(()),
            }
        }
        outcome
    }

    /// Threads of a process that were not `tried` yet, and now are.
    fn untried(&self, pid: u32, tried: &mut FxHashSet<u32>) -> Vec<u32> {
        let mut new = self.threads(pid);
        new.retain(|tid| !tried.contains(tid));
        new.truncate(MOST_THREADS);
        tried.extend(&new);
        new
    }

    /// The control group that a process belongs to, by its first thread, if we may move it: the root's folder or that of one of ours.
    pub(super) fn home(&self, pid: u32) -> Option<PathBuf> {
        self.home_by(&self.groups_of(&pid.to_string()))
    }

    /// Whether a thread of a process belongs to a group of another's.
    fn is_others(&self, pid: u32, tid: u32) -> bool {
        let groups = self.groups_of(&format!("{pid}/task/{tid}"));
        self.home_by(&groups).is_none()
    }

    /// What the kernel says of a process or thread; nothing where it is too old: it refuses then what it must.
    fn groups_of(&self, task: &str) -> String {
        let file = format!("proc/{task}/cpu_resctrl_groups");
        fs::read_to_string(self.root.join(file)).unwrap_or_default()
    }

    fn home_by(&self, text: &str) -> Option<PathBuf> {
        let mut home = self.path("");
        for line in text.lines() {
            let Some((kind, group)) = line.split_once(':') else {
                continue;
            };
            let group = group.trim_matches('/');
            let ours = group.starts_with(PREFIX);
            match kind {
                _ if group.is_empty() => {}
                "res" if ours => home = self.path(group),
                "mon" if ours => {}
                "res" | "mon" => return None,
                _ => {}
            }
        }
        Some(home)
    }

    fn threads(&self, pid: u32) -> Vec<u32> {
        let tids = names(&self.root.join(format!("proc/{pid}/task")));
        tids.iter().filter_map(|tid| tid.parse().ok()).collect()
    }

    /// The monitoring group that a process belongs to, by its first thread; nothing is the one that all belong to at
    /// first, and `None` that the kernel does not say.
    pub(super) fn monitored_in(&self, pid: u32) -> Option<String> {
        let groups = self.groups_of(&pid.to_string());
        let mut lines = groups.lines();
        let group = lines.find_map(|line| line.strip_prefix("mon:"))?;
        Some(group.trim_matches('/').to_string())
    }

    /// Whether a folder's name is that of another scx_hetero that runs.
    pub(super) fn is_of_another(&self, name: &str) -> bool {
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|of| of.split('-').next()?.parse().ok());
        owner.is_some_and(|owner| owner != self.owner && self.is_ours(owner))
    }

    /// Whether a process is a scx_hetero that runs.
    fn is_ours(&self, pid: u32) -> bool {
        let comm = fs::read_to_string(self.root.join(format!("proc/{pid}/comm")));
        comm.is_ok_and(|comm| comm.starts_with("scx_hetero"))
    }
}

/// Names in a folder, those that are text.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.collect()
}

/// Moves threads into a group.
pub(super) fn move_threads(tids: &[u32], group: &Path) -> Result<(), GroupError> {
    let tasks = group.join("tasks");
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

/// Makes a group's folder, anew if there is one of that name.
pub(super) fn make(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Of a process that had this number before.
            remove(group);
            fs::create_dir(group)
        }
        made => made,
    }
}

/// What an error of `mkdir` says.
pub(super) fn reason(error: &io::Error) -> GroupError {
    match error.raw_os_error() {
        Some(nix::libc::ENOSPC | nix::libc::EBUSY) => GroupError::NoneLeft,
        _ => GroupError::Gone,
    }
}

/// Removes a group; its threads go back to where it was made.
pub(super) fn remove(group: &Path) {
    match fs::remove_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            debug!("{} stays: {error}", group.display());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SysfsFiles;

    #[test]
    fn a_process_of_many_threads_is_moved_in_rounds() {
        let machine = SysfsFiles::new(&[]);
        let most = MOST_THREADS as u32;
        for tid in 0..most + 10 {
            let folder = machine.root().join(format!("proc/7/task/{tid}"));
            fs::create_dir_all(folder).unwrap();
        }
        let resctrl = Resctrl {
            root: machine.root().to_path_buf(),
            owner: 1,
        };
        let mut tried = FxHashSet::default();
        assert_eq!(resctrl.untried(7, &mut tried).len(), MOST_THREADS);
        assert_eq!(resctrl.untried(7, &mut tried).len(), 10);
        assert_eq!(tried, (0..most + 10).collect());
        assert!(resctrl.untried(7, &mut tried).is_empty());
    }

    #[test]
    fn what_is_left_is_removed_unless_its_owner_runs() {
        let machine = SysfsFiles::new(&[
            ("proc/9000010/comm", "scx_hetero"),
            ("proc/9000011/comm", "bash"),
            ("sys/fs/resctrl/info/last_cmd_status", "ok"),
        ]);
        let folder = |name: &str| machine.root().join(RESCTRL).join(name);
        let groups = [
            "scx_hetero-9000010-confined",
            "scx_hetero-9000011-confined",
            "scx_hetero-9000012-confined",
            "mon_groups/scx_hetero-9000010-7",
            "mon_groups/scx_hetero-9000012-8",
            "theirs",
        ];
        for name in groups {
            fs::create_dir_all(folder(name)).unwrap();
        }
        super::super::remove_left(machine.root());
        let left = groups.map(|name| folder(name).exists());
        assert_eq!(left, [true, false, false, true, false, true]);
        super::super::remove_left(SysfsFiles::new(&[]).root());
    }
}
