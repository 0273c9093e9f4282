// SPDX-License-Identifier: GPL-2.0-or-later
//! Policies: a snapshot of the tasks in, actions out. No policy touches a
//! kernel, a clock or a file.

pub mod acfs;
pub mod adwrr;
pub mod camps;
pub mod ef;
pub mod eqp;
#[cfg(test)]
#[expect(dead_code, reason = "CONTRIBUTING.md shows it; it is in no list")]
mod example;
pub mod hsp;
pub mod insight;
mod name;
mod none;
pub mod prim;
pub mod rank;
pub mod reason;
mod rr;
pub(crate) mod tools;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use ef::Objective;
pub use insight::Insight;
pub use name::{Knows, Name};
pub use none::None as NoPolicy;
pub use reason::Reason;
pub use rr::RoundRobin;

use crate::goals::SessionPlace;
use crate::knowledge::{Past, ThreadProfile};
use crate::mechanism::Mechanism;
use crate::pmu::Meaning;
use crate::pmu::sample::Sample;
use crate::slowdown::{History, Thresholds};
use crate::table::{Task, TaskId, TaskState};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// What a policy sees.
pub struct Snapshot<'a> {
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// The machine.
    pub topology: &'a Topology,
    /// Every task that has run for some milliseconds in its life, in ascending order of ids.
    pub tasks: &'a [Task],
}

impl<'a> Snapshot<'a> {
    /// Where the task of this id is among `tasks`, unless it has ended.
    pub fn index(&self, id: TaskId) -> Option<usize> {
        self.tasks.binary_search_by_key(&id, |task| task.id).ok()
    }

    /// The task of this id, unless it has ended.
    pub fn task(&self, id: TaskId) -> Option<&'a Task> {
        Some(&self.tasks[self.index(id)?])
    }

    /// Whether there is still a task of this id.
    pub fn is_alive(&self, id: TaskId) -> bool {
        self.index(id).is_some()
    }

    /// How many tasks there are to a CPU that are not asleep.
    pub fn crowd(&self) -> f64 {
        let awake = |task: &&Task| task.state != TaskState::Blocked;
        let awake = self.tasks.iter().filter(awake).count();
        awake as f64 / self.topology.cpus.len().max(1) as f64
    }
}

/// In a crowd a policy that goes by samples decides no more often than each thread has a new one, but so often
/// at least.
const IN_A_CROWD: Duration = Duration::from_millis(500);

/// A task, and the core type on which the policy saw it run last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Wish a core type for a task, or (`None`) take the wish back.
    Hint(Seen, Option<usize>),
    /// Wish a core type for each of two tasks, both or neither; if both run,
    /// they trade CPUs. If both are to stay on their type they only trade CPUs, or nothing happens if either sleeps.
    Swap([(Seen, usize); 2]),
    /// Progress is charged at 1/slowdown from now on: `inverse[t]` on core type t, in (0, 1].
    Slowdown(TaskId, [f32; MAX_CORE_TYPES]),
    /// Keep ordinary tasks from a CPU for so long, at most 100 ms. Those of the kernel, pinned and
    /// latency-sensitive ones still run there; the one that does is held.
    Park(u32, Duration),
    /// Its weight counts so many hundredths from now on: a rule of the user's, no policy's wish.
    Weight(TaskId, u16),
    /// It belongs to this session from now on, or to none: a goal's, no policy's wish.
    Join(TaskId, SessionPlace),
}

/// What a policy has seen and decided since it began, for the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyTally {
    /// Samples whose phase the history table knew, and those of phases that it did not.
    pub phase_hits: u64,
    /// See `phase_hits`.
    pub phase_misses: u64,
    /// Of both, samples that went into history tables, for contention was low.
    pub samples_learned: u64,
    /// Of these, those of phases that the tables did not know.
    pub phases_learned: u64,
    /// Swaps that are worth nothing, for the two were `amp_threshold` apart twice over.
    pub forced_swaps: u64,
    /// Times that NWC mode was entered.
    pub nwc_episodes: u64,
    /// Times that it was left because the thread's hit rate had become good.
    pub nwc_learned: u64,
    /// Time in NWC mode, ns.
    pub nwc_ns: u64,
}

