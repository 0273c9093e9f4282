// SPDX-License-Identifier: GPL-2.0-or-later
//! Progress counters as CAMPS and ACFS compare them (CAMPS 2018, section 4.3): which threads take part, how
//! far each has come, and the rules for newcomers and sleepers.
//!
//! The BPF half charges `amp_progress`. No action sets it, so a task's *effective progress* is
//! `amp_progress` plus an offset that is kept here and changed where the paper resets the counter.
//!
//! Not in the paper: progress counts from when the policy begins, and no thread is farther than [`APART_NS`] from
//! the middle of those that take part. By weight a thread at nice 19 progresses 68 times as fast as others, one at
//! SCHED_IDLE 341 times, and where there are CPUs to spare nothing holds it back: a newcomer that starts level with
//! it would get no fast core for hours.

use rustc_hash::FxHashMap;

use super::swap::SwapCandidate;
use super::weights::{NearMiddle, least_weight};
use crate::policy::{Action, Snapshot};
use crate::table::{Task, TaskId, TaskState};

/// A thread takes part if it wants at least this share of a CPU.
pub(crate) const BUSY: f64 = 0.25;

/// Having taken part, it stays until it wants less than this.
const STILL_BUSY: f64 = 0.125;

/// A look counts for one in so many in the share that a thread wants.
const AVERAGED: f64 = 4.0;

/// How long a thread that waits in a queue counts as being where it was sent, ns.
const MOVE_NS: u64 = 1_000_000_000;

/// How long a thread stays where it was sent before it is sent elsewhere, ns: until it has been
/// measured there.
const REST_NS: u64 = 200_000_000;

/// How far from the middle a thread may be, ns of progress: the most that `amp_threshold` can be
/// ([`super::threshold`]), so that farther apart nothing is decided otherwise.
pub(crate) const APART_NS: i64 = 4_000_000_000;

/// What is remembered of a task.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// Added to its `amp_progress`, ns.
    offset: i64,
    /// Run time at the last look, ns.
    total_ns: u64,
    /// It was queued at the last look.
    queued: bool,
    /// Share of a CPU that it wants, 0 to 1, averaged.
    usage: f64,
    busy: bool,
    /// When it was last seen runnable or had run, ns.
    active_at_ns: u64,
    /// Where it was sent, and when that is forgotten, ns.
    going: Option<(usize, u64)>,
    /// Where it was sent last, and when, ns.
    sent: Option<(usize, u64)>,
}

/// The accounts of all tasks.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    accounts: FxHashMap<TaskId, Account>,
    looked_at_ns: Option<u64>,
    /// Least and greatest effective progress among those that took part when any did last, ns.
    range: Option<(i64, i64)>,
    /// Progress and weight of those that take part; kept for its memory.
    taking_part: Vec<(i64, u32)>,
    /// Weights of those that are busy; kept for its memory.
    weights: Vec<u32>,
    /// Those that weigh less do not take part.
    least_weight: u32,
}

/// How long a thread may sleep before its counter is reset, ns: the time in which, just swapped to
/// a slower core and slowed down there by `slowdown`, it would fall behind by `threshold` ns and be
/// swapped back (section 4.3). At most two seconds.
pub(crate) fn patience_ns(threshold: i64, slowdown: f64) -> u64 {
    const MOST_NS: f64 = 2e9;
    let per_ns = 1.0 - 1.0 / slowdown.max(1.0);
    (threshold as f64 / per_ns.max(f64::MIN_POSITIVE)).min(MOST_NS) as u64
}

