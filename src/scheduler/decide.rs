// SPDX-License-Identifier: GPL-2.0-only
//! Data goes one way round: what the policy decides, and its way to the BPF half.

use anyhow::{Context, Result, bail};
use libbpf_rs::ProgramInput;
use log::debug;

use super::Scheduler;
use super::encode::{Author, encode};
use crate::bpf::intf;
use crate::policy::{Action, Snapshot};

impl Scheduler<'_> {
    /// Reads the task table as the policy is to see it: the user's rules have had their say, and
    /// the agent itself is nobody's to place.
    pub(super) fn look_as_policy(&mut self) -> Result<()> {
        self.look();
        // Asked once: it is a system call.
        let own = std::process::id();
        self.tasks.retain(|task| task.tgid != own);
        let mut actions = std::mem::take(&mut self.actions);
        self.ruled.apply(&mut self.tasks, &mut actions);
        let outcome = self.apply_all(&actions, Author::Rules);
        actions.clear();
        self.actions = actions;
        outcome
    }

    /// Has the policy decide, and the BPF half do it.
    pub(super) fn decide(&mut self) -> Result<()> {
        self.look_as_policy()?;
        if let Some(learning) = &mut self.learning {
            learning.look(&self.tasks, &self.topology);
        }
        let mut actions = std::mem::take(&mut self.actions);
        let snapshot = Snapshot {
            now_ns: self.started.elapsed().as_nanos() as u64,
            topology: &self.topology,
            tasks: &self.tasks,
        };
        let saves = self.saves(&mut actions);
        self.recording.look(&snapshot, !saves);
        if !saves {
            self.policy.decide(&snapshot, &mut actions);
            self.recording.decided(&actions, &*self.policy);
            self.ruled.trade(&mut actions);
        }
        let outcome = self.apply_all(&actions, Author::Policy);
        actions.clear();
        self.actions = actions;
        outcome
    }

    pub(super) fn apply_all(&mut self, actions: &[Action], by: Author) -> Result<()> {
        actions
            .chunks(intf::hetero_consts_MAX_ACTIONS as usize)
            .try_for_each(|batch| self.apply(batch, by))
    }

    /// Hands a batch of actions to the BPF half.
    fn apply(&mut self, actions: &[Action], by: Author) -> Result<()> {
        let Some(data) = self.skel.maps.bss_actions_data.as_mut() else {
            bail!("the action batch is not mapped");
        };
        let batch = &mut data.action_batch;
        for (entry, action) in batch.actions.iter_mut().zip(actions) {
            *entry = encode(action, by);
        }
        batch.nr = actions.len() as u32;
        let outcome = self
            .skel
            .progs
            .apply_actions
            .test_run(ProgramInput::default())
            .context("the kernel refused a batch of actions")?;
        if outcome.return_value != 0 {
            bail!(
                "applying actions failed with {}",
                outcome.return_value as i32
            );
        }
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let Some(data) = self.skel.maps.bss_actions_data.as_ref() else {
            return Ok(());
        };
        let entries = data.action_batch.actions.iter().zip(actions);
        let outcomes = entries.clone().map(|(entry, _)| entry.result);
        self.recording
            .carried_out(outcomes.map(|it| it == intf::action_result_ACTION_APPLIED));
        for (entry, action) in entries {
            match entry.result {
                intf::action_result_ACTION_APPLIED => {
                    self.applied += 1;
                    self.moves.note(now_ns, action, &*self.policy, &self.tasks);
                }
                intf::action_result_ACTION_STALE => self.stale += 1,
                result => debug!("{action:?} was refused ({result})"),
            }
        }
        Ok(())
    }
}
