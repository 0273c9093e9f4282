// SPDX-License-Identifier: GPL-2.0-only
//! The agent's loop: samples to the policy, and at its interval a look at the tasks.
//!
//! It takes no time and is never late. The live one runs beside the threads it schedules.

use std::time::Duration;

use super::event::Event;
use super::kernel::{BEGIN_NS, Kernel};
use super::mechanism::hetero::Hetero;
use crate::pmu::module::Sample;
use crate::policy::{Action, Policy, Snapshot};
use crate::table::Task;

/// A policy, and what it is told and asked.
pub(super) struct Agent {
    policy: Box<dyn Policy>,
    sample_ns: Option<u64>,
    inbox: Vec<Sample>,
    tasks: Vec<Task>,
    actions: Vec<Action>,
    /// Samples that it was shown.
    pub(super) samples: u64,
}

impl Agent {
    /// With samples of so much run time, if the policy wants any.
    pub(super) fn new(policy: Box<dyn Policy>, sample: Duration) -> Self {
        let sample_ns = policy.module().map(|_| sample.as_nanos() as u64);
        Self {
            policy,
            sample_ns,
            inbox: Vec::new(),
            tasks: Vec::new(),
            actions: Vec::new(),
            samples: 0,
        }
    }

    /// What a sample is made of, ns of run time; `None` if nobody asks for any.
    pub(super) fn sample_ns(&self) -> Option<u64> {
        self.sample_ns
    }

    /// When it looks for the first time, ns; `None` is never.
    pub(super) fn first_look(&self) -> Option<u64> {
        self.policy
            .interval()
            .map(|interval| interval.as_nanos() as u64)
    }

    /// Takes note of a sample.
    pub(super) fn note(&mut self, sample: Sample) {
        self.inbox.push(sample);
    }
}

impl Hetero {
    /// The agent's loop comes round.
    pub(super) fn look(&mut self, k: &mut Kernel) {
        let Some(mut agent) = self.agent.take() else {
            return;
        };
        agent.samples += agent.inbox.len() as u64;
        for sample in agent.inbox.drain(..) {
            agent.policy.observe(&sample);
        }
        agent.tasks.clear();
        agent.tasks.extend(self.tasks());
        let snapshot = Snapshot {
            now_ns: k.now - BEGIN_NS,
            topology: &k.machine.topology,
            tasks: &agent.tasks,
        };
        agent.policy.decide(&snapshot, &mut agent.actions);
        let actions = std::mem::take(&mut agent.actions);
        if let Some(interval) = agent.policy.interval() {
            k.events
                .push(k.now + interval.as_nanos() as u64, Event::Agent);
        }
        self.agent = Some(agent);
        self.apply_all(k, &actions);
        if let Some(agent) = &mut self.agent {
            agent.actions = actions;
            agent.actions.clear();
        }
    }
}
