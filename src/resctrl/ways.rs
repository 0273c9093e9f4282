// SPDX-License-Identifier: GPL-2.0-only
//! A control group that has a few ways of each last-level cache (Intel's CAT, AMD's likewise), for processes that are
//! confined. All others keep what they have, these ways too: the root's masks, and others' groups, are never changed, so that
//! nothing is to be put right after us but this one folder.

use std::fs;
use std::path::{Path, PathBuf};

use hetero_core::cache::CacheWays;
use hetero_core::cache::pool::GroupError;
use log::{debug, warn};

use super::files::{self, Resctrl, ResctrlAbsent};

/// Confined processes have this part of the ways, at least one and what the hardware says.
const PART: u32 = 10;

/// What the control group is called, after its owner.
const NAME: &str = "confined";

/// See the module; its folder is gone when dropped.
#[derive(Debug)]
pub struct ResctrlWays {
    resctrl: Resctrl,
    group: PathBuf,
    /// What `schemata` is told.
    schemata: String,
    /// Confined processes have so many ways of so many.
    ways: [u32; 2],
    made: bool,
    complained: bool,
}

impl ResctrlWays {
    /// Looks whether ways can be given away in the file system below `root`. `owner` is the process that asks. Nothing is
    /// made yet.
    ///
    /// # Errors
    /// They cannot.
    pub fn find(root: &Path, owner: u32) -> Result<Self, ResctrlAbsent> {
        let resctrl = Resctrl::find(root, owner)?;
        let none = || "this processor's resctrl gives no ways of the last-level cache away (there is no info/L3/cbm_mask)";
        let mut lines = Vec::new();
        let mut ways = None;
        // With code and data apart there are two masks for each cache.
        for line in resctrl.read("schemata").unwrap_or_default().lines() {
            let Some((resource, masks)) = line.trim().split_once(':') else {
                continue;
            };
            if !["L3", "L3CODE", "L3DATA"].contains(&resource) {
                continue;
            }
            let info = |what: &str| resctrl.read(&format!("info/{resource}/{what}"));
            let all = info("cbm_mask").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
            let all = all.filter(|&all| all != 0).ok_or_else(none)?;
            let least = info("min_cbm_bits").and_then(|bits| bits.parse().ok());
            let (few, mask) = few_of(all, least.unwrap_or(1)).ok_or_else(none)?;
            ways = Some([few, all.count_ones()]);
            let caches = masks.split(';').filter_map(|of| of.split_once('='));
            let masks: Vec<_> = caches
                .map(|(cache, _)| format!("{}={mask:x}", cache.trim()))
                .collect();
            lines.push(format!("{resource}:{}\n", masks.join(";")));
        }
        Ok(Self {
            group: resctrl.path(&resctrl.name(NAME)),
            resctrl,
            schemata: lines.concat(),
            ways: ways.ok_or_else(none)?,
            made: false,
            complained: false,
        })
    }

    /// Looks whether a group can be made, by making one for a moment: what can be read need not be writable, as in
    /// a service to which `/sys` is read-only.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn check(&self) -> Result<(), ResctrlAbsent> {
        let made = files::make(&self.group);
        files::remove(&self.group);
        made.map_err(|error| {
            let remedy = match error.raw_os_error() {
                Some(nix::libc::EROFS) => {
                    "; a systemd service needs ReadWritePaths=-/sys/fs/resctrl ('systemctl edit scx_hetero')"
                }
                Some(nix::libc::ENOSPC) => {
                    "; others have all control groups that the processor has: remove one of theirs"
                }
                _ => "",
            };
            format!("cannot make {}: {error}{remedy}", self.group.display())
        })
    }

    /// So many ways have confined processes, of so many that there are.
    pub fn ways(&self) -> [u32; 2] {
        self.ways
    }

    /// Whether a process is in the group; one that a confined process has made begins there.
    pub fn holds(&self, pid: u32) -> bool {
        self.made
            && self
                .resctrl
                .home(pid)
                .is_some_and(|home| home == self.group)
    }

    fn make(&mut self) -> Result<(), GroupError> {
        if self.made {
            return Ok(());
        }
        let made = files::make(&self.group).and_then(|()| {
            // Each line is for itself, and is refused for itself.
            let schemata = self.group.join("schemata");
            let mut lines = self.schemata.lines();
            lines.try_for_each(|line| fs::write(&schemata, format!("{line}\n")))
        });
        made.map_err(|error| {
            let said = self.resctrl.read("info/last_cmd_status");
            let said = said.filter(|said| said != "ok").unwrap_or_default();
            files::remove(&self.group);
            let why = files::reason(&error);
            if !std::mem::replace(&mut self.complained, true) {
                warn!("no program is confined to few ways of the cache: {error} {said}");
            }
            debug!("no group {}: {error} {said}", self.group.display());
            why
        })?;
        self.made = true;
        Ok(())
    }
}

impl CacheWays for ResctrlWays {
    fn confine(&mut self, pid: u32) -> Result<(), GroupError> {
        if self.resctrl.home(pid) != Some(self.resctrl.path("")) {
            return Err(GroupError::NotThisOne);
        }
        self.make()?;
        self.resctrl
            .move_process(pid, &self.group)
            .inspect_err(|why| {
                match why {
                    // Another has removed it: it is made again the next time.
                    GroupError::Gone => self.made = false,
                    _ => self.release(pid),
                }
            })
    }

    fn release(&mut self, pid: u32) {
        if self.holds(pid) {
            let _ = self.resctrl.move_ours(pid, &self.resctrl.path(""));
        }
    }
}

impl Drop for ResctrlWays {
    /// Its threads go back to the root's group.
    fn drop(&mut self) {
        if self.made {
            files::remove(&self.group);
        }
    }
}

/// How many ways those that are confined have of the ones in `all`, and the lowest that many of it; `None` if they are not next to each other there.
fn few_of(all: u64, least: u32) -> Option<(u32, u64)> {
    let few = (all.count_ones() / PART).max(least).max(1);
    let mask = 1u64.checked_shl(few).map_or(u64::MAX, |bit| bit - 1);
    let mask = mask.checked_shl(all.trailing_zeros())?;
    (mask & all == mask && mask != all).then_some((few, mask))
}
