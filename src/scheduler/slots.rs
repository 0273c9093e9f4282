// SPDX-License-Identifier: GPL-2.0-only
//! Where slots run short, those of tasks that have slept for long are taken back: a machine may have
//! more long-lived tasks than the table holds, and most of them sleep.

use anyhow::{Context, Result};
use libbpf_rs::ProgramMut;
use rustc_hash::FxHashMap;

use super::half::request;
use crate::table::{Task, TaskId, TaskState};

/// A task that has not run for so long may lose its slot, ns: longer than any policy looks back.
const SLEPT_NS: u64 = 20_000_000_000;

/// Slots run short when fewer than one in so many is free; as many are taken back at once, at most.
const SHORT: usize = 8;

/// Since when tasks sleep; known only while slots run short.
#[derive(Default)]
pub(super) struct Sleepers {
    /// By task: how long it had run, ns, and since when it has not run on, ns.
    since: FxHashMap<TaskId, (u64, u64)>,
}

impl Sleepers {
    /// Whose slots to take back, those that have slept longest first. To be asked now and then.
    pub(super) fn due(&mut self, tasks: &[Task], nr_slots: usize, now_ns: u64) -> Vec<TaskId> {
        if (nr_slots - tasks.len().min(nr_slots)) * SHORT >= nr_slots {
            self.since.clear();
            return Vec::new();
        }
        let before = std::mem::take(&mut self.since);
        let mut long = Vec::new();
        for task in tasks.iter().filter(|task| task.state == TaskState::Blocked) {
            let ran = task.total_ns();
            let known = before.get(&task.id).filter(|(then, _)| *then == ran);
            let since = known.map_or(now_ns, |&(_, since)| since);
            self.since.insert(task.id, (ran, since));
            if now_ns - since >= SLEPT_NS {
                long.push((since, task.id));
            }
        }
        long.sort_unstable_by_key(|&(since, task)| (since, task.slot));
        long.truncate(nr_slots.div_ceil(SHORT));
        long.into_iter().map(|(_, task)| task).collect()
    }
}

/// Takes a slot back, unless its task has woken up meanwhile.
pub(super) fn take_back(program: &ProgramMut, task: TaskId) -> Result<bool> {
    // A struct slot_request: slot, generation.
    let mut context = [0; 8];
    context[..4].copy_from_slice(&task.slot.to_ne_bytes());
    context[4..].copy_from_slice(&task.generation.to_ne_bytes());
    let outcome = request(program, &mut context);
    Ok(outcome.context("the kernel refused to take a slot back")? == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::testing::{MS, task};

    #[test]
    fn the_longest_sleepers_lose_their_slots_where_these_run_short() {
        let mut tasks: Vec<Task> = (0..8).map(|slot| task(slot, 0, 0)).collect();
        for task in &mut tasks[..4] {
            task.state = TaskState::Blocked;
        }
        let mut sleepers = Sleepers::default();
        let second = |s: u64| s * 1000 * MS;
        // With room enough nothing is taken, however long it sleeps.
        assert_eq!(sleepers.due(&tasks, 32, second(0)), []);
        assert_eq!(sleepers.due(&tasks, 32, second(60)), []);

        assert_eq!(sleepers.due(&tasks, 8, second(70)), []);
        tasks[3].run_ns[0] += MS;
        assert_eq!(sleepers.due(&tasks, 8, second(80)), []);
        tasks[0].run_ns[0] += MS;
        // One in eight at a time; and one that ran meanwhile has not slept for long.
        assert_eq!(sleepers.due(&tasks, 8, second(90)), [tasks[1].id]);
        assert_eq!(sleepers.due(&tasks, 8, second(120)), [tasks[1].id]);
        tasks[1].state = TaskState::Running;
        assert_eq!(sleepers.due(&tasks, 8, second(130)), [tasks[2].id]);
    }
}
