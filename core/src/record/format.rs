// SPDX-License-Identifier: GPL-2.0-or-later
//! What stands in a recording: `docs/record.md` has it byte for byte.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::goals::{GoalState, Miss};
use crate::knowledge::{ThreadProfile, UndisturbedProfile};
use crate::pmu::sample::{SampleWatts, SfEstimate};
use crate::policy::{Action, Objective, Reason};
use crate::slowdown::Thresholds;
use crate::table::{Task, TaskId, TaskState};
use crate::text::plain;
use crate::topology::{MAX_CORE_TYPES, Topology};

/// What the first member of every recording begins with; the number grows when records change.
pub const MAGIC: &[u8] = b"scx_hetero recording 7\n";

/// Tasks, and what is decided for them, that are read at the most: four times what the scheduler's table
/// holds.
pub(super) const MOST: usize = 4 * crate::limits::MAX_SLOTS as usize;

/// One after another they tell what the policy saw and what it decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The scheduler begins, or begins anew as CPUs came or went.
    Begin(Box<Begin>),
    /// Another policy decides from now on.
    Policy(Chosen),
    /// `fairness` changes, of the policy in force.
    Fairness(u8),
    /// An event gets the next number, from 0, by which samples name it.
    Event(String),
    /// A sample that the policy was shown.
    Sample(SampleRecord),
    /// The task table was read.
    Look(Look),
    /// What the policy decided after the look before this.
    Decision(#[serde(deserialize_with = "few")] Vec<Decided>),
    /// Of the actions decided last, in order, which were carried out; the next ones come in
    /// further such records.
    CarriedOut(#[serde(deserialize_with = "few")] Vec<bool>),
    /// Joules that the processor packages have taken since the recording began.
    Energy(f64),
    /// The scheduler ended, and closed the recording.
    End,
    /// A session gets this name; told before it is first among [`Record::Goals`].
    Session(SessionName),
    /// How fast programs with goals are, and what they get.
    Goals(GoalsLook),
    /// Whose joules the processors have taken.
    Joules(JoulesLook),
    /// The policy is told what earlier runs of a thread's program were like.
    Remembered(Box<RememberedRecord>),
    /// Sizes of last-level caches, bytes, where they are known: [`Topology::llc_bytes`] of the beginning before.
    Caches(#[serde(deserialize_with = "few")] Vec<u64>),
    /// What earlier runs of a thread's program did undisturbed, where anything is known of that.
    Undisturbed(Box<UndisturbedRecord>),
}

/// The scheduler begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// Version of scx_hetero.
    pub version: String,
    /// When, in UTC, such as `2026-11-21T13:45:00Z`.
    pub date: String,
    /// The kernel's release, or what stands in for one.
    pub kernel: String,
    /// The CPU's model by its maker.
    pub cpu: String,
    /// The machine, with capacities as calibrated.
    pub topology: Topology,
    /// Which policy decides.
    pub chosen: Chosen,
    /// It goes on with what it knew before.
    pub kept: bool,
}

/// A policy and what was said to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// Its name, as `--policy` takes it.
    pub policy: String,
    /// `--swap-ms`, in ns.
    pub swap_ns: u64,
    /// `--fairness`.
    pub fairness: u8,
    /// `--oversubscribe`.
    pub oversubscribe: f64,
    /// `--objective`.
    pub objective: Objective,
    /// When contention is low, as calibrated.
    pub limits: Option<Thresholds>,
    /// Parts left out, for tests.
    pub without: Vec<String>,
}

/// A sample, but for what follows from its counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleRecord {
    /// Slot of the task.
    pub slot: u32,
    /// Generation of that slot.
    pub generation: u32,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Core type, index.
    pub core_type: usize,
    /// When it ended, ns from the end of the sample before; the first, of the monotonic clock.
    pub at: i64,
    /// Run time, ns.
    pub run_ns: u64,
    /// The task has ended.
    pub last: bool,
    /// Number of the event, and count.
    #[serde(deserialize_with = "few")]
    pub counts: Vec<(u8, Number)>,
    /// SF by a model.
    pub sf: Option<SfEstimate>,
    /// EF by a model.
    pub ef: Option<f64>,
    /// As in [`crate::pmu::sample::Sample`].
    pub watts: Option<SampleWatts>,
}

