// SPDX-License-Identifier: GPL-2.0-only
//! The task table: BPF writes it, the agent takes snapshots without a system call.

use std::ptr;
use std::sync::atomic::{Ordering, fence};

use crate::bpf::{intf, types};
use crate::topology::MAX_CORE_TYPES;

/// A task's identity for as long as the scheduler runs: slots change hands,
/// the generation tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// Index into the table.
    pub slot: u32,
    /// Of the slot, when the task had it.
    pub generation: u32,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Asleep.
    Blocked,
    /// Runnable, waiting for a CPU.
    Queued,
    /// On a CPU.
    Running,
}

/// One task as it was at the moment of the snapshot.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its slot and generation.
    pub id: TaskId,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Thread name.
    pub comm: String,
    /// Nanoseconds since boot; with `tid` it names a thread for good.
    pub start_time: u64,
    /// Blocked, queued or running.
    pub state: State,
    /// CPU that it runs on, or ran on last.
    pub cpu: i32,
    /// Core type of that CPU (index, 0 is the fastest).
    pub core_type: usize,
    /// Core type that a policy wished for it.
    pub hint: Option<usize>,
    /// Bit t is set if its affinity allows some CPU of core type t.
    pub allowed_types: u8,
    /// It is a kernel thread.
    pub kthread: bool,
    /// It may run on one CPU only.
    pub pinned: bool,
    /// 1024 is nice 0.
    pub weight: u32,
    /// Runnable threads of its process, when last charged.
    pub nr_runnable: u32,
    /// Nanoseconds run on each core type.
    pub run_ns: [u64; MAX_CORE_TYPES],
    /// Work done, in nanoseconds at the fastest type in isolation (CAMPS Eq. 3).
    pub amp_progress: u64,
    /// Where its `amp_progress` began: with that of the task furthest ahead.
    pub first_progress: u64,
}

impl Task {
    /// Nanoseconds run in all.
    pub fn total_ns(&self) -> u64 {
        self.run_ns.iter().sum()
    }

    /// Whether its affinity allows core type `core_type`.
    pub fn may_use(&self, core_type: usize) -> bool {
        self.allowed_types & (1 << core_type) != 0
    }
}

/// How often a slot is read again while BPF writes to it. A write takes well
/// under a microsecond; a slot that is still torn after this many tries belongs
/// to a CPU that an interrupt holds up, and the next snapshot will have it.
const TRIES: usize = 100;

/// The tasks in the first `used` slots that are taken.
pub fn snapshot(slots: &[types::task_slot], used: usize) -> Vec<Task> {
    slots
        .iter()
        .take(used)
        .enumerate()
        .filter_map(|(index, slot)| read_slot(slot).and_then(|raw| to_task(index as u32, &raw)))
        .collect()
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
        intf::task_state_TASK_BLOCKED => State::Blocked,
        intf::task_state_TASK_QUEUED => State::Queued,
        intf::task_state_TASK_IS_RUNNING => State::Running,
        _ => return None,
    };
    let comm: Vec<u8> = raw
        .comm
        .iter()
        .map(|&c| c as u8)
        .take_while(|&c| c != 0)
        .collect();
    Some(Task {
        id: TaskId {
            slot,
            generation: raw.generation,
        },
        tid: raw.tid,
        tgid: raw.tgid,
        comm: String::from_utf8_lossy(&comm).into_owned(),
        start_time: raw.start_time,
        state,
        cpu: raw.cpu,
        core_type: usize::from(raw.core_type),
        hint: (usize::from(raw.hint) < MAX_CORE_TYPES).then_some(usize::from(raw.hint)),
        allowed_types: raw.allowed_types,
        kthread: raw.kthread != 0,
        pinned: raw.pinned != 0,
        weight: raw.weight,
        nr_runnable: raw.nr_runnable,
        run_ns: raw.run_ns,
        amp_progress: raw.amp_progress,
        first_progress: raw.first_progress,
    })
}
