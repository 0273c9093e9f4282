// SPDX-License-Identifier: GPL-2.0-only
//! Linux' resctrl, where it is mounted: what processes hold of last-level caches and move to memory, counted by
//! hardware (Intel's CMT and MBM, AMD's likewise; PMCTrack 2017, section 4.3).
//!
//! [`ResctrlGroups`] are the files, [`service`] a thread that reads them for the scheduler; which
//! process is monitored when, [`hetero_core::cache::pool`] says.

mod groups;
pub(crate) mod service;

pub use groups::{ResctrlAbsent, ResctrlGroups};