/// A scheduling policy.
pub trait Policy {
    /// The events that it wants counted besides instructions and cycles, which always are; `None`: it
    /// goes by no counters. What does not fit at once is counted in sets that take turns.
    fn events(&self) -> Option<&'static [Meaning]> {
        None
    }

    /// Events that it goes by besides on core types whose cores have several threads (SMT), as far as none has to take turns for them
    /// and no other is left out.
    fn events_of_siblings(&self) -> &'static [Meaning] {
        &[]
    }

    /// Takes note of what a task did. Called for each sample before [`Policy::decide`].
    fn observe(&mut self, _sample: &Sample) {}

    /// How often [`Policy::decide`] wants to be called where every thread has a CPU; `None` is never.
    fn interval(&self) -> Option<Duration>;

    /// Time from now on until [`Policy::decide`] is due again; `None` is never.
    fn due_in(&self, snapshot: &Snapshot) -> Option<Duration> {
        let interval = self.interval()?;
        if self.events().is_none() {
            return Some(interval);
        }
        let each_had_a_turn = interval.mul_f64(snapshot.crowd().max(1.0));
        Some(each_had_a_turn.min(interval.max(IN_A_CROWD)))
    }

    /// Appends what should be done now to `actions`.
    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>);

    /// Called in place of [`Policy::decide`] while another decides, as where energy is saved: what it noted for the next
    /// decision is out of date, and threads that ended are to be forgotten.
    fn rest(&mut self, _snapshot: &Snapshot) {}

    /// See [`PolicyTally`].
    fn tally(&self) -> PolicyTally {
        PolicyTally::default()
    }

    /// Why the last decision moved a thread; `None` if it did not.
    fn reason(&self, _task: TaskId) -> Option<Reason> {
        None
    }

    /// What it knows of a thread.
    fn insight(&self, _task: &Task, _topology: &Topology) -> Insight {
        Insight::default()
    }

    /// The phases that it knows of a thread, where it keeps such a table.
    fn history(&self, _task: TaskId) -> Option<&History> {
        None
    }

    /// Whether it goes by what is known of programs from earlier runs, and finds anything of them.
    fn remembers(&self) -> bool {
        false
    }

    /// Takes note of what is known of the program that a thread runs, from earlier runs; before
    /// [`Policy::decide`] sees the thread first, or soon after. It takes the place of what it was told before, as where
    /// the thread runs another program now, of which nothing may be known.
    fn remember(&mut self, _task: TaskId, _known: &ThreadProfile) {}

    /// Whether it is worth a decision out of its turn that a new thread's program is known now.
    fn decides_when_told(&self) -> bool {
        true
    }

    /// Adds what it has found of a thread, for later runs.
    fn find(&self, _task: TaskId, _found: &mut ThreadProfile) {}

    /// What became of what it was told of a thread's program.
    fn past(&self, _task: TaskId) -> Past {
        Past::Unknown
    }

    /// Changes [`Settings::fairness`] from now on; false if that is nothing to it.
    fn set_fairness(&mut self, _percent: u8) -> bool {
        false
    }
}

/// What the command line says to policies; each takes what concerns it.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Time between decisions, or migrations, of policies that swap threads.
    pub swap_interval: Duration,
    /// See [`camps::CampsOptions::fairness`].
    pub fairness: u8,
    /// See [`rank::OVERSUBSCRIBE`].
    pub oversubscribe: f64,
    /// What policy `ef` makes the most of.
    pub objective: Objective,
    /// By which policy `prim` goes; without, by those of a virtual Juno board.
    pub swap_rules: Option<&'a prim::rules::SwapRules>,
    /// See [`camps::CampsOptions::limits`].
    pub limits: Option<Thresholds>,
    /// Parts to be left out, for tests.
    pub without: &'a [Mechanism],
}

/// What the command line says unless it is told otherwise.
impl Default for Settings<'_> {
    fn default() -> Self {
        Self {
            swap_interval: Duration::from_millis(400),
            fairness: camps::FAIRNESS,
            oversubscribe: rank::OVERSUBSCRIBE,
            objective: Objective::default(),
            swap_rules: None,
            limits: None,
            without: &[],
        }
    }
}
