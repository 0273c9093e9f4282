// SPDX-License-Identifier: GPL-2.0-only
//! The task table: BPF writes it, the agent takes snapshots without a system call.

use std::borrow::Cow;
use std::fmt;
use std::ptr;
use std::sync::atomic::{Ordering, fence};

use serde::{Deserialize, Serialize};

use crate::bpf::{intf, types};
use crate::text::plain;
use crate::topology::MAX_CORE_TYPES;

/// A task's identity for as long as the scheduler runs: slots change hands,
/// the generation tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// Index into the table.
    pub slot: u32,
    /// Of the slot, when the task had it.
    pub generation: u32,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Asleep.
    Blocked,
    /// Runnable, waiting in a queue for any CPU.
    Queued,
    /// On a CPU, or preempted there for a moment (by the agent that looks, say).
    Running,
}

impl State {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Queued => "queued",
            Self::Running => "running",
        }
    }
}

/// A thread's name: up to 15 bytes, ended by a zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comm(pub [u8; 16]);

impl Comm {
    /// As the thread has it, to be compared: any thread may name itself as it likes.
    pub fn raw(&self) -> Cow<'_, str> {
        let name = self.0.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name)
    }
}

/// To be shown: [`plain`].
impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&plain(&self.raw()))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// One task as it was at the moment of the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its slot and generation.
    pub id: TaskId,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Thread name.
    pub comm: Comm,
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
    /// It waits actively, by its own word: [`crate::spin`].
    pub spinning: bool,
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
    /// SF as a model had it from its latest sample; `None` if it has not been asked, or not in the
    /// BPF half.
    pub sf: Option<f64>,
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

    /// Whether it is free to choose between core types.
    pub fn may_choose(&self) -> bool {
        !self.pinned && self.allowed_types.count_ones() > 1
    }
}

/// How often a slot is read again while BPF writes to it. A write takes well
/// under a microsecond, unless something holds up the CPU that writes.
const TRIES: usize = 100;

/// Reads the task table.
#[derive(Default)]
pub struct Reader {
    /// What there was at the last look, and at the one before; kept for its memory.
    last: Vec<Task>,
    before: Vec<Task>,
}

impl Reader {
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
        intf::task_state_TASK_BLOCKED => State::Blocked,
        intf::task_state_TASK_QUEUED => State::Queued,
        intf::task_state_TASK_IS_RUNNING => State::Running,
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
        allowed_types: raw.allowed_types,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_as_text_and_compared_as_it_is() {
        let comm = Comm(*b"\x1b]2;a\n\x9b\x07\0owned\0\0");
        assert_eq!(comm.to_string(), "\\u{1b}]2;a\\n\u{fffd}\\u{7}");
        assert_eq!(comm.raw(), "\x1b]2;a\n\u{fffd}\x07");
        assert_eq!(
            format!("{:>6}|", Comm(*b"xz\0\0\0\0\0\0\0\0\0\0\0\0\0\0")),
            "    xz|"
        );
    }
}
