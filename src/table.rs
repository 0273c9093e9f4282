// SPDX-License-Identifier: GPL-2.0-only
//! The task table: BPF writes it, the agent takes snapshots without a system call.

use std::ptr;
use std::sync::atomic::{Ordering, fence};

pub use hetero_core::table::*;

use crate::bpf::{intf, types};
use crate::topology::MAX_CORE_TYPES;

/// How often a slot is read again while BPF writes to it. A write takes well
/// under a microsecond, unless something holds up the CPU that writes.
const TRIES: usize = 100;

/// Reads the task table.
#[derive(Default)]
pub struct TableReader {
    /// What there was at the last look, and at the one before; kept for its memory.
    last: Vec<Task>,
    before: Vec<Task>,
}

impl TableReader {
    /// Fills `tasks` with those in the first `used` slots that are taken, in ascending order of
    /// their ids. A slot whose writer is held up is given as it was last read: a task that vanished
    /// for a moment would lose what a policy remembers of it.
    pub fn snapshot(&mut self, slots: &[types::task_slot], used: usize, tasks: &mut Vec<Task>) {
        let Self { last, before } = self;
        std::mem::swap(last, before);
        last.clear();
        for (slot, index) in slots.iter().take(used).zip(0..) {
            last.extend(match read_slot(slot) {
                Some(raw) => to_task(index, &raw),
                None => {
                    let at = before.binary_search_by_key(&index, |task| task.id.slot);
                    at.ok().map(|at| before[at])
                }
            });
        }
        tasks.clone_from(last);
    }
}

fn read_slot(slot: &types::task_slot) -> Option<types::task_slot> {
    for _ in 0..TRIES {
        // SAFETY: `slot` points into the mapping of a BPF array, which lives as
        // long as the skeleton. BPF writes to it concurrently, hence volatile
        // reads; every bit pattern is valid for these integers, and a copy is
        // used only if the sequence number did not move while it was made.
        let (before, copy, after) = unsafe {
            let before = ptr::read_volatile(&raw const slot.seq);
            fence(Ordering::Acquire);
            let copy = ptr::read_volatile(slot);
            fence(Ordering::Acquire);
            (before, copy, ptr::read_volatile(&raw const slot.seq))
        };
        if before == after && before % 2 == 0 {
            return Some(copy);
        }
        std::hint::spin_loop();
    }
    None
}

fn to_task(slot: u32, raw: &types::task_slot) -> Option<Task> {
    let state = match u32::from(raw.state) {
        intf::task_state_TASK_BLOCKED => TaskState::Blocked,
        intf::task_state_TASK_QUEUED => TaskState::Queued,
        intf::task_state_TASK_IS_RUNNING => TaskState::Running,
        _ => return None,
    };
    Some(Task {
        id: TaskId {
            slot,
            generation: raw.generation,
        },
        tid: raw.tid,
        tgid: raw.tgid,
        comm: Comm(raw.comm.map(|c| c as u8)),
        start_time: raw.start_time,
        state,
        cpu: raw.cpu,
        core_type: usize::from(raw.core_type),
        hint: (usize::from(raw.hint) < MAX_CORE_TYPES).then_some(usize::from(raw.hint)),
        allowed_types: raw.allowed_types & ((1 << MAX_CORE_TYPES) - 1),
        kthread: raw.kthread != 0,
        pinned: raw.pinned != 0,
        spinning: raw.spinning != 0,
        weight: raw.weight,
        nr_runnable: raw.nr_runnable,
        run_ns: raw.run_ns,
        amp_progress: raw.amp_progress,
        first_progress: raw.first_progress,
        sf: (raw.sf > 0).then(|| f64::from(raw.sf) / f64::from(intf::hetero_consts_SF_ONE)),
    })
}
