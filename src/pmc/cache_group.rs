// SPDX-License-Identifier: GPL-2.0-only
//! A monitoring group of resctrl for the program that is counted, so that its part of caches and of memory traffic
//! is told apart from all others'.

use std::path::{Path, PathBuf};

use hetero_core::cache::MonitoringGroups;
use hetero_core::cache::pool::GroupError;

use super::args::Args;
use super::session::Watched;
use crate::pmu::virtual_counters::CounterName;
use crate::resctrl::ResctrlGroups;

/// Virtual counters that resctrl has.
const OF_RESCTRL: [CounterName; 3] = [
    CounterName::LlcOccupancy,
    CounterName::MbmTotal,
    CounterName::MbmLocal,
];

/// See the module; it is gone when dropped.
pub(super) struct CacheGroup {
    groups: ResctrlGroups,
    name: u32,
}

impl CacheGroup {
    /// For the program, if its part is asked for and can be told.
    pub(super) fn of(args: &Args, watched: &Watched) -> Option<Self> {
        let mut asked = args.virtual_counters.iter();
        if !asked.any(|name| OF_RESCTRL.contains(name)) {
            return None;
        }
        // Where there is none, the virtual counters say so.
        let mut groups = ResctrlGroups::find(Path::new("/"), std::process::id()).ok()?;
        let (name, opened) = match args.pid {
            Some(pid) => (pid, groups.take_over(pid)),
            None => {
                let launcher = *watched.tids.first()? as u32;
                (launcher, groups.open_for_thread(launcher, launcher))
            }
        };
        match opened {
            Ok(()) => Some(Self { groups, name }),
            Err(why) => {
                log::warn!(
                    "caches and memory are of all programs together: {}",
                    match why {
                        GroupError::NoneLeft => "resctrl has no monitoring group left",
                        GroupError::Ended => "the process has ended",
                        GroupError::NotThisOne | GroupError::Taken => {
                            "the process is in a group of resctrl's already"
                        }
                        GroupError::Gone => "no monitoring group can be made (are you root?)",
                    }
                );
                None
            }
        }
    }

    /// Below the root.
    pub(super) fn folder(&self) -> PathBuf {
        let group = self.groups.folder_of(self.name).unwrap_or(Path::new("/"));
        group.strip_prefix("/").unwrap_or(group).to_path_buf()
    }
}

impl Drop for CacheGroup {
    fn drop(&mut self) {
        self.groups.close(self.name);
    }
}
