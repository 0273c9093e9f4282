// SPDX-License-Identifier: GPL-2.0-only
//! A task, as the BPF half sees it and as the model does.

use std::cell::UnsafeCell;

use super::ffi;
use super::queue::QueueKey;
use crate::bpf::intf;

const MAX_CPUS: usize = intf::hetero_consts_MAX_CPUS as usize;

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

/// A set of CPUs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mask(pub [u64; MAX_CPUS / 64]);

impl Mask {
    /// No CPU.
    pub const NONE: Self = Self([0; _]);

    /// The CPUs `0..nr`.
    pub fn first(nr: u32) -> Self {
        Self::of(0..nr)
    }

    /// These CPUs.
    pub fn of(cpus: impl IntoIterator<Item = u32>) -> Self {
        let mut mask = Self::NONE;
        cpus.into_iter().for_each(|cpu| mask.set(cpu, true));
        mask
    }

    /// Is `cpu` in it?
    pub fn has(&self, cpu: u32) -> bool {
        self.0
            .get(cpu as usize / 64)
            .is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Keeps those that are in `other`, too.
    pub(super) fn intersect(&mut self, other: &Self) {
        let words = self.0.iter_mut().zip(other.0);
        words.for_each(|(word, other)| *word &= other);
    }

    /// Adds or removes `cpu`.
    pub fn set(&mut self, cpu: u32, present: bool) {
        let word = &mut self.0[cpu as usize / 64];
        *word = *word & !(1 << (cpu % 64)) | u64::from(present) << (cpu % 64);
    }

    /// The CPUs of it, ascending.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.into_cpus()
    }

    /// The same from `cpu` on, and round.
    pub(super) fn cpus_from(self, cpu: u32) -> impl Iterator<Item = u32> + Clone {
        let (mut after, mut before) = (self, self);
        let (word, bit) = (cpu as usize / 64, cpu % 64);
        after.0.iter_mut().take(word).for_each(|word| *word = 0);
        before
            .0
            .iter_mut()
            .skip(word + 1)
            .for_each(|word| *word = 0);
        if let (Some(after), Some(before)) = (after.0.get_mut(word), before.0.get_mut(word)) {
            *after &= u64::MAX << bit;
            *before &= !(u64::MAX << bit);
        }
        after.into_cpus().chain(before.into_cpus())
    }

    fn into_cpus(self) -> impl Iterator<Item = u32> + Clone {
        (0..).zip(self.0).flat_map(|(index, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(index * 64 + bit)
            })
        })
    }

    /// How many CPUs.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// No CPU?
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }
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
    pub cpus: Option<Mask>,
    /// What each event of its counts in 1024 ns, by core type; cycles come second.
    pub rates: [[u32; 12]; 4],
    /// Its cgroup, as [`super::NativeKernel::make_cgroup`] numbered it.
    pub cgroup: Option<usize>,
    /// What makes it; the default is what runs on the CPU where that happens.
    pub maker: Option<TaskIndex>,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.cpus()).finish()
    }
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
