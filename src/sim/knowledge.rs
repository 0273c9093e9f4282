// SPDX-License-Identifier: GPL-2.0-only
//! What simulated programs leave behind: what one run of a program teaches the next (`--knowledge`).
//!
//! A program is told by its name: the simulator has no files. As with the live scheduler it takes the agent a look
//! to find out which program a new thread runs.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::table::Task;
use hetero_core::knowledge::{ProgramFindings, Remembered, ThreadFinding, ThreadProfile};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedKnowledge {
    programs: FxHashMap<String, ProgramFindings>,
    /// Process ids that were asked for.
    asked: FxHashSet<u32>,
    /// What was told last.
    told: Option<ThreadProfile>,
    unlike: u64,
}

impl SimulatedKnowledge {
    /// What was learnt, for another run: processes there have other numbers.
    pub(super) fn for_another_run(mut self) -> Self {
        self.asked.clear();
        let programs = self.programs.values_mut();
        programs.for_each(|program| program.settle(i64::MAX));
        self
    }

    /// Threads that behaved unlike their programs did before.
    pub(super) fn unlike(&self) -> u64 {
        self.unlike
    }

    pub(super) fn of(&mut self, task: &Task) -> Remembered<'_> {
        if self.asked.insert(task.tgid) {
            return Remembered::Later;
        }
        let program = self.programs.get(&*task.comm.raw());
        self.told = program.and_then(|program| program.known().recollect());
        self.told
            .as_ref()
            .map_or(Remembered::Nothing, Remembered::Known)
    }

    pub(super) fn keep(&mut self, task: &Task, found: &ThreadFinding) {
        let name = task.comm.raw().into_owned();
        self.programs.entry(name).or_default().take(task, found, 0);
    }

    pub(super) fn is_unlike(&mut self) {
        self.unlike += 1;
    }
}
