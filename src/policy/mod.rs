// SPDX-License-Identifier: GPL-2.0-only
//! Policies: a snapshot of the tasks in, actions out. No policy touches a
//! kernel, a clock or a file.

pub mod acfs;
pub mod camps;
mod none;
mod rr;

use std::time::Duration;

pub use rr::RoundRobin;

use crate::pmu::module::{Module, Sample};
use crate::table::{Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// What a policy sees.
pub struct Snapshot<'a> {
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// The machine.
    pub topology: &'a Topology,
    /// Every task that has run for some milliseconds in its life.
    pub tasks: &'a [Task],
}

/// A task, and the core type on which the policy saw it run last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The task.
    pub task: TaskId,
    /// Index of the core type.
    pub on: usize,
}

impl From<&Task> for Seen {
    fn from(task: &Task) -> Self {
        Self {
            task: task.id,
            on: task.core_type,
        }
    }
}

/// What a policy may ask of the BPF half. Each names where the policy saw the
/// task; if it has moved or ended meanwhile, nothing happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Wish a core type for a task, or (`None`) take the wish back.
    Hint(Seen, Option<usize>),
    /// Wish a core type for each of two tasks, both or neither; if both run,
    /// they trade CPUs.
    Swap([(Seen, usize); 2]),
    /// Progress is charged at 1/slowdown from now on: `inverse[t]` on core type t, in (0, 1].
    Slowdown(TaskId, [f32; MAX_CORE_TYPES]),
    /// Keep ordinary tasks from a CPU for so long, at most 100 ms. Those of the kernel, pinned and
    /// latency-sensitive ones still run there; the one that does is held.
    Park(u32, Duration),
}

/// A scheduling policy.
pub trait Policy {
    /// What it wants to know from hardware counters; `None` is nothing.
    fn module(&self) -> Option<&dyn Module> {
        None
    }

    /// Takes note of what a task did. Called for each sample before [`Policy::decide`].
    fn observe(&mut self, _sample: &Sample) {}

    /// How often [`Policy::decide`] wants to be called; `None` is never.
    fn interval(&self) -> Option<Duration>;

    /// Appends what should be done now to `actions`.
    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>);
}

/// The policies by the name that `--policy` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// Place each thread on the best idle CPU; no further opinion
    #[default]
    None,
    /// Share the fastest cores fairly among applications, by periodic swaps
    Rr,
    /// Even out progress, aware of contention for caches and memory
    Camps,
    /// Even out progress, by speedup factors alone
    Acfs,
}

impl Name {
    /// Makes the policy. `swap_interval` is the time between decisions of those
    /// that swap threads.
    pub fn build(self, swap_interval: Duration) -> Box<dyn Policy> {
        match self {
            Name::None => Box::new(none::None),
            Name::Rr => Box::new(RoundRobin::new(swap_interval)),
            Name::Camps => Box::new(camps::Camps::new(camps::Options {
                migration_interval: swap_interval,
                ..Default::default()
            })),
            Name::Acfs => Box::new(acfs::Acfs::new(swap_interval)),
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Name::None => "none",
            Name::Rr => "rr",
            Name::Camps => "camps",
            Name::Acfs => "acfs",
        })
    }
}
