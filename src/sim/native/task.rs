// SPDX-License-Identifier: GPL-2.0-only
//! A task, as the BPF half sees it and as the model does.

use std::cell::UnsafeCell;

use super::ffi;
use super::queue::QueueKey;
use crate::topology::CpuMask;

/// Index of a task; not used again when the task is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskIndex(pub u32);

impl TaskIndex {
    /// Which of the tasks that were ever made.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a task is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// A CPU's local queue.
    Local(u32),
    /// The kernel's own queue for all CPUs.
    Global,
    /// A queue of the BPF half's.
    User(u64),
}

/// What a task is when it is forked; the default is nice 0, its own process, any CPU.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// Its name.
    pub comm: String,
    /// -20 to 19.
    pub nice: i32,
    /// Its process; the default is one of its own.
    pub tgid: Option<i32>,
    /// `SCHED_NORMAL` (0), `SCHED_BATCH` (3) or `SCHED_IDLE` (5).
    pub policy: u32,
    /// `PF_KTHREAD` and the like.
    pub flags: u32,
    /// The CPUs it may use.
    pub cpus: Option<CpuMask>,
    /// What each event of its counts in 1024 ns, by core type; cycles come second.
    pub rates: [[u32; 12]; 4],
    /// Its cgroup, as [`super::NativeKernel::make_cgroup`] numbered it.
    pub cgroup: Option<usize>,
    /// What makes it; the default is what runs on the CPU where that happens.
    pub maker: Option<TaskIndex>,
}

impl Default for NewTask {
    fn default() -> Self {
        // 1 GHz; two instructions a cycle on the fastest type, one on the next, and so on down.
        let rates = [2048, 1024, 682, 512].map(|instructions| {
            let mut rates = [64; 12];
            rates[..2].copy_from_slice(&[instructions, 1024]);
            rates
        });
        Self {
            comm: "task".into(),
            nice: 0,
            tgid: None,
            policy: 0,
            flags: 0,
            cpus: None,
            rates,
            cgroup: None,
            maker: None,
        }
    }
}

/// The model's side of a task.
pub(super) struct Entity {
    /// What the BPF half sees. It reads it within calls; the model writes it between them.
    pub(super) raw: Box<UnsafeCell<ffi::task_struct>>,
    pub(super) alive: bool,
    /// The BPF half was told of it: ops.init_task.
    pub(super) known: bool,
    pub(super) at: Option<(At, QueueKey)>,
    /// The verdict of ops.select_cpu or ops.enqueue, while they run and until it is carried out.
    pub(super) verdict: Option<Insertion>,
    /// Its verdict names another CPU's queue, and waits until the run queue's lock is free.
    pub(super) deferred: bool,
    pub(super) rates: [[u32; 12]; 4],
    /// What it has counted in truth, in 1/1024.
    pub(super) counted: [u64; 12],
    /// The one CPU that it may use while its migration is disabled.
    pub(super) only: Box<ffi::cpumask>,
    pub(super) waits_since: Option<u64>,
    /// The longest that it has waited, ns.
    pub(super) longest_wait: u64,
    pub(super) first_wait: Option<u64>,
    /// How often it began to run on another CPU than before.
    pub(super) moves: u32,
    pub(super) ran_on: Option<u32>,
    /// The queue it is in, is on its way to, or was last, and since when.
    pub(super) in_queue_since: Option<(At, u64)>,
    pub(super) cgroup: Option<usize>,
    /// Its word of a spin notification.
    pub(super) spin_word: u32,
}

impl Entity {
    /// It begins to run on `cpu`.
    pub(super) fn begins(&mut self, cpu: u32, now: u64) {
        let waited = self.waits_since.take().map_or(0, |since| now - since);
        self.first_wait.get_or_insert(waited);
        self.longest_wait = self.longest_wait.max(waited);
        let before = self.ran_on.replace(cpu);
        self.moves += u32::from(before.is_some_and(|before| before != cpu));
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Insertion {
    pub(super) dsq: u64,
    pub(super) flags: u64,
    pub(super) by_vtime: bool,
}