impl Progress {
    /// Brings the accounts up to date. `patience` says how long a task may sleep, ns, before its
    /// counter is reset to the least among those that take part.
    pub(crate) fn update(&mut self, snapshot: &Snapshot, patience: impl Fn(TaskId) -> u64) {
        let now = snapshot.now_ns;
        let elapsed = now.saturating_sub(self.looked_at_ns.unwrap_or(now));
        let first_look = self.looked_at_ns.is_none();
        let range = self.range;
        self.taking_part.clear();
        self.weights.clear();
        for task in snapshot.tasks {
            let account = self.accounts.entry(task.id).or_insert_with(|| {
                let mut fresh = Account::new(task, now);
                // Level with the one furthest ahead, and what it did since is its own. All level at first: what
                // they did before, asleep or not, was under no eyes.
                let since = match first_look {
                    true => task.amp_progress,
                    false => task.first_progress,
                };
                let most = range.map_or(0, |(_, most)| most);
                fresh.offset = most.wrapping_sub(since as i64);
                fresh
            });
            account.look(task, now, elapsed);
            let is_active = task.state != TaskState::Blocked || task.total_ns() > account.total_ns;
            if is_active {
                let slept = now
                    .saturating_sub(account.active_at_ns)
                    .saturating_sub(elapsed);
                if slept > patience(task.id)
                    && let Some((least, _)) = range
                {
                    // Never back: one that was ahead gets nothing for having slept.
                    let lacks = least - account.progress(task);
                    account.offset = account.offset.wrapping_add(lacks.max(0));
                }
                account.active_at_ns = now;
            }
            account.total_ns = task.total_ns();
            account.queued = task.state == TaskState::Queued;
            if account.is_busy(task) {
                self.weights.push(task.weight);
            }
            if account.takes_part(task) {
                self.taking_part.push((account.progress(task), task.weight));
            }
        }
        let least_weight = least_weight(&mut self.weights, snapshot.topology.cpus.len());
        self.least_weight = least_weight;
        self.taking_part
            .retain(|&(_, weight)| weight >= least_weight);
        self.keep_together(snapshot);
        if self.accounts.len() > snapshot.tasks.len() {
            self.accounts.retain(|&id, _| snapshot.is_alive(id));
        }
        self.looked_at_ns = Some(now);
    }

    /// Brings those that are far from the middle nearer, and notes their range.
    fn keep_together(&mut self, snapshot: &Snapshot) {
        let Some(all) = NearMiddle::of(&mut self.taking_part, APART_NS) else {
            // What slept all the while is still to come back level with the others.
            return;
        };
        self.range = Some(all.range);
        if all.holds_all {
            return;
        }
        for task in snapshot.tasks {
            if self.takes_part(task)
                && let Some(account) = self.accounts.get_mut(&task.id)
            {
                let progress = account.progress(task);
                let nearer = all.near(progress).wrapping_sub(progress);
                account.offset = account.offset.wrapping_add(nearer);
            }
        }
    }

    /// Effective progress of a task, ns.
    pub(crate) fn of(&self, task: &Task) -> Option<i64> {
        Some(self.accounts.get(&task.id)?.progress(task))
    }

    /// Whether a task wants a good part of a CPU, by its weight may have that much of what there is, and is not blocked.
    pub(crate) fn is_busy(&self, task: &Task) -> bool {
        let account = self.accounts.get(&task.id);
        self.weighs_enough(task) && account.is_some_and(|account| account.is_busy(task))
    }

    /// Whether a task may have a good part of a CPU by its weight, or there is one for each.
    fn weighs_enough(&self, task: &Task) -> bool {
        task.weight >= self.least_weight
    }

    /// Whether a task wants a good part of a CPU, be it asleep just now.
    pub(crate) fn is_wanting(&self, task: &Task) -> bool {
        let account = self.accounts.get(&task.id);
        account.is_some_and(|account| account.busy) && !task.kthread
    }

    /// Whether a task wants a good part of a CPU, be it asleep just now, and is free to choose between core types.
    pub(crate) fn wants_much(&self, task: &Task) -> bool {
        self.is_wanting(task) && task.may_choose()
    }

    /// The share of a CPU that a task wants, 0 to 1.
    pub(crate) fn usage(&self, task: TaskId) -> f64 {
        self.accounts
            .get(&task)
            .map_or(0.0, |account| account.usage)
    }

    /// Whether a task is busy and free to choose between core types.
    pub(crate) fn takes_part(&self, task: &Task) -> bool {
        self.is_busy(task) && task.may_choose()
    }

    /// Takes their hints back from those that want little of a CPU, or may have little: they are better off wherever one is
    /// free for a moment. Those that are only asleep keep theirs.
    pub(crate) fn release(&self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        for task in snapshot.tasks {
            let keeps = self.is_wanting(task) && self.weighs_enough(task);
            if task.hint.is_some() && task.may_choose() && !task.kthread && !keeps {
                actions.push(Action::Hint(task.into(), None));
            }
        }
    }

    /// Core type where a task is; if it waits after being sent somewhere, that.
    pub(crate) fn place(&self, task: &Task) -> usize {
        let account = self.accounts.get(&task.id);
        account.map_or(task.core_type, |account| account.place(task))
    }

