// SPDX-License-Identifier: GPL-2.0-or-later
//! How much of a CPU each thread wants, and where it was sent.

use rustc_hash::FxHashMap;

use super::mean::Mean;
use crate::policy::Snapshot;
use crate::table::{Task, TaskId, TaskState};

/// A look counts for one in so many in what a thread wants, at the least: looks of 0.8 s under `rank`, of
/// 3.2 s under `hsp`.
const AVERAGED: u32 = 16;

/// How long a move may take, ns: one that waits has its turn by then.
const MOVE_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Account {
    /// Run time at the last look, ns.
    total_ns: u64,
    /// It was runnable then.
    awake: bool,
    /// Share of a CPU, 0 to 1.
    wants: Mean,
    /// To which core type, and until when that is waited for, ns.
    sent: Option<(usize, u64)>,
}

/// The accounts of all tasks.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    accounts: FxHashMap<TaskId, Account>,
    /// CPUs that all threads of a process want, by its id.
    programs: FxHashMap<u32, f64>,
    looked_at_ns: Option<u64>,
}

impl Demand {
    /// Brings the accounts up to date.
    pub(crate) fn look(&mut self, snapshot: &Snapshot) {
        let now = snapshot.now_ns;
        let elapsed = now.saturating_sub(self.looked_at_ns.unwrap_or(now));
        self.looked_at_ns = Some(now);
        self.programs.clear();
        for task in snapshot.tasks {
            let account = self.accounts.entry(task.id);
            let account = account
                .and_modify(|account| account.look(task, now, elapsed))
                .or_insert_with(|| Account {
                    total_ns: task.total_ns(),
                    awake: task.state != TaskState::Blocked,
                    wants: Mean::default(),
                    sent: None,
                });
            *self.programs.entry(task.tgid).or_default() += account.wants.get().unwrap_or(0.0);
        }
        if self.accounts.len() > snapshot.tasks.len() {
            self.accounts.retain(|&id, _| snapshot.is_alive(id));
        }
    }

    /// CPUs that a process wants, by all of its threads.
    pub(crate) fn of_program(&self, tgid: u32) -> f64 {
        self.programs.get(&tgid).copied().unwrap_or(0.0)
    }

    /// Share of a CPU that a task wants, 0 to 1; 0 until it was looked at twice.
    pub(crate) fn of(&self, task: TaskId) -> f64 {
        let wants = self.accounts.get(&task).and_then(|a| a.wants.get());
        wants.unwrap_or(0.0)
    }

    /// Whether a task is on its way to where it was sent.
    pub(crate) fn is_moving(&self, task: TaskId) -> bool {
        self.accounts.get(&task).is_some_and(|a| a.sent.is_some())
    }

    /// Notes that a task is sent to a core type.
    pub(crate) fn send(&mut self, task: TaskId, to: usize) {
        let until = self.looked_at_ns.unwrap_or_default() + MOVE_NS;
        if let Some(account) = self.accounts.get_mut(&task) {
            account.sent = Some((to, until));
        }
    }
}

impl Account {
    fn look(&mut self, task: &Task, now: u64, elapsed: u64) {
        let total_ns = task.total_ns();
        let awake = task.state != TaskState::Blocked;
        if elapsed > 0 {
            // A thread that was runnable then and is now had work all the while, and may have waited.
            let share = if awake && self.awake {
                1.0
            } else {
                total_ns.saturating_sub(self.total_ns) as f64 / elapsed as f64
            };
            self.wants.take(share.min(1.0), AVERAGED);
        }
        self.total_ns = total_ns;
        self.awake = awake;
        let arrived = |&mut (to, until): &mut (usize, u64)| task.core_type == to || now >= until;
        self.sent.take_if(arrived);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MS, board, task};

    /// What a thread wants after so many looks, 200 ms each; before each, `change` happens to it.
    fn after(looks: u64, change: impl Fn(u64, &mut Task)) -> f64 {
        let topology = board(2, 4);
        let (mut demand, mut it) = (Demand::default(), task(0, 0, 0));
        for look in 0..looks {
            change(look, &mut it);
            demand.look(&Snapshot {
                now_ns: look * 200 * MS,
                topology: &topology,
                tasks: std::slice::from_ref(&it),
            });
        }
        demand.of(it.id)
    }

    #[test]
    fn who_waits_wants_as_much_as_who_runs() {
        let runs = after(20, |_, task| task.run_ns[0] += 200 * MS);
        let waits = after(20, |_, task| task.state = TaskState::Queued);
        assert!(runs > 0.99 && waits > 0.99, "{runs} {waits}");
    }

    #[test]
    fn who_mostly_sleeps_wants_what_it_uses() {
        let uses = after(40, |_, task| {
            task.state = TaskState::Blocked;
            task.run_ns[1] += 20 * MS;
        });
        assert!((uses - 0.1).abs() < 0.01, "{uses}");
    }

    #[test]
    fn a_move_ends_where_it_was_to_go_or_after_a_second() {
        let topology = board(2, 4);
        let mut it = task(0, 0, 0);
        let moving = |demand: &mut Demand, task: Task, now_ns| {
            demand.look(&Snapshot {
                now_ns,
                topology: &topology,
                tasks: &[task],
            });
            demand.is_moving(task.id)
        };
        let mut demand = Demand::default();
        assert!(!moving(&mut demand, it, 0));
        demand.send(it.id, 1);
        assert!(moving(&mut demand, it, 999 * MS));
        assert!(!moving(&mut demand, it, 1000 * MS));
        demand.send(it.id, 1);
        it.core_type = 1;
        assert!(!moving(&mut demand, it, 1001 * MS));
    }
}
