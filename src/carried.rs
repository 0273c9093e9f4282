// SPDX-License-Identifier: GPL-2.0-only
//! The task table over a restart of the BPF half, as on CPU hotplug: each thread keeps its slot, which
//! the new BPF half finds by the thread's id and start time. The agent carries it from one BPF half in
//! the kernel to the next, the simulator from one native copy to another.

use anyhow::Result;

use crate::bpf::{intf, types};
use crate::topology::Topology;

const FREE: u8 = intf::task_state_TASK_FREE as u8;

/// The table of a BPF half that the kernel has ended.
pub struct Carried {
    /// Names, fastest first: what is known of threads is by core type.
    core_types: Vec<String>,
    slots: Vec<types::task_slot>,
    max_progress: u64,
}

/// The BPF half that the table is handed to.
pub trait Heir {
    /// Its table; empty if it cannot be had.
    fn table(&mut self) -> &mut [types::task_slot];

    /// How many slots were ever taken, and the greatest progress of a thread.
    fn set_totals(&mut self, slots_used: u32, max_progress: u64);

    /// How many threads are still to be looked up by their ids; with 0 none is.
    fn set_carried(&mut self, nr: u32);

    /// A slot that is free.
    ///
    /// # Errors
    /// Where the kernel refuses.
    fn give_free(&mut self, slot: u32) -> Result<()>;

    /// The slot of a thread that may still be there.
    ///
    /// # Errors
    /// Where the kernel refuses.
    fn give_carried(&mut self, tid: u32, slot: u32) -> Result<()>;

    /// Takes back the slots that were given so, and that no thread has claimed.
    ///
    /// # Errors
    /// Where the kernel refuses.
    fn take_unclaimed(&mut self) -> Result<Vec<u32>>;
}

fn core_types(topology: &Topology) -> Vec<String> {
    let names = topology.types.iter().map(|kind| kind.name.clone());
    names.collect()
}

impl Carried {
    /// Of a table of which so many slots were ever taken.
    pub fn of(
        topology: &Topology,
        slots: &[types::task_slot],
        used: usize,
        max_progress: u64,
    ) -> Self {
        Self {
            core_types: core_types(topology),
            slots: slots[..used.min(slots.len())].to_vec(),
            max_progress,
        }
    }

    /// Whether the machine still has the same core types.
    pub fn fits(&self, topology: &Topology) -> bool {
        self.core_types == core_types(topology)
    }

    /// Hands the table to a BPF half that is loaded and not attached yet.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn restore(&self, heir: &mut impl Heir) -> Result<()> {
        for (slot, was) in heir.table().iter_mut().zip(&self.slots) {
            *slot = *was;
            // A writer that was interrupted for good would leave it odd.
            slot.seq &= !1;
        }
        let mut carried = 0;
        for (index, slot) in (0..).zip(&self.slots) {
            if slot.state == FREE {
                heir.give_free(index)?;
            } else {
                carried += 1;
                heir.give_carried(slot.tid, index)?;
            }
        }
        heir.set_totals(self.slots.len() as u32, self.max_progress);
        heir.set_carried(carried);
        Ok(())
    }
}

/// Frees the slots of threads that ended before the BPF half was attached; how many these were. All
/// there are have been looked up by then, and those still to come are new.
///
/// # Errors
/// Where the kernel refuses.
pub(crate) fn free_the_rest(heir: &mut impl Heir) -> Result<usize> {
    heir.set_carried(0);
    let left = heir.take_unclaimed()?;
    for &index in &left {
        if let Some(slot) = heir.table().get_mut(index as usize) {
            slot.state = FREE;
            slot.generation = slot.generation.wrapping_add(1);
            heir.give_free(index)?;
        }
    }
    Ok(left.len())
}