    /// Whether a task is still on its way to where it was sent.
    pub(crate) fn is_moving(&self, task: TaskId) -> bool {
        let account = self.accounts.get(&task);
        account.is_some_and(|account| account.going.is_some())
    }

    /// Appends those that take part, in the order of the snapshot.
    pub(crate) fn runners(&self, snapshot: &Snapshot, runners: &mut Vec<SwapCandidate>) {
        for task in snapshot.tasks {
            if let Some(account) = self.accounts.get(&task.id)
                && account.takes_part(task)
                && self.weighs_enough(task)
            {
                let (place, progress) = (account.place(task), account.progress(task));
                runners.push(SwapCandidate::new(task, place, progress));
            }
        }
    }

    /// Leaves those that have arrived where they were sent.
    pub(crate) fn settled(&self, runners: &mut Vec<SwapCandidate>) {
        runners.retain(|runner| !self.is_moving(runner.seen.task));
    }

    /// Whether a task has been where it was sent for long enough, or was driven from there.
    pub(crate) fn is_rested(&self, runner: &SwapCandidate, now_ns: u64) -> bool {
        let account = self.accounts.get(&runner.seen.task);
        let sent = account.and_then(|account| account.sent);
        sent.is_none_or(|(to, at)| to != runner.place || now_ns.saturating_sub(at) > REST_NS)
    }

    /// Whether a task was sent to a core type long enough ago, and is elsewhere: there is no way for it, as where a CPU has more
    /// to do than can be seen.
    pub(crate) fn is_stuck(&self, runner: &SwapCandidate, to: usize, now_ns: u64) -> bool {
        let account = self.accounts.get(&runner.seen.task);
        let sent = account.and_then(|account| account.sent);
        sent.is_some_and(|(there, at)| {
            let is_late = now_ns.saturating_sub(at) > REST_NS;
            there == to && runner.hint == Some(to) && runner.place != to && is_late
        })
    }

    /// Notes which threads are sent where.
    pub(crate) fn note(&mut self, actions: &[Action], now_ns: u64) {
        let mut send = |task: TaskId, to: usize| {
            if let Some(account) = self.accounts.get_mut(&task) {
                account.going = Some((to, now_ns + MOVE_NS));
                // Sent there once more it has been on its way since the first time.
                let again = account.sent.filter(|&(there, _)| there == to);
                account.sent = again.or(Some((to, now_ns)));
            }
        };
        for action in actions {
            match action {
                Action::Hint(seen, Some(to)) => send(seen.task, *to),
                Action::Swap(pair) => pair.iter().for_each(|(seen, to)| send(seen.task, *to)),
                _ => {}
            }
        }
    }
}

impl Account {
    fn new(task: &Task, now: u64) -> Self {
        Self {
            offset: 0,
            total_ns: task.total_ns(),
            queued: task.state == TaskState::Queued,
            // One that ran for most of a look takes part: none runs for all of it.
            usage: STILL_BUSY,
            busy: false,
            active_at_ns: now,
            going: None,
            sent: None,
        }
    }

    fn is_busy(&self, task: &Task) -> bool {
        self.busy && task.state != TaskState::Blocked && !task.kthread
    }

    fn takes_part(&self, task: &Task) -> bool {
        self.is_busy(task) && task.may_choose()
    }

    fn place(&self, task: &Task) -> usize {
        match self.going {
            Some((to, _)) if task.state == TaskState::Queued => to,
            _ => task.core_type,
        }
    }

    fn progress(&self, task: &Task) -> i64 {
        (task.amp_progress as i64).wrapping_add(self.offset)
    }

    fn look(&mut self, task: &Task, now: u64, elapsed: u64) {
        let ran = task.total_ns().saturating_sub(self.total_ns);
        if elapsed > 0 {
            let waited = task.state == TaskState::Queued && self.queued;
            let share = if waited {
                1.0
            } else {
                ran as f64 / elapsed as f64
            };
            self.usage += (share.min(1.0) - self.usage) / AVERAGED;
        }
        self.busy = self.usage >= if self.busy { STILL_BUSY } else { BUSY };
        if let Some((to, until)) = self.going
            && (task.core_type == to
                || now >= until
                || (ran > 0 && task.state == TaskState::Running))
        {
            self.going = None;
        }
    }
}

#[cfg(test)]
mod tests;