/// A count: most are whole, and shorter so.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Number {
    /// A whole one.
    Whole(u64),
    /// Any other, as where sets of events take turns.
    Real(f64),
}

/// How the task table differs from that of the look before; the first is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// ns since the scheduler began; [`crate::policy::Snapshot::now_ns`].
    pub now_ns: u64,
    /// The policy decides now; else only the recording looks.
    pub decides: bool,
    /// Tasks that are gone.
    #[serde(deserialize_with = "few")]
    pub gone: Vec<TaskId>,
    /// Tasks that are new, or changed in what seldom does.
    #[serde(deserialize_with = "few")]
    pub whole: Vec<Task>,
    /// The others that changed.
    #[serde(deserialize_with = "few")]
    pub changed: Vec<Changed>,
}

/// What changes in a task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Its slot.
    pub slot: u32,
    /// As in [`Task`].
    pub state: TaskState,
    /// As in [`Task`].
    pub cpu: i32,
    /// As in [`Task`].
    pub core_type: usize,
    /// As in [`Task`].
    pub hint: Option<usize>,
    /// As in [`Task`].
    pub spinning: bool,
    /// As in [`Task`].
    pub weight: u32,
    /// As in [`Task`].
    pub nr_runnable: u32,
    /// What it ran, by core type, ns.
    pub ran_ns: [u64; MAX_CORE_TYPES],
    /// What its `amp_progress` grew by, ns.
    pub progress: i64,
    /// As in [`Task`].
    pub sf: Option<f64>,
}

/// An action, and why: of a swap the first thread's reason and the second's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// What is to be done.
    pub action: Action,
    /// Why.
    pub reasons: [Option<Reason>; 2],
}

/// What a session with a goal is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionName {
    /// Its number.
    pub id: u64,
    /// The process that it is about.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// What is known of the program that a thread runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RememberedRecord {
    /// Slot of the task.
    pub slot: u32,
    /// Generation of that slot.
    pub generation: u32,
    /// This.
    pub known: ThreadProfile,
}

/// What earlier runs of a thread's program did undisturbed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UndisturbedRecord {
    /// Slot of the task.
    pub slot: u32,
    /// Generation of that slot.
    pub generation: u32,
    /// This.
    pub known: UndisturbedProfile,
}

/// Programs with goals at one look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GoalsLook {
    /// ns since the scheduler began.
    pub now_ns: u64,
    /// At most [`super::GOALS`] of them.
    #[serde(deserialize_with = "few")]
    pub goals: Vec<GoalRecord>,
}

/// Joules since the record before, by what took them ([`crate::energy::ledger`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JoulesLook {
    /// ns since the scheduler began.
    pub now_ns: u64,
    /// ns since the record before, or since the scheduler began.
    pub passed_ns: u64,
    /// Of threads, by core type.
    pub threads: [f32; MAX_CORE_TYPES],
    /// Of threads too young to be told apart.
    pub untold: f32,
    /// Of idle CPUs.
    pub idle: f32,
    /// Of what a package has beside its cores.
    pub uncore: f32,
    /// Process ids and their joules, ascending: at most [`super::PROGRAMS`], those that took most.
    #[serde(deserialize_with = "few")]
    pub programs: Vec<(u32, f32)>,
}

/// One of them; of what is not known there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GoalRecord {
    /// Its session's number.
    pub session: u64,
    /// Beats/s that it is to do.
    pub target: f32,
    /// Beats/s in the last second or so.
    pub rate: Option<f32>,
    /// Fast cores that its target takes.
    pub demand: Option<f32>,
    /// Fast cores that it is given.
    pub given: f32,
    /// Why its target is missed.
    pub miss: Option<Miss>,
}

