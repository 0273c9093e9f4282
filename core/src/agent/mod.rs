// SPDX-License-Identifier: GPL-2.0-or-later
//! The agent: shows a policy what tasks do, has it decide, and has that carried out.
//!
//! It knows no kernel, no file and no clock. All of these are behind a [`Backend`], of which there
//! are three: the BPF half in the kernel (`src/scheduler/`), the same compiled natively
//! (`src/sim/`), and a recording (`src/replay/`); `userland/` has a fourth, as an example. What drives it says when:
//!
//! ```text
//!              take_samples()           see()                     act()
//!  Backend ──────► samples ──► policy    snapshot() ──► tasks ──► policy ──► actions ──► apply()
//!                                          └─ rules, goals ─► apply()
//!              steer()
//!  Backend ──────► sessions ──► goals ──► allot()
//!              see()
//!  Backend ──────► programs' earlier runs ──► policy ──► what it found of threads ──► keep()
//!              measure()
//!  Backend ──────► sensors, tasks, samples ──► energy: joules of threads and programs
//!              take_samples(), look()
//!  Backend ──────► samples, tasks ──► caches: lines of threads, miss-rate curves
//!              advise()
//!  Backend ──────► tasks ──► advice to programs that ask
//! ```
//!
//! Nothing is allocated once the threads are known, and each was moved once.

mod advice;
mod backend;
pub mod counted;
pub mod disturbed;
mod goals;
mod interference;
mod knowledge;
mod moves;
mod pace;
mod ruled;
mod saving;
pub mod story;
#[cfg(test)]
mod tests;
pub mod work;

use std::mem::take;
use std::time::Duration;

pub use advice::{AdviceClient, AgentAdvice};
pub use backend::{Allotment, Applied, Author, Backend, Belongs, Outcome, SessionHeirs};
use goals::PlacedBy;
pub use goals::{AgentGoals, SessionBeats};
pub use interference::AgentInterference;
pub use moves::Moves;
pub use ruled::{Place, Ruled, Verdict, WEIGHT_ONE};
pub use saving::SAVING_LOOK;

use crate::cache::{CacheLedger, MissRateCurve};
use crate::energy::ledger::EnergyLedger;
use crate::energy::thrift::PlaceAim;
use crate::knowledge::{Past, ThreadCurve, ThreadProfile, ToldCurve, UndisturbedProfile};
use crate::placement;
use crate::pmu::sample::Sample;
use crate::policy::{Action, Insight, Knows, Name, Policy, Reason, Settings, Snapshot};
use crate::table::{Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};
use knowledge::{AgentKnowledge, Finders};
use saving::{Decider, EnergySaving};
use work::{Work, WorkLedger};

/// See the module.
pub struct Agent {
    /// The machine.
    pub topology: Topology,
    /// The process whose tasks no policy places: that which the agent runs in.
    pub own: Option<u32>,
    /// Energy is saved now: threads go where their work costs least, and the policy has its say only when there
    /// is no room for all of them.
    pub saves: bool,
    /// The package takes what it may: threads that gain least there for their watts leave fast cores, while there is
    /// room for all, and unless the policy promises them even shares.
    pub at_limit: bool,
    /// Which threads have the user's rules, and what these say.
    pub rules: Ruled,
    /// Sessions with goals, and what they get.
    pub goals: AgentGoals,
    /// What energy went where.
    pub energy: EnergyLedger,
    /// What slows threads down, and which processes do.
    pub interference: AgentInterference,
    /// What threads hold of last-level caches, and what that is worth to them.
    pub caches: CacheLedger,
    /// What programs that ask are told.
    pub advice: AgentAdvice,
    /// Which threads were moved of late, and why.
    pub moves: Moves,
    name: Name,
    policy: Box<dyn Policy>,
    saving: EnergySaving,
    ledger: WorkLedger,
    knowledge: AgentKnowledge,
    /// When the policy had its turn last, ns.
    asked_ns: Option<u64>,
    applied: Applied,
    /// What came last.
    samples: Vec<Sample>,
    tasks: Vec<Task>,
    /// When these were read, ns.
    looked_ns: u64,
    /// Kept for their memory.
    actions: Vec<Action>,
    outcomes: Vec<Outcome>,
}

