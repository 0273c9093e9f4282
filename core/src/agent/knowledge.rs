// SPDX-License-Identifier: GPL-2.0-or-later
//! Tells the policy, and what classifies interference, what earlier runs of a new thread's program were like, and has
//! what they find of a thread kept ([`crate::knowledge`]).

use std::time::Duration;

use super::backend::Backend;
use super::interference::AgentInterference;
use crate::cache::CacheLedger;
use crate::energy::ledger::EnergyLedger;
use crate::knowledge::{Past, Remembered, ThreadCurve, ThreadFinding, ThreadProfile, logarithms};
use crate::policy::Policy;
use crate::table::{Comm, Task, TaskId};

/// An answer is there after so long, mostly: a policy that looks less often looks once more then.
const ANSWERED: Duration = Duration::from_millis(10);

/// What is found of a thread that lives on is kept so often, ns: what a sudden end loses at the most.
const KEEP_NS: u64 = 60_000_000_000;

#[derive(Clone, Debug)]
struct Acquaintance {
    task: Task,
    /// As it was called when its program was asked for.
    comm: Comm,
    /// It is not known yet which program it runs, and that was asked for.
    asks: bool,
    asked: bool,
    /// When what was found of it was kept last, ns, and whether there was anything.
    kept_ns: u64,
    kept: bool,
    past: Past,
    /// What the policy was told.
    told: Option<Box<ThreadProfile>>,
}

/// What finds out about threads beside the policy.
pub(super) struct Finders<'a> {
    pub(super) interference: &'a mut AgentInterference,
    pub(super) caches: &'a CacheLedger,
    pub(super) energy: &'a mut EnergyLedger,
}

/// See the module; the threads that are known, in ascending order of ids.
#[derive(Debug, Default)]
pub(super) struct AgentKnowledge {
    threads: Vec<Acquaintance>,
    /// Kept for its memory.
    before: Vec<Acquaintance>,
    /// The last look was the first to ask for some program, and came in its turn.
    asked: bool,
}

impl AgentKnowledge {
    /// Looks which threads are new and which are gone. To be called before the policy sees `tasks`, which forgets
    /// those that are gone.
    pub(super) fn look<B: Backend>(
        &mut self,
        backend: &mut B,
        policy: &mut dyn Policy,
        finders: &mut Finders<'_>,
        tasks: &[Task],
    ) {
        if !backend.remembers() || !policy.remembers() {
            return;
        }
        let now_ns = backend.now();
        std::mem::swap(&mut self.threads, &mut self.before);
        self.threads.clear();
        let mut before = self.before.drain(..).peekable();
        let mut room = true;
        let mut asked = false;
        for task in tasks.iter().filter(|task| !task.kthread) {
            while let Some(mut gone) = before.next_if(|of| of.task.id < task.id) {
                _ = gone.keep(backend, policy, finders, true);
            }
            let known = before.next_if(|of| of.task.id == task.id);
            let mut known = known.unwrap_or_else(|| Acquaintance::new(task, now_ns));
            known.task = *task;
            if known.comm != task.comm {
                // It may run another program now; but then it is the first of its process, whichever it was before.
                known.asks |= task.tid == task.tgid;
                known.comm = task.comm;
            }
            if known.asks {
                known.ask(backend, policy, finders);
                asked |= known.asks && !std::mem::replace(&mut known.asked, true);
            }
            // Where one finds no room, it and those after it are tried again at the next look.
            if room && now_ns.saturating_sub(known.kept_ns) >= KEEP_NS {
                room = known.keep(backend, policy, finders, false);
                if room {
                    known.kept_ns = now_ns;
                }
            }
            let past = policy.past(task.id);
            if past == Past::Wrong && known.past != past {
                backend.is_unlike(task);
                finders.interference.forget_the_past(task.id);
                finders.energy.remember(task, &Default::default());
            }
            known.past = past;
            self.threads.push(known);
        }
        before.for_each(|mut gone| _ = gone.keep(backend, policy, finders, true));
        // One look more for each that comes in its turn, at the most.
        self.asked = asked && !self.asked && policy.decides_when_told();
    }