impl From<&GoalState> for GoalRecord {
    fn from(state: &GoalState) -> Self {
        Self {
            session: state.session.0,
            target: state.target as f32,
            rate: state.rates.windowed.map(|rate| rate as f32),
            demand: state.model.map(|_| state.demand as f32),
            given: state.fast_cores as f32,
            miss: state.miss,
        }
    }
}

/// A list of at most [`MOST`], refused before anything is put aside for it.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct Few<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            write!(f, "a list of at most {MOST}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            if parts.size_hint().is_some_and(|length| length > MOST) {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            while let Some(part) = parts.next_element()? {
                list.push(part);
            }
            Ok(list)
        }
    }
    from.deserialize_seq(Few(PhantomData))
}

impl Begin {
    /// With all names such that they can be shown.
    pub(super) fn plain(mut self) -> Self {
        let texts = [
            &mut self.version,
            &mut self.date,
            &mut self.kernel,
            &mut self.cpu,
        ];
        let kinds = self.topology.types.iter_mut().map(|kind| &mut kind.name);
        for text in texts.into_iter().chain(kinds) {
            *text = plain(text).into_owned();
        }
        self
    }
}

impl Decided {
    /// The threads that it moves: from which core type, to which, and why.
    pub fn moves(&self) -> impl Iterator<Item = (TaskId, usize, usize, Option<Reason>)> + '_ {
        let [first, second] = self.reasons;
        let moves = match &self.action {
            Action::Hint(seen, Some(to)) => [Some((seen.task, seen.on, *to, first)), None],
            Action::Swap([(one, to), (other, back)]) => [
                Some((one.task, one.on, *to, first)),
                Some((other.task, other.on, *back, second)),
            ],
            Action::Hint(_, None)
            | Action::Slowdown(..)
            | Action::Park(..)
            | Action::Weight(..)
            | Action::Join(..) => [None, None],
        };
        moves.into_iter().flatten()
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        let whole = value as u64;
        if (whole as f64).to_bits() == value.to_bits() {
            Self::Whole(whole)
        } else {
            Self::Real(value)
        }
    }
}

impl From<Number> for f64 {
    fn from(number: Number) -> Self {
        match number {
            Number::Whole(whole) => whole as f64,
            Number::Real(real) => real,
        }
    }
}

impl Changed {
    /// How a task came from `old` to `new`; `None` if that takes the whole.
    pub(super) fn between(old: &Task, new: &Task) -> Option<Self> {
        let mut ran_ns = [0; MAX_CORE_TYPES];
        for (ran, (old, new)) in ran_ns.iter_mut().zip(old.run_ns.iter().zip(new.run_ns)) {
            *ran = new.wrapping_sub(*old);
        }
        let changed = Self {
            slot: new.id.slot,
            state: new.state,
            cpu: new.cpu,
            core_type: new.core_type,
            hint: new.hint,
            spinning: new.spinning,
            weight: new.weight,
            nr_runnable: new.nr_runnable,
            ran_ns,
            progress: new.amp_progress.wrapping_sub(old.amp_progress) as i64,
            sf: new.sf,
        };
        let mut whole = *old;
        changed.apply(&mut whole);
        (whole == *new).then_some(changed)
    }

    /// Changes a task so.
    pub(super) fn apply(&self, task: &mut Task) {
        task.state = self.state;
        task.cpu = self.cpu;
        task.core_type = self.core_type;
        task.hint = self.hint;
        task.spinning = self.spinning;
        task.weight = self.weight;
        task.nr_runnable = self.nr_runnable;
        for (ns, ran) in task.run_ns.iter_mut().zip(self.ran_ns) {
            *ns = ns.wrapping_add(ran);
        }
        task.amp_progress = task.amp_progress.wrapping_add(self.progress as u64);
        task.sf = self.sf;
    }
}
