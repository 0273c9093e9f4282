// SPDX-License-Identifier: GPL-2.0-only
//! Linux' resctrl, where it is mounted: what processes hold of last-level caches and move to memory, counted by
//! hardware (Intel's CMT and MBM, AMD's likewise; PMCTrack 2017, section 4.3), and which have few ways of them (CAT).
//!
//! [`ResctrlGroups`] and [`ResctrlWays`] are the files, [`service`] a thread that reads and writes them for the scheduler; which
//! process is monitored when, [`hetero_core::cache::pool`] says, and which is confined, [`hetero_core::cache::partition`].

mod files;
mod groups;
pub(crate) mod service;
mod ways;

pub use files::ResctrlAbsent;
pub use groups::ResctrlGroups;
pub use ways::ResctrlWays;

use std::path::Path;

use log::debug;

/// Removes groups below `root` that owners have left that did not come to their end. Those of owners that run stay.
pub fn remove_left(root: &Path) {
    if let Err(why) = files::Resctrl::find(root, std::process::id()) {
        debug!("no group of resctrl is left: {why}");
    }
}
