// SPDX-License-Identifier: GPL-2.0-only
//! A policy that is run on what was recorded, at the moments at which it would have looked.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::mechanism::Mechanism;
use crate::pmu::module::Sample;
use crate::policy::{Action, Insight, Name, Policy, Settings, Snapshot};
use crate::record::format::{Begin, Chosen, Decided};
use crate::record::reasons;
use crate::table::Task;
use crate::topology::Topology;

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
}

/// See the module.
pub struct Player {
    changes: Changes,
    name: Name,
    policy: Box<dyn Policy>,
    /// It decides when the recorded one did, for they look equally often.
    in_step: bool,
    due_ns: Option<u64>,
    actions: Vec<Action>,
    /// What it decided last.
    decided: Vec<Decided>,
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
            name,
            policy,
            in_step: true,
            due_ns: None,
            actions: Vec::new(),
            decided: Vec::new(),
        };
        player.keep_step(&begin.chosen)?;
        Ok(player)
    }

    /// Who decides.
    pub fn name(&self) -> Name {
        self.name
    }

    /// The scheduler begins anew.
    ///
    /// # Errors
    /// As of [`Player::new`].
    pub fn begin(&mut self, begin: &Begin) -> Result<()> {
        if !begin.kept {
            (self.name, self.policy) = self.changes.apply(&begin.chosen)?;
            self.due_ns = None;
        }
        self.keep_step(&begin.chosen)
    }

    /// The recording goes on with another policy, and so does this unless it is another one anyway.
    ///
    /// # Errors
    /// As of [`Player::new`].
    pub fn switch(&mut self, chosen: &Chosen) -> Result<()> {
        if self.changes.policy.is_none() {
            (self.name, self.policy) = self.changes.apply(chosen)?;
            self.due_ns = None;
        }
        self.keep_step(chosen)
    }

    fn keep_step(&mut self, chosen: &Chosen) -> Result<()> {
        let (_, recorded) = Changes::default().apply(chosen)?;
        self.in_step = self.policy.interval() == recorded.interval();
        Ok(())
    }

    /// Likewise for its fairness.
    pub fn fairness(&mut self, percent: u8) {
        if self.changes.policy.is_none() && self.changes.fairness.is_none() {
            self.policy.set_fairness(percent);
        }
    }

    /// Shows it a sample.
    pub fn observe(&mut self, sample: &Sample) {
        self.policy.observe(sample);
    }

    /// Shows it the task table; `Some` if it decides now. `decides` says that the recorded one did.
    pub fn look(&mut self, snapshot: &Snapshot, decides: bool) -> Option<&[Decided]> {
        let interval = self.policy.due_in(snapshot)?.as_nanos() as u64;
        let due_ns = *self.due_ns.get_or_insert(snapshot.now_ns);
        let decides = if self.in_step {
            decides
        } else {
            snapshot.now_ns >= due_ns
        };
        if !decides {
            return None;
        }
        self.due_ns = Some(snapshot.now_ns + interval);
        self.actions.clear();
        self.policy.decide(snapshot, &mut self.actions);
        let policy = &*self.policy;
        self.decided.clear();
        self.decided
            .extend(self.actions.iter().map(|action| Decided {
                action: action.clone(),
                reasons: reasons(action, |task| policy.reason(task)),
            }));
        Some(&self.decided)
    }

    /// What it knows of a thread.
    pub fn insight(&self, task: &Task, topology: &Topology) -> Insight {
        self.policy.insight(task, topology)
    }
}
