// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel stores by task and by cgroup for the BPF half is handed on at a restart, and freed
//! at the end only.
//!
//! Some kernels, among them 6.16, keep to one CPU while they free such a map, and wait for RCU, which
//! waits for CPUs that come or go, which wait until no reader keeps to them. So where one CPU after the
//! other goes, as all siblings do when SMT is switched off, a map freed at the first one's restart could
//! stop the machine.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use libbpf_rs::{MapHandle, OpenMapMut};

use crate::bpf::{BpfSkel, OpenBpfSkel};

/// See the module.
pub(super) struct Storage {
    tasks: MapHandle,
    cgroups: MapHandle,
}

impl Storage {
    /// Of a BPF half that was loaded.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(super) fn of(skel: &BpfSkel) -> Result<Self> {
        let handle = |map| MapHandle::try_from(map).context("cannot keep what is stored by task");
        Ok(Self {
            tasks: handle(&skel.maps.task_ctxs)?,
            cgroups: handle(&skel.maps.cgroup_places)?,
        })
    }

    /// For the BPF half that follows, not loaded yet.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub(super) fn hand_on(&self, skel: &mut OpenBpfSkel) -> Result<()> {
        let give = |map: &mut OpenMapMut, kept: &MapHandle| {
            let given = map.reuse_fd(kept.as_fd());
            given.context("cannot hand on what is stored by task")
        };
        give(&mut skel.maps.task_ctxs, &self.tasks)?;
        give(&mut skel.maps.cgroup_places, &self.cgroups)
    }
}
