// SPDX-License-Identifier: GPL-2.0-only
//! A policy that is run on what was recorded, at the moments at which it would have looked.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::agent::{Agent, Author, Backend, Outcome};
use crate::mechanism::Mechanism;
use crate::pmu::sample::Sample;
use crate::policy::{Action, Insight, Name, Objective, Policy, Settings};
use crate::record::format::{Begin, Chosen, Decided};
use crate::record::reasons;
use crate::table::{Task, TaskId};
use hetero_core::interference::Interference;
use hetero_core::knowledge::{Remembered, ThreadFinding, ThreadProfile, UndisturbedProfile};

/// What is to be other than it was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Changes {
    /// Another policy, from the beginning to the end.
    pub policy: Option<Name>,
    /// Another `--swap-ms`.
    pub swap_interval: Option<Duration>,
    /// Another `--fairness`.
    pub fairness: Option<u8>,
    /// Another `--oversubscribe`.
    pub oversubscribe: Option<f64>,
    /// Another `--objective`.
    pub objective: Option<Objective>,
}

/// See the module.
pub struct Player {
    changes: Changes,
    agent: Agent,
    /// It decides when the recorded one did, for they look equally often.
    in_step: bool,
    due_ns: Option<u64>,
    actions: Vec<Action>,
    /// What it decided last.
    decided: Vec<Decided>,
    /// What it found of threads, if that is to be kept.
    found: Option<Vec<(Task, ThreadFinding)>>,
}

/// A moment of the recording. What is decided changes nothing.
struct Moment<'r> {
    now_ns: u64,
    tasks: &'r [Task],
    /// One that came then.
    sample: Option<&'r Sample>,
    /// What is decided.
    actions: &'r mut Vec<Action>,
    /// What is found.
    found: Option<&'r mut Vec<(Task, ThreadFinding)>>,
}

impl Backend for Moment<'_> {
    type Error = Infallible;

    fn now(&self) -> u64 {
        self.now_ns
    }

    fn samples(&mut self, samples: &mut Vec<Sample>) -> Result<(), Infallible> {
        samples.extend(self.sample.take().cloned());
        Ok(())
    }

    fn snapshot(&mut self, tasks: &mut Vec<Task>) {
        tasks.clear();
        tasks.extend_from_slice(self.tasks);
    }

    fn apply(
        &mut self,
        actions: &[Action],
        _: Author,
        _: &mut Vec<Outcome>,
    ) -> Result<(), Infallible> {
        self.actions.extend_from_slice(actions);
        Ok(())
    }

    fn remembers(&self) -> bool {
        self.found.is_some()
    }

    /// The recording tells that itself, when it was told.
    fn remembered(&mut self, _: &Task) -> Remembered<'_> {
        Remembered::Later
    }

    fn keep(&mut self, task: &Task, found: &ThreadFinding) -> bool {
        if let Some(all) = &mut self.found {
            all.push((*task, *found));
        }
        true
    }
}

impl Changes {
    fn apply(&self, chosen: &Chosen) -> Result<(Name, Box<dyn Policy>)> {
        let recorded = named(chosen)?;
        let name = self.policy.unwrap_or(recorded);
        let part = |name: &String| Mechanism::from_str(name, false).ok();
        let without: Vec<Mechanism> = chosen.without.iter().filter_map(part).collect();
        let policy = name.build(Settings {
            swap_interval: self
                .swap_interval
                .unwrap_or(Duration::from_nanos(chosen.swap_ns)),
            fairness: self.fairness.unwrap_or(chosen.fairness),
            oversubscribe: self.oversubscribe.unwrap_or(chosen.oversubscribe),
            objective: self.objective.unwrap_or(chosen.objective),
            swap_rules: None,
            limits: chosen.limits,
            without: &without,
        });
        Ok((name, policy))
    }
}

fn named(chosen: &Chosen) -> Result<Name> {
    Name::from_str(&chosen.policy, false)
        .ok()
        .with_context(|| format!("this version has no policy '{}'", chosen.policy))
}

