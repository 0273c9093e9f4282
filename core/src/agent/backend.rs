// SPDX-License-Identifier: GPL-2.0-or-later
//! What the agent watches and acts on.

use super::{SessionBeats, Verdict};
use crate::energy::reading::EnergyReading;
use crate::goals::{SessionId, SessionPlace};
use crate::knowledge::{Remembered, ThreadFinding};
use crate::pmu::sample::Sample;
use crate::policy::Action;
use crate::record::Encoder;
use crate::table::{Task, TaskId};
use crate::topology::CpuMask;

/// Where tasks run: the BPF half in the kernel, the same compiled natively in the simulator, or a
/// recording of either.
pub trait Backend {
    /// Why it can go on no longer.
    type Error;

    /// Monotonic time, ns. Where it begins does not matter, as long as it is the same for one agent.
    fn now(&self) -> u64;

    /// Appends the samples that have come since the last time, in the order in which they came. Each
    /// is complete: counts, metrics, and SF where there is a model.
    ///
    /// # Errors
    /// They cannot be had; what was appended before is good.
    fn samples(&mut self, samples: &mut Vec<Sample>) -> Result<(), Self::Error>;

    /// Fills `tasks` with the task table as it is now, in ascending order of ids.
    fn snapshot(&mut self, tasks: &mut Vec<Task>);

    /// Carries actions out, and appends what became of each, in order. One that only listens appends
    /// nothing.
    ///
    /// # Errors
    /// They cannot be carried out; what was appended before is good.
    fn apply(
        &mut self,
        actions: &[Action],
        by: Author,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Self::Error>;

    /// The process that has opened a session belongs to its place at once, also if the task table does not
    /// have it yet.
    fn adopt(&mut self, _session: SessionId, _place: SessionPlace) {}

    /// What the threads of a session get from now on.
    fn allot(&mut self, _session: SessionPlace, _allotment: Allotment) {}

    /// What the threads of a session have run for so far while it had an allotment, as the fastest core type would
    /// take for it, ns.
    fn spent_ns(&self, _session: SessionPlace) -> u64 {
        0
    }

    /// Where a task belongs as the backend has it, by an action or because it was born there; its session may have
    /// ended.
    fn place_of(&self, _task: TaskId) -> SessionPlace {
        SessionPlace::NONE
    }

    /// Appends the sessions that there are.
    fn sessions(&mut self, _sessions: &mut Vec<SessionBeats>) {}

    /// The session that a thread ought to belong to.
    fn session_of(&mut self, _task: &Task) -> Belongs {
        Belongs::ToNone
    }

    /// The CPUs that a thread may use, by its affinity and its cgroup; `None` where that is not known.
    fn cpus_of(&mut self, _task: &Task) -> Option<CpuMask> {
        None
    }

    /// What the user's rules say of a thread. Asked when it is new, has another name, or the rules
    /// are others.
    fn verdict(&mut self, _task: &Task) -> Option<Verdict> {
        None
    }

    /// What energy sensors have counted so far, and how long CPUs have been busy; `None` where there are none,
    /// or it is too soon to read them again.
    fn energy(&mut self) -> Option<EnergyReading> {
        None
    }

    /// Whether anything is known of programs, or is to be kept of them.
    fn remembers(&self) -> bool {
        false
    }

    /// What is known of the program that a thread runs. Asked when it is new or has another name, and again
    /// until it is no longer [`Remembered::Later`].
    fn remembered(&mut self, _task: &Task) -> Remembered<'_> {
        Remembered::Nothing
    }

    /// Keeps what was found of a thread that has ended, or has lived for a minute more: in the place of what was found
    /// of it before. False where there is no room for it now.
    fn keep(&mut self, _task: &Task, _found: &ThreadFinding) -> bool {
        true
    }

    /// A thread behaves unlike its program did before.
    fn is_unlike(&mut self, _task: &Task) {}

    /// Where to note what the policy sees and decides.
    fn recording(&mut self) -> Option<&mut Encoder> {
        None
    }
}

/// Where actions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// Its hints share out what is busy: an idle CPU of a faster type is better all the same.
    Policy,
    /// The user's rules, whose hints mean what they say.
    Rules,
    /// What saves energy; its hints mean what they say, too: an idle fast core is left idle.
    Saving,
    /// Goals of programs; their hints mean what they say, too: a core type that would be filled before it is too slow.
    Goals,
}

/// The session of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// That one.
    To(SessionId),
    /// None.
    ToNone,
    /// It has not been looked up yet: it stays where it is.
    Unknown,
}

/// What a task that is made by a thread of a session belongs to from the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionHeirs {
    /// To none.
    #[default]
    None,
    /// To the session, if it is a thread of the same process.
    Threads,
    /// To the session, also if it is another process.
    Children,
}

/// What the threads of a session get together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allotment {
    /// In CPUs of the fastest core type; `None`: what they get by their weights, as all others do.
    pub fast_cores: Option<f64>,
    /// Beyond that they share like others; else they are held.
    pub gets_more: bool,
    /// What they make.
    pub heirs: SessionHeirs,
}

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out.
    Applied,
    /// It was dropped: the task has ended, is not where the policy saw it, or may not use all CPUs that a hint is to.
    Stale,
    /// It was refused: the task's affinity forbids it, say.
    Refused,
}

/// What became of all actions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// See [`Outcome::Applied`].
    pub applied: u64,
    /// See [`Outcome::Stale`].
    pub stale: u64,
    /// See [`Outcome::Refused`].
    pub refused: u64,
}

impl Applied {
    /// One more.
    pub fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Applied => self.applied += 1,
            Outcome::Stale => self.stale += 1,
            Outcome::Refused => self.refused += 1,
        }
    }
}