    /// Time from a look on until what it asked for is there; `None` if it did not, or not for the first time.
    pub(super) fn due_in(&self) -> Option<Duration> {
        self.asked.then_some(ANSWERED)
    }

    /// What became of what was known of a thread's program.
    pub(super) fn past(&self, task: TaskId) -> Past {
        let found = self.threads.binary_search_by_key(&task, |of| of.task.id);
        found.map_or(Past::Unknown, |at| self.threads[at].past)
    }

    /// The miss-rate curve that a thread on a core type is expected to have, unless it is unlike its past.
    pub(super) fn curve(&self, task: TaskId, core_type: usize) -> Option<&ThreadCurve> {
        let found = self.threads.binary_search_by_key(&task, |of| of.task.id);
        let known = found.ok().map(|at| &self.threads[at])?;
        let told = known.told.as_ref().filter(|_| known.past != Past::Wrong)?;
        told.curves.get(core_type)
    }

    /// Another policy knows nothing of the threads.
    pub(super) fn ask_again(&mut self) {
        for known in &mut self.threads {
            (known.asks, known.told) = (true, None);
        }
    }

    /// Has all that is found kept: the end may be near.
    pub(super) fn keep_all<B: Backend>(
        &mut self,
        backend: &mut B,
        policy: &dyn Policy,
        finders: &mut Finders<'_>,
    ) {
        for known in &mut self.threads {
            _ = known.keep(backend, policy, finders, false);
        }
    }
}

impl Acquaintance {
    fn new(task: &Task, now_ns: u64) -> Self {
        Self {
            task: *task,
            comm: task.comm,
            asks: true,
            asked: false,
            kept_ns: now_ns,
            kept: false,
            past: Past::Unknown,
            told: None,
        }
    }

    fn ask<B: Backend>(
        &mut self,
        backend: &mut B,
        policy: &mut dyn Policy,
        finders: &mut Finders<'_>,
    ) {
        let known = match backend.remembered(&self.task) {
            Remembered::Later => return,
            Remembered::Nothing => None,
            Remembered::Known(known) => Some(*known),
        };
        self.asks = false;
        if self.told.as_deref() == known.as_ref() {
            // It has but another name: what was found wrong of its program is so still.
            return;
        }
        self.told = known.map(Box::new);
        let known = known.unwrap_or_default();
        finders
            .interference
            .remember(self.task.id, &known.undisturbed);
        finders.energy.remember(&self.task, &known.watts);
        // No policy goes by curves, watts or what is undisturbed: a program of which nothing else is known is unknown to it.
        let told = ThreadProfile {
            curves: Default::default(),
            watts: Default::default(),
            undisturbed: Default::default(),
            ..known
        };
        policy.remember(self.task.id, &told);
        if let Some(recording) = backend.recording() {
            recording.remembered(&self.task, &told);
            recording.undisturbed(&self.task, &known.undisturbed);
        }
    }

    /// Has what is found of it kept; `last` if it has ended. False where there was no room for it.
    fn keep<B: Backend>(
        &mut self,
        backend: &mut B,
        policy: &dyn Policy,
        finders: &mut Finders<'_>,
        last: bool,
    ) -> bool {
        let Finders {
            interference,
            caches,
            energy,
        } = finders;
        let losses = interference.losses_mut(self.task.id);
        let mut found = ThreadFinding {
            last,
            losses: losses.map(|of| *of).unwrap_or_default(),
            ..ThreadFinding::default()
        };
        policy.find(self.task.id, &mut found.profile);
        for (core_type, curve) in found.profile.curves.iter_mut().enumerate() {
            if let Some(measured) = caches.curve(self.task.id, core_type) {
                *curve = logarithms(&measured.points());
            }
        }
        found.profile.undisturbed = interference.undisturbed(self.task.id);
        found.profile.watts = energy.found(self.task.id);
        let lost = found.losses.iter().any(Option::is_some);
        if found.profile.is_empty() && !lost && !(self.kept && last) {
            return true;
        }
        found.unlike = policy.past(self.task.id) == Past::Wrong;
        let taken = backend.keep(&self.task, &found);
        if taken {
            self.kept = true;
            interference.losses_mut(self.task.id).map(std::mem::take);
        }
        taken
    }
}

#[cfg(test)]
mod tests;