impl Player {
    /// Begins as the scheduler did, but for `changes`.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn new(begin: &Begin, changes: Changes) -> Result<Self> {
        let (name, policy) = changes.apply(&begin.chosen)?;
        let mut player = Self {
            changes,
            agent: Agent::new(begin.topology.clone(), name, policy),
            in_step: true,
            due_ns: None,
            actions: Vec::new(),
            decided: Vec::new(),
            found: None,
        };
        player.keep_step(&begin.chosen)?;
        player.agent.interference.set_limits(begin.chosen.limits);
        Ok(player)
    }

    /// Which policy decides.
    pub fn name(&self) -> Name {
        self.agent.name()
    }

    /// The scheduler begins anew.
    ///
    /// # Errors
    /// As of [`Player::new`].
    pub fn begin(&mut self, begin: &Begin) -> Result<()> {
        self.agent.topology = begin.topology.clone();
        if !begin.kept {
            self.choose(&begin.chosen)?;
        }
        self.keep_step(&begin.chosen)
    }

    /// The recording goes on with another policy, and so does this unless it is another one anyway.
    ///
    /// # Errors
    /// As of [`Player::new`].
    pub fn switch(&mut self, chosen: &Chosen) -> Result<()> {
        if self.changes.policy.is_none() {
            self.choose(chosen)?;
        }
        self.keep_step(chosen)
    }

    fn choose(&mut self, chosen: &Chosen) -> Result<()> {
        let (name, policy) = self.changes.apply(chosen)?;
        self.agent.replace_policy(name, policy);
        self.due_ns = None;
        Ok(())
    }

    fn keep_step(&mut self, chosen: &Chosen) -> Result<()> {
        let (_, recorded) = Changes::default().apply(chosen)?;
        self.in_step = self.agent.policy().interval() == recorded.interval();
        Ok(())
    }

    /// Likewise for its fairness.
    pub fn fairness(&mut self, percent: u8) {
        if self.changes.policy.is_none() && self.changes.fairness.is_none() {
            self.agent.set_fairness(percent);
        }
    }

    /// Shows it a sample.
    pub fn observe(&mut self, sample: &Sample) {
        let Ok(()) = self.agent.take_samples(&mut Moment {
            now_ns: sample.at_ns,
            tasks: &[],
            sample: Some(sample),
            actions: &mut self.actions,
            found: None,
        });
    }

    /// Tells it what earlier runs of a thread's program were like.
    pub fn remember(&mut self, task: TaskId, known: &ThreadProfile) {
        self.agent.remember(task, known);
    }

    /// Tells it what they did undisturbed.
    pub fn remember_undisturbed(&mut self, task: TaskId, known: &UndisturbedProfile) {
        self.agent.remember_undisturbed(task, known);
    }

    /// Shows it the task table; `Some` if it decides now. `decides` says that the recorded one did.
    pub fn look(&mut self, now_ns: u64, tasks: &[Task], decides: bool) -> Option<&[Decided]> {
        self.actions.clear();
        let mut moment = Moment {
            now_ns,
            tasks,
            sample: None,
            actions: &mut self.actions,
            found: self.found.as_mut(),
        };
        let Ok(()) = self.agent.see(&mut moment);
        let interval = self.agent.due_in(now_ns)?.as_nanos() as u64;
        let due_ns = *self.due_ns.get_or_insert(now_ns);
        let decides = if self.in_step {
            decides
        } else {
            now_ns >= due_ns
        };
        if !decides {
            return None;
        }
        self.due_ns = Some(now_ns + interval);
        let Ok(()) = self.agent.act(&mut moment);
        let policy = self.agent.policy();
        self.decided.clear();
        self.decided
            .extend(self.actions.drain(..).map(|action| Decided {
                reasons: reasons(&action, |task| policy.reason(task)),
                action,
            }));
        Some(&self.decided)
    }

    /// Sizes of last-level caches, bytes.
    pub fn set_caches(&mut self, bytes: Vec<u64>) {
        self.agent.topology.llc_bytes = bytes;
    }

    /// Has what is found of threads kept from now on, for [`Self::findings`].
    pub fn keep_findings(&mut self) {
        self.found.get_or_insert_default();
    }

    /// What was found of threads that have ended, and each minute of others; with `all` of those that live, too.
    pub fn findings(&mut self, all: bool) -> Vec<(Task, ThreadFinding)> {
        if all {
            self.agent.keep_all(&mut Moment {
                now_ns: 0,
                tasks: &[],
                sample: None,
                actions: &mut self.actions,
                found: self.found.as_mut(),
            });
        }
        self.found.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What slows a thread down beside others.
    pub fn interference(&self, task: TaskId) -> Option<Interference> {
        self.agent.interference.of(task)
    }

    /// What it knows of a thread.
    pub fn insight(&self, task: &Task) -> Insight {
        self.agent.policy().insight(task, &self.agent.topology)
    }
}
