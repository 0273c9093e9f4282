// SPDX-License-Identifier: GPL-2.0-only
//! `rr`: asymmetry-aware round-robin, the scheme that the CAMPS paper (2018,
//! section 5.1) compares with, after Becchi and Crowley (2006). Big-core time is
//! shared fairly among applications by periodic swaps, whatever it is worth to
//! them.
//!
//! With three or more core types the fastest is what is shared; a thread that
//! leaves it takes the place of the one that enters, on whatever type that was,
//! so the slower types are rotated through as well.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use super::{Action, Policy, Snapshot};
use crate::placement;
use crate::table::{State, Task, TaskId};

/// A thread counts as busy if it ran for at least one in so many nanoseconds.
const BUSY_ONE_IN: u64 = 20;

/// The fastest core type.
const BIG: usize = 0;

/// See the module.
pub struct RoundRobin {
    interval: Duration,
    /// Busy threads, and what they had at the last look.
    threads: HashMap<TaskId, Thread>,
    /// Big-core time by process.
    applications: HashMap<u32, u64>,
}

/// Run times in nanoseconds.
#[derive(Clone, Copy)]
struct Thread {
    total_ns: u64,
    big_ns: u64,
    /// Big-core time since it was first seen busy, on top of the least that any
    /// busy thread of its process had then.
    share_ns: u64,
}

/// A busy thread that may use the big cores and others.
struct Candidate<'a> {
    task: &'a Task,
    /// Core type where it is or, if it waits, will be.
    place: usize,
    /// Big-core time of its process, and its own.
    had: (u64, u64),
}

impl RoundRobin {
    /// Decides once per `interval`, which is about how long a thread holds a
    /// big core.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            threads: HashMap::new(),
            applications: HashMap::new(),
        }
    }

    fn interval_ns(&self) -> u64 {
        self.interval.as_nanos() as u64
    }

    /// Which tasks are busy, by what they ran since the last look.
    fn busy<'a>(&self, tasks: &'a [Task]) -> Vec<&'a Task> {
        tasks
            .iter()
            .filter(|task| !task.kthread)
            .filter(|task| {
                let before = self
                    .threads
                    .get(&task.id)
                    .map_or(0, |thread| thread.total_ns);
                task.state != State::Blocked
                    || task.total_ns().saturating_sub(before) >= self.interval_ns() / BUSY_ONE_IN
            })
            .collect()
    }

    /// Charges the busy tasks' big-core time to their processes and to
    /// themselves. Newcomers start level with the one that had least, so that
    /// neither age nor youth wins.
    fn charge(&mut self, busy: &[&Task]) {
        let least = |had: &mut dyn Iterator<Item = u64>| had.min().unwrap_or(0);

        self.applications
            .retain(|tgid, _| busy.iter().any(|task| task.tgid == *tgid));
        let start = least(&mut self.applications.values().copied());
        let mut threads = HashMap::with_capacity(busy.len());
        for task in busy {
            let siblings = busy.iter().filter(|other| other.tgid == task.tgid);
            let before = self
                .threads
                .get(&task.id)
                .copied()
                .unwrap_or_else(|| Thread {
                    total_ns: task.total_ns(),
                    big_ns: task.run_ns[BIG],
                    share_ns: least(
                        &mut siblings
                            .filter_map(|task| self.threads.get(&task.id))
                            .map(|t| t.share_ns),
                    ),
                });
            let gained = task.run_ns[BIG].saturating_sub(before.big_ns);
            *self.applications.entry(task.tgid).or_insert(start) += gained;
            threads.insert(
                task.id,
                Thread {
                    total_ns: task.total_ns(),
                    big_ns: task.run_ns[BIG],
                    share_ns: before.share_ns + gained,
                },
            );
        }
        self.threads = threads;
    }

    fn candidate<'a>(&self, task: &'a Task) -> Candidate<'a> {
        Candidate {
            task,
            place: place(task),
            had: (
                self.applications.get(&task.tgid).copied().unwrap_or(0),
                self.threads
                    .get(&task.id)
                    .map_or(0, |thread| thread.share_ns),
            ),
        }
    }

    /// Whether `out` had so much more of the big cores than `next` that they
    /// should change places: half an interval, or they would be swapped for
    /// ever over the noise of the clock.
    fn should_yield(&self, out: &Candidate, next: &Candidate) -> bool {
        let margin = self.interval_ns() / 2;
        if out.task.tgid == next.task.tgid {
            out.had.1 > next.had.1 + margin
        } else {
            out.had.0 > next.had.0 + margin
        }
    }
}

impl Policy for RoundRobin {
    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        let nr_types = snapshot.topology.types.len();
        if nr_types < 2 {
            return;
        }
        let busy = self.busy(snapshot.tasks);
        self.charge(&busy);

        // Threads that cannot move take up room where they are.
        let mut room = placement::shares(snapshot.topology, busy.len());
        let (movable, fixed): (Vec<&Task>, Vec<&Task>) = busy.into_iter().partition(|task| {
            !task.pinned && task.may_use(BIG) && task.allowed_types.count_ones() > 1
        });
        for task in fixed {
            let here = &mut room[place(task).min(nr_types - 1)];
            *here = here.saturating_sub(1);
        }

        let (mut on_big, mut elsewhere): (Vec<_>, Vec<_>) = movable
            .into_iter()
            .map(|task| self.candidate(task))
            .partition(|candidate| candidate.place == BIG);
        // Those that had most leave first; those that had least enter first.
        on_big.sort_by_key(|candidate| Reverse((candidate.had, candidate.task.id)));
        elsewhere.sort_by_key(|candidate| (candidate.had, candidate.task.id));
        let mut leaving = on_big.iter();
        let mut entering = elsewhere.iter();

        // Too few or too many on the big cores: put the number right.
        for next in entering
            .by_ref()
            .take(room[BIG].saturating_sub(on_big.len()))
        {
            actions.push(Action::Hint(next.task.into(), Some(BIG)));
        }
        for out in leaving
            .by_ref()
            .take(on_big.len().saturating_sub(room[BIG]))
        {
            let emptiest = (1..nr_types)
                .filter(|&core_type| out.task.may_use(core_type))
                .max_by_key(|&core_type| {
                    let there = elsewhere.iter().filter(|c| c.place == core_type).count();
                    (room[core_type].saturating_sub(there), Reverse(core_type))
                });
            if emptiest.is_some() {
                actions.push(Action::Hint(out.task.into(), emptiest));
            }
        }
        for (out, next) in leaving.zip(entering) {
            if self.should_yield(out, next) && out.task.may_use(next.place) {
                actions.push(Action::Swap([
                    (out.task.into(), next.place),
                    (next.task.into(), BIG),
                ]));
            }
        }
    }
}

/// The core type where a task is or, if it waits, will be.
fn place(task: &Task) -> usize {
    match task.state {
        State::Running => task.core_type,
        _ => task.hint.unwrap_or(task.core_type),
    }
}
