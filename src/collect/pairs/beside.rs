// SPDX-License-Identifier: GPL-2.0-only
//! Antagonists while they run: started, counted, and ended again.

use std::process::ExitStatus;
use std::time::Instant;

use anyhow::{Context, Result};
use crossbeam::channel::Receiver;

use super::super::run::{end_group, launcher_on};
use crate::pmc::counting::{Counting, places};
use crate::pmc::perf::How;
use crate::pmc::target::{Launcher, threads};
use crate::pmu::sample::LINE_BYTES;
use crate::pmu::{MachinePmus, Meaning, Plan, plan};
use crate::topology::Topology;

struct RunningAntagonist {
    pid: i32,
    end: Receiver<ExitStatus>,
    launcher: Option<Launcher>,
    counting: Option<(Counting, Instant)>,
    plan: Plan,
}

/// Copies of an antagonist, each on a CPU of its own; ended when dropped.
pub(super) struct RunningBeside<'m> {
    machine: &'m MachinePmus,
    topology: &'m Topology,
    copies: Vec<(u32, RunningAntagonist)>,
}

/// What they did, together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BesideDid {
    /// CPUs that they kept busy.
    pub busy: f64,
    /// What they transferred, bytes/s.
    pub btr: f64,
}

impl<'m> RunningBeside<'m> {
    /// Starts `words` on each of these CPUs.
    ///
    /// # Errors
    /// One cannot be started.
    pub(super) fn start(
        words: &[String],
        on: &[u32],
        (machine, topology): (&'m MachinePmus, &'m Topology),
    ) -> Result<Self> {
        let mut all = Self {
            machine,
            topology,
            copies: Vec::new(),
        };
        for &cpu in on {
            let launcher = launcher_on(words, &[cpu])?;
            let (pid, end) = launcher.start(&words[0])?;
            let one = RunningAntagonist {
                pid,
                end,
                launcher: Some(launcher),
                counting: None,
                plan: Plan::default(),
            };
            all.copies.push((cpu, one));
        }
        Ok(all)
    }

    /// Counts from now on.
    ///
    /// # Errors
    /// They cannot be counted, or one has ended.
    pub(super) fn count(&mut self) -> Result<()> {
        let events = [Meaning::Instructions, Meaning::Cycles, Meaning::LlcMisses];
        for (cpu, one) in &mut self.copies {
            let mut places = places(self.machine, self.topology, true);
            places.retain(|place| place.cpu == Some(*cpu));
            let core_type = self.topology.cpu(*cpu).map_or(0, |cpu| cpu.core_type);
            let pmu = self.machine.pmu_of(*cpu).context("no PMU counts there")?;
            one.plan = plan(&events.map(Into::into), pmu);
            let mut plans = vec![Plan::default(); self.topology.types.len()];
            plans[core_type] = one.plan.clone();
            let tids = threads(one.pid as u32).context("an antagonist has ended")?;
            let how = How::default();
            let mut counting = Counting::open(&places, &plans, &tids, how)?;
            counting.next()?;
            one.counting = Some((counting, Instant::now()));
        }
        Ok(())
    }

    /// What they did since.
    ///
    /// # Errors
    /// They cannot be counted any more.
    pub(super) fn did(&mut self) -> Result<BesideDid> {
        let mut did = BesideDid::default();
        for (_, one) in &mut self.copies {
            let Some((counting, since)) = &mut one.counting else {
                continue;
            };
            let slice = counting.next()?;
            let seconds = since.elapsed().as_secs_f64().max(1e-6);
            *since = Instant::now();
            did.busy += slice.run_ns as f64 / 1e9 / seconds;
            let at = one.plan.find(&Meaning::LlcMisses.into());
            for counted in slice.counted {
                let misses = at.and_then(|(_, counter)| counted.counts.get(counter));
                did.btr += misses.copied().unwrap_or(0) as f64 * LINE_BYTES / seconds;
            }
        }
        Ok(did)
    }
}

impl Drop for RunningBeside<'_> {
    fn drop(&mut self) {
        for (_, one) in &mut self.copies {
            one.counting = None;
            end_group(one.pid, &one.end);
            if let Some(launcher) = one.launcher.take() {
                launcher.end();
            }
        }
    }
}
