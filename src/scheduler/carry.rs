// SPDX-License-Identifier: GPL-2.0-only
//! What is known of the threads outlives a restart, as on CPU hotplug: the task table, in which each
//! keeps its slot ([`carried`]), and the policy, which knows them by it.

use std::time::Instant;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};
use log::{debug, info};

use super::half::BpfHalf;
use super::storage::Storage;
use crate::agent::{Agent, Moves};
use crate::bpf::{BpfSkel, types};
use crate::carried::{self, Heir};
use crate::policy::{self, Policy};
use crate::topology::Topology;
use hetero_core::energy::ledger::EnergyLedger;

/// See the module.
pub(super) struct CarriedState {
    table: carried::Carried,
    policy: Option<(policy::Name, Box<dyn Policy>)>,
    pub(super) started: Instant,
    pub(super) moves: Moves,
    pub(super) energy: EnergyLedger,
    pub(super) storage: Storage,
}

impl CarriedState {
    /// Of a scheduler that the kernel has ended; `agent` is of no use afterwards.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(super) fn new(half: &BpfHalf, agent: &mut Agent) -> Result<Option<Self>> {
        let maps = &half.skel.maps;
        let (Some(bss), Some(table)) = (&maps.bss_data, &maps.bss_slots_data) else {
            return Ok(None);
        };
        let used = bss.nr_slots_used as usize;
        let name = agent.name();
        let policy = agent.replace_policy(policy::Name::None, Box::new(policy::NoPolicy));
        Ok(Some(Self {
            table: carried::Carried::of(&agent.topology, &table.slots, used, bss.max_progress),
            policy: Some((name, policy)),
            started: half.started,
            moves: std::mem::take(&mut agent.moves),
            energy: std::mem::take(&mut agent.energy),
            storage: Storage::of(&half.skel)?,
        }))
    }

    /// Whether the machine still has the same core types.
    pub(super) fn fits(&self, topology: &Topology) -> bool {
        let same = self.table.fits(topology);
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

    /// Whether the policy was taken.
    pub(super) fn gave_policy(&self) -> bool {
        self.policy.is_none()
    }

    /// Hands the task table to the BPF half, which is loaded and not attached yet.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub(super) fn restore(&self, skel: &mut BpfSkel) -> Result<()> {
        let restored = self.table.restore(skel);
        restored.context("cannot hand the task table on")
    }
}

/// Frees the slots of tasks that ended before the new scheduler was attached.
///
/// # Errors
/// Where the kernel refuses.
pub(super) fn free_the_rest(skel: &mut BpfSkel) -> Result<()> {
    let gone = carried::free_the_rest(skel).context("cannot free places in the task table")?;
    debug!("{gone} tasks that were known are gone");
    Ok(())
}

impl Heir for BpfSkel<'_> {
    fn table(&mut self) -> &mut [types::task_slot] {
        match &mut self.maps.bss_slots_data {
            Some(table) => &mut table.slots,
            None => &mut [],
        }
    }

    fn set_totals(&mut self, slots_used: u32, max_progress: u64) {
        if let Some(bss) = &mut self.maps.bss_data {
            bss.nr_slots_used = slots_used;
            bss.max_progress = max_progress;
        }
    }

    fn set_carried(&mut self, nr: u32) {
        if let Some(bss) = &mut self.maps.bss_data {
            bss.nr_carried = nr;
        }
    }

    fn give_free(&mut self, slot: u32) -> Result<()> {
        let slot = slot.to_ne_bytes();
        Ok(self.maps.free_slots.update(&[], &slot, MapFlags::ANY)?)
    }

    fn give_carried(&mut self, tid: u32, slot: u32) -> Result<()> {
        let (tid, slot) = (tid.to_ne_bytes(), slot.to_ne_bytes());
        Ok(self.maps.carried_slots.update(&tid, &slot, MapFlags::ANY)?)
    }

    fn take_unclaimed(&mut self) -> Result<Vec<u32>> {
        let map = &self.maps.carried_slots;
        let tids: Vec<Vec<u8>> = map.keys().collect();
        let mut left = Vec::with_capacity(tids.len());
        for tid in tids {
            let slot = map.lookup(&tid, MapFlags::ANY)?;
            left.extend(slot.and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?))));
            let _ = map.delete(&tid);
        }
        Ok(left)
    }
}
