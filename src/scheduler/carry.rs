// SPDX-License-Identifier: GPL-2.0-only
//! What is known of the threads outlives a restart, as on CPU hotplug: the task table, in which each
//! keeps its slot, and the policy, which knows them by it. The BPF half finds a thread again by its
//! id and start time.

use std::time::Instant;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};
use log::{debug, info};

use super::half::BpfHalf;
use super::storage::Storage;
use crate::agent::{Agent, Moves};
use crate::bpf::{BpfSkel, intf, types};
use crate::policy::{self, Policy};
use crate::topology::Topology;

const FREE: u8 = intf::task_state_TASK_FREE as u8;

/// See the module.
pub(super) struct Carried {
    /// Names, fastest first: what is known of threads is by core type.
    core_types: Vec<String>,
    policy: Option<(policy::Name, Box<dyn Policy>)>,
    pub(super) started: Instant,
    pub(super) moves: Moves,
    slots: Vec<types::task_slot>,
    max_progress: u64,
    pub(super) storage: Storage,
}

fn core_types(topology: &Topology) -> Vec<String> {
    let names = topology.types.iter().map(|kind| kind.name.clone());
    names.collect()
}

impl Carried {
    /// Of a scheduler that the kernel has ended; `agent` is of no use afterwards.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(super) fn new(half: &BpfHalf, agent: &mut Agent) -> Result<Option<Self>> {
        let maps = &half.skel.maps;
        let (Some(bss), Some(table)) = (&maps.bss_data, &maps.bss_slots_data) else {
            return Ok(None);
        };
        let slots = &table.slots;
        let name = agent.name();
        let policy = agent.replace_policy(policy::Name::None, Box::new(policy::NoPolicy));
        Ok(Some(Self {
            core_types: core_types(&agent.topology),
            policy: Some((name, policy)),
            started: half.started,
            moves: std::mem::take(&mut agent.moves),
            slots: slots[..(bss.nr_slots_used as usize).min(slots.len())].to_vec(),
            max_progress: bss.max_progress,
            storage: Storage::of(&half.skel)?,
        }))
    }

    /// Whether the machine still has the same core types.
    pub(super) fn fits(&self, topology: &Topology) -> bool {
        let same = self.core_types == core_types(topology);
        if !same {
            info!("the core types are others now: what was known of threads is forgotten");
        }
        same
    }

    /// The policy, if it was this one.
    pub(super) fn take_policy(&mut self, name: policy::Name) -> Option<Box<dyn Policy>> {
        let (_, policy) = self.policy.take_if(|(was, _)| *was == name)?;
        Some(policy)
    }

    /// Whether somebody took the policy.
    pub(super) fn gave_policy(&self) -> bool {
        self.policy.is_none()
    }

    /// Hands the task table to the BPF half, which is loaded and not attached yet.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub(super) fn restore(&self, skel: &mut BpfSkel) -> Result<()> {
        let (Some(bss), Some(table)) = (
            skel.maps.bss_data.as_mut(),
            skel.maps.bss_slots_data.as_mut(),
        ) else {
            return Ok(());
        };
        let mut carried = 0;
        for (index, (slot, was)) in table.slots.iter_mut().zip(&self.slots).enumerate() {
            *slot = *was;
            // A writer that was interrupted for good would leave it odd.
            slot.seq &= !1;
            let index = (index as u32).to_ne_bytes();
            let given = if slot.state == FREE {
                skel.maps.free_slots.update(&[], &index, MapFlags::ANY)
            } else {
                carried += 1;
                let tid = slot.tid.to_ne_bytes();
                skel.maps.carried_slots.update(&tid, &index, MapFlags::ANY)
            };
            given.context("cannot hand the task table on")?;
        }
        bss.nr_slots_used = self.slots.len() as u32;
        bss.max_progress = self.max_progress;
        bss.nr_carried = carried;
        Ok(())
    }
}

/// Frees the slots of tasks that ended before the new scheduler was attached.
///
/// # Errors
/// Where the kernel refuses.
pub(super) fn free_the_rest(skel: &mut BpfSkel) -> Result<()> {
    let (Some(bss), Some(table)) = (
        skel.maps.bss_data.as_mut(),
        skel.maps.bss_slots_data.as_mut(),
    ) else {
        return Ok(());
    };
    // All tasks there are have been looked up; those still to come are new.
    let carried = std::mem::take(&mut bss.nr_carried);
    let left: Vec<Vec<u8>> = skel.maps.carried_slots.keys().collect();
    debug!(
        "{carried} tasks were known, {} of them are gone",
        left.len()
    );
    for tid in left {
        let index = skel.maps.carried_slots.lookup(&tid, MapFlags::ANY);
        let Some(bytes) = index.context("cannot read the task table")? else {
            continue;
        };
        let Ok(number) = bytes.as_slice().try_into().map(u32::from_ne_bytes) else {
            continue;
        };
        if let Some(slot) = table.slots.get_mut(number as usize) {
            slot.state = FREE;
            slot.generation = slot.generation.wrapping_add(1);
            let freed = skel.maps.free_slots.update(&[], &bytes, MapFlags::ANY);
            freed.context("cannot free a place in the task table")?;
        }
        let _ = skel.maps.carried_slots.delete(&tid);
    }
    Ok(())
}