impl Agent {
    /// With a policy, on a machine.
    pub fn new(topology: Topology, name: Name, policy: Box<dyn Policy>) -> Self {
        Self {
            topology,
            own: None,
            saves: false,
            at_limit: false,
            rules: Ruled::default(),
            goals: AgentGoals::default(),
            energy: EnergyLedger::default(),
            interference: AgentInterference::default(),
            caches: CacheLedger::default(),
            advice: AgentAdvice::default(),
            moves: Moves::default(),
            name,
            policy,
            saving: EnergySaving::default(),
            ledger: WorkLedger::default(),
            knowledge: AgentKnowledge::default(),
            asked_ns: None,
            applied: Applied::default(),
            samples: Vec::new(),
            tasks: Vec::new(),
            looked_ns: 0,
            actions: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    /// Name of the policy in force.
    pub fn name(&self) -> Name {
        self.name
    }

    /// The policy in force.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// The samples that were taken last.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The tasks as they were at the last look, in ascending order of ids.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The task table as it was read last, what is known of caches, and the machine that has them.
    pub fn tasks_and_caches(&mut self) -> (&[Task], &mut CacheLedger, &Topology) {
        (&self.tasks, &mut self.caches, &self.topology)
    }

    /// The work of all threads so far.
    pub fn work(&self) -> Work {
        self.ledger.work()
    }

    /// What became of what was known of the program that a thread runs.
    pub fn past(&self, task: TaskId) -> Past {
        self.knowledge.past(task)
    }

    /// The miss-rate curve of a thread on a core type, by what was measured of it and by earlier runs of its program.
    pub fn curve(&self, task: TaskId, core_type: usize) -> ToldCurve {
        let measured = self.caches.curve(task, core_type);
        let measured = measured.map(MissRateCurve::points).unwrap_or_default();
        ToldCurve::new(&measured, self.remembered_curve(task, core_type))
    }

    /// What earlier runs alone say of that; nothing of a thread that is unlike its past.
    pub fn remembered_curve(&self, task: TaskId, core_type: usize) -> Option<&ThreadCurve> {
        self.knowledge.curve(task, core_type)
    }

    /// Tells the policy what earlier runs of a thread's program were like.
    pub fn remember(&mut self, task: TaskId, known: &ThreadProfile) {
        self.policy.remember(task, known);
    }

    /// Takes note of what they did undisturbed.
    pub fn remember_undisturbed(&mut self, task: TaskId, known: &UndisturbedProfile) {
        self.interference.remember(task, known);
    }

    /// Has all that the policy has found of threads kept, as before the scheduler ends.
    pub fn keep_all<B: Backend>(&mut self, backend: &mut B) {
        let mut finders = Finders {
            interference: &mut self.interference,
            caches: &self.caches,
            energy: &mut self.energy,
        };
        self.knowledge
            .keep_all(backend, &*self.policy, &mut finders);
    }

    /// What became of all actions so far.
    pub fn applied(&self) -> Applied {
        self.applied
    }

    /// Shows the policy the samples that have come.
    ///
    /// # Errors
    /// The backend's.
    pub fn take_samples<B: Backend>(&mut self, backend: &mut B) -> Result<(), B::Error> {
        self.samples.clear();
        let taken = backend.samples(&mut self.samples);
        let places = self.aim().is_some();
        let goes_by_watts = self.name.knows(Knows::Energy);
        for sample in &mut self.samples {
            self.energy.observe(sample);
            self.caches.observe(sample, &self.topology);
            if sample.watts.is_none() && (goes_by_watts || backend.recording().is_some()) {
                let nr_types = self.topology.types.len();
                sample.watts = self.energy.sample_watts(sample.task, nr_types);
            }
            if let Some(recording) = backend.recording() {
                recording.sample(sample);
            }
            self.policy.observe(sample);
            self.interference.observe(sample, &self.topology);
            if places {
                self.saving.observe(sample);
            }
        }
        taken
    }

    /// Reads the task table.
    pub fn look<B: Backend>(&mut self, backend: &mut B) {
        self.looked_ns = backend.now();
        backend.snapshot(&mut self.tasks);
        let capacities = self.topology.types.iter().map(|kind| kind.capacity);
        self.ledger
            .update(self.looked_ns, &self.tasks, capacities, |task| {
                self.policy.insight(task, &self.topology)
            });
        self.caches.update(&self.tasks, &self.topology);
    }

    /// Reads the task table, unless that was done less than `age` ago: for what goes by looks where the policy makes
    /// few, or none.
    pub fn look_again<B: Backend>(&mut self, backend: &mut B, age: Duration) {
        if backend.now().saturating_sub(self.looked_ns) >= age.as_nanos() as u64 {
            self.look(backend);
        }
    }

    /// Reads the task table as the policy is to see it: the user's rules have had their say, and the
    /// agent's own threads are not there.
    ///
    /// # Errors
    /// The backend's.
    pub fn see<B: Backend>(&mut self, backend: &mut B) -> Result<(), B::Error> {
        self.look(backend);
        if let Some(own) = self.own {
            self.tasks.retain(|task| task.tgid != own);
        }
        // Of each thread it is told what it loses and where it goes, at the most: room for that is made where threads
        // come, and not when all of it is told at once for the first time.
        self.outcomes.clear();
        self.outcomes.reserve(2 * self.tasks.len());
        self.actions.reserve(2 * self.tasks.len());
        let Self {
            knowledge,
            interference,
            caches,
            energy,
            topology,
            policy,
            tasks,
            ..
        } = self;
        let mut finders = Finders {
            interference,
            caches,
            energy,
        };
        knowledge.look(backend, &mut **policy, &mut finders, tasks);
        caches.forget_ended();
        let watts = |task, core_type| energy.watts(task, core_type);
        interference.look(backend.now(), tasks, topology, watts);
        let mut actions = take(&mut self.actions);
        let now_ns = backend.now();
        let verdict = |task: &Task| backend.verdict(task);
        self.rules
            .apply(&mut self.tasks, now_ns, verdict, &mut actions);
        self.apply_and_keep(backend, actions, Author::Rules)?;
        if self.goals.is_idle() {
            return Ok(());
        }
        let mut actions = take(&mut self.actions);
        let speeds = |task: &Task| {
            let insight = self.policy.insight(task, &self.topology);
            speeds(&insight, &self.topology)
        };
        let by = match self.aim() {
            _ if self.saving.places() => PlacedBy::Others,
            Some(_) => PlacedBy::Parts,
            None => PlacedBy::Sessions,
        };
        let session_of = |task: &Task| (backend.session_of(task), backend.place_of(task.id));
        self.goals.place(
            &self.topology,
            by,
            &mut self.tasks,
            session_of,
            speeds,
            &mut actions,
        );
        self.goals
            .confine(backend, &self.topology, &self.tasks, speeds);
        self.apply_and_keep(backend, actions, Author::Goals)
    }

    /// Looks at the sessions with goals, and allots them what they need. To be called each
    /// [`AgentGoals::look`] while there are any, and when one has come.
    pub fn steer<B: Backend>(&mut self, backend: &mut B) {
        self.goals.steer(backend, &self.topology);
        let now_ns = backend.now();
        if let Some(recording) = backend.recording() {
            recording.goals(now_ns, self.goals.states());
        }
    }

    /// Has energy sensors read, if there are any and it is time, and finds out whose joules these are. To be
    /// called when samples have been taken.
    pub fn measure<B: Backend>(&mut self, backend: &mut B) {
        if let Some(reading) = backend.energy() {
            self.look(backend);
            let now_ns = backend.now();
            self.energy
                .update(now_ns, &reading, &self.tasks, &self.topology);
            if let Some(recording) = backend.recording() {
                recording.joules(now_ns, &self.energy);
            }
        }
    }

    /// [`Self::see`] for the recording alone.
    ///
    /// # Errors
    /// The backend's.
    pub fn see_to_record<B: Backend>(&mut self, backend: &mut B) -> Result<(), B::Error> {
        self.see(backend)?;
        let snapshot = self.snapshot(backend.now());
        if let Some(recording) = backend.recording() {
            recording.look(&snapshot, false);
        }
        Ok(())
    }

    /// Reads the task table, has the policy decide, and the backend do it.
    ///
    /// # Errors
    /// The backend's.
    pub fn decide<B: Backend>(&mut self, backend: &mut B) -> Result<(), B::Error> {
        self.see(backend)?;
        self.act(backend)
    }

    /// Has the policy decide on what was seen last, and the backend do it.
    ///
    /// # Errors
    /// The backend's.
    pub fn act<B: Backend>(&mut self, backend: &mut B) -> Result<(), B::Error> {
        let mut actions = take(&mut self.actions);
        let snapshot = Snapshot {
            now_ns: backend.now(),
            topology: &self.topology,
            tasks: &self.tasks,
        };
        let decider = match self.aim() {
            Some(aim) => {
                self.saving
                    .decide(&snapshot, aim, &self.energy, &self.goals, &mut actions)
            }
            None if self.saving.end(&self.tasks, &mut actions) => Decider::Saving(Author::Saving),
            None => Decider::Policy,
        };
        let has_turn = self.is_policys_turn(&snapshot);
        if has_turn {
            self.asked_ns = Some(snapshot.now_ns);
        }
        let decides = decider == Decider::Policy && has_turn;
        if let Some(recording) = backend.recording() {
            recording.look(&snapshot, decides);
        }
        if decides {
            self.policy.decide(&snapshot, &mut actions);
            if let Some(recording) = backend.recording() {
                recording.decided(&actions, &*self.policy);
            }
            self.rules.trade(&mut actions);
        } else if decider != Decider::Policy {
            self.policy.rest(&snapshot);
        }
        let by = match decider {
            Decider::Policy => Author::Policy,
            Decider::Saving(author) => author,
        };
        self.apply_and_keep(backend, actions, by)
    }

    /// By what threads are placed now, if the policy is not to do it.
    fn aim(&self) -> Option<PlaceAim> {
        match (self.saves, self.at_limit && !self.name.is_fair()) {
            (true, _) => Some(PlaceAim::Energy),
            (false, true) => Some(PlaceAim::AtLimit),
            (false, false) => None,
        }
    }

    /// The core type whose idle CPUs are filled first while energy is saved; `None`: the fastest.
    pub fn filled_first(&self) -> Option<usize> {
        let by_cost = || self.saving.first();
        let first = by_cost().or_else(|| placement::most_efficient(&self.topology));
        first.filter(|&first| self.saves_by_place() && first > 0)
    }

    /// Energy is saved, and threads are not too many for that: else the policy has them, as ever.
    fn saves_by_place(&self) -> bool {
        self.saves && !self.saving.is_crowded()
    }

    /// Whether a thread that wakes up takes its CPU back from one that is hinted to another core type.
    pub fn puts_hosts_first(&self) -> bool {
        !self.saves_by_place() && self.name.is_fair()
    }

    /// Time from now on until the next decision is due; `None` is never.
    pub fn due_in(&self, now_ns: u64) -> Option<Duration> {
        let others = self.others_due_in();
        let policy = self.policy.due_in(&self.snapshot(now_ns)).map(|every| {
            let asked_ns = self
                .asked_ns
                .filter(|_| others.is_some_and(|it| it < every));
            let since = asked_ns.map_or(0, |at| now_ns.saturating_sub(at));
            every.saturating_sub(Duration::from_nanos(since))
        });
        // In a crowd each thread is to have a turn between two looks.
        let may = || policy.is_some() && self.snapshot(now_ns).crowd() <= 1.0;
        let known = self.knowledge.due_in().filter(|_| may());
        policy.into_iter().chain(others).chain(known).min()
    }

    /// How often rules, goals, and what places cost are looked at.
    fn others_due_in(&self) -> Option<Duration> {
        let idle = self.rules.is_idle() && self.goals.is_idle();
        let rules = (!idle).then_some(ruled::LOOK);
        let places = self.aim().is_some() && self.energy.is_on();
        let saving = places.then_some(SAVING_LOOK);
        rules.into_iter().chain(saving).min()
    }

    /// Whether the policy is to decide, and this is no look between its turns for the others alone.
    fn is_policys_turn(&self, snapshot: &Snapshot) -> bool {
        let every = self.policy.due_in(snapshot).zip(self.others_due_in());
        let every = every.filter(|(policy, others)| others < policy);
        let since = |at| Duration::from_nanos(snapshot.now_ns.saturating_sub(at));
        let (Some((policy, _)), Some(at)) = (every, self.asked_ns) else {
            return true;
        };
        since(at) >= policy
    }

    /// Puts another policy in the place of the one in force, and changes nothing else.
    pub fn replace_policy(&mut self, name: Name, policy: Box<dyn Policy>) -> Box<dyn Policy> {
        self.name = name;
        self.asked_ns = None;
        std::mem::replace(&mut self.policy, policy)
    }

    /// Lets another policy decide from now on. What the one before wished for is taken back, and
    /// progress is charged by static capacities until the new one knows better.
    ///
    /// # Errors
    /// The backend's.
    pub fn set_policy<B: Backend>(
        &mut self,
        backend: &mut B,
        name: Name,
        settings: &Settings,
    ) -> Result<(), B::Error> {
        self.keep_all(backend);
        self.replace_policy(name, name.build(*settings));
        self.knowledge.ask_again();
        if let Some(recording) = backend.recording() {
            recording.policy(name, settings);
        }
        self.look(backend);
        let mut inverse = [1.0; MAX_CORE_TYPES];
        for (inverse, kind) in inverse.iter_mut().zip(&self.topology.types) {
            *inverse = kind.capacity.clamp(1, 1024) as f32 / 1024.0;
        }
        let mut actions = take(&mut self.actions);
        for task in self.tasks.iter().filter(|task| Some(task.tgid) != self.own) {
            if task.hint.is_some() {
                actions.push(Action::Hint(task.into(), None));
            }
            actions.push(Action::Slowdown(task.id, inverse));
        }
        self.apply_and_keep(backend, actions, Author::Policy)
    }

    /// Changes [`Settings::fairness`] from now on; false if that is nothing to the policy.
    pub fn set_fairness(&mut self, percent: u8) -> bool {
        self.policy.set_fairness(percent)
    }

    /// Forgets threads that were not there at the last look.
    pub fn forget_the_gone(&mut self) {
        self.moves.retain(&self.tasks);
        self.rules.retain(&self.tasks);
        self.goals.retain(&self.tasks);
        self.energy.forget_the_gone(&self.tasks);
        self.interference.forget_the_gone();
    }

    fn snapshot(&self, now_ns: u64) -> Snapshot<'_> {
        Snapshot {
            now_ns,
            topology: &self.topology,
            tasks: &self.tasks,
        }
    }

    /// Has actions carried out, takes note of what became of them, and keeps their memory.
    fn apply_and_keep<B: Backend>(
        &mut self,
        backend: &mut B,
        mut actions: Vec<Action>,
        by: Author,
    ) -> Result<(), B::Error> {
        self.outcomes.clear();
        let applied = backend.apply(&actions, by, &mut self.outcomes);
        if let Some(recording) = backend.recording()
            && !self.outcomes.is_empty()
        {
            let carried_out = self.outcomes.iter().map(|it| *it == Outcome::Applied);
            recording.carried_out(carried_out);
        }
        let now_ns = backend.now();
        for (action, outcome) in actions.iter().zip(&self.outcomes) {
            self.applied.note(*outcome);
            if *outcome == Outcome::Applied {
                let reason = |task| match by {
                    Author::Goals => self.goals.reason(task),
                    Author::Saving => Some(Reason::Cheapest),
                    Author::Policy | Author::Rules => self.policy.reason(task),
                };
                self.moves.note(now_ns, action, &reason, &self.tasks);
            }
        }
        actions.clear();
        self.actions = actions;
        applied
    }
}

/// How fast a thread is on each core type, relative to the fastest: measured, or by capacity.
fn speeds(insight: &Insight, topology: &Topology) -> [f64; MAX_CORE_TYPES] {
    let mut speeds = [1.0; MAX_CORE_TYPES];
    for ((speed, kind), factor) in speeds
        .iter_mut()
        .zip(&topology.types)
        .zip(insight.asymmetry)
    {
        *speed = match factor {
            Some(factor) if factor > 0.0 => 1.0 / factor,
            _ => f64::from(kind.capacity.clamp(1, 1024)) / 1024.0,
        };
    }
    speeds
}
