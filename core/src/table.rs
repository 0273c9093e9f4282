// SPDX-License-Identifier: GPL-2.0-or-later
//! The task table as the agent has it: one [`Task`] for each thread that is placed.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum TaskState {
    /// Asleep.
    Blocked,
    /// Runnable, waiting in a queue for any CPU.
    Queued,
    /// On a CPU, or preempted there for a moment (by the agent that looks, say).
    Running,
}

impl TaskState {
    /// In one word.
    pub fn name(self) -> &'static str {
        self.into()
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
    pub state: TaskState,
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
    /// It waits actively, by its own word (`docs/spin.md`).
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
