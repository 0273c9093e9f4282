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
use std::collections::{HashMap, HashSet};
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
    /// Every task that is in the table.
    threads: HashMap<TaskId, Thread>,
    /// Every process that has a task in the table.
    applications: HashMap<u32, Share>,
}

/// A task at the last look; run times in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Thread {
    total_ns: u64,
    big_ns: u64,
    share: Share,
}

/// Big-core time that somebody had while busy.
#[derive(Clone, Copy, Default)]
struct Share {
    ns: u64,
    busy: bool,
}

impl Share {
    /// Who becomes busy starts level with the one that had `least`, so that
    /// neither age nor sleep is an advantage; who stays so keeps its account.
    fn wake(&mut self, least: u64) {
        if !self.busy {
            self.ns = self.ns.max(least);
            self.busy = true;
        }
    }
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

    /// Which tasks are busy: those that ran a good part of the time since the
    /// last look, or would have. A task that just happens to be on a CPU, as the
    /// agent is whenever it looks, does not count.
    fn busy<'a>(&self, tasks: &'a [Task]) -> Vec<&'a Task> {
        let enough = self.interval_ns() / BUSY_ONE_IN;
        tasks
            .iter()
            .filter(|task| !task.kthread)
            .filter(|task| {
                let before = self
                    .threads
                    .get(&task.id)
                    .map_or(0, |thread| thread.total_ns);
                task.state == State::Queued || task.total_ns().saturating_sub(before) >= enough
            })
            .collect()
    }

    /// Brings the accounts up to date: what the busy threads ran on big cores is
    /// charged to themselves and to their processes.
    fn charge(&mut self, tasks: &[Task], busy: &[&Task]) {
        let busy_threads: HashSet<TaskId> = busy.iter().map(|task| task.id).collect();
        let busy_processes: HashSet<u32> = busy.iter().map(|task| task.tgid).collect();

        let alive: HashSet<u32> = tasks.iter().map(|task| task.tgid).collect();
        self.applications.retain(|tgid, _| alive.contains(tgid));
        for (tgid, share) in &mut self.applications {
            share.busy &= busy_processes.contains(tgid);
        }
        let least = least_busy(self.applications.values());
        for tgid in busy_processes {
            self.applications.entry(tgid).or_default().wake(least);
        }

        let before = std::mem::take(&mut self.threads);
        let mut least_by_process: HashMap<u32, u64> = HashMap::new();
        for task in busy {
            if let Some(share) = before.get(&task.id).map(|t| t.share).filter(|s| s.busy) {
                let least = least_by_process.entry(task.tgid).or_insert(share.ns);
                *least = share.ns.min(*least);
            }
        }
        for task in tasks {
            let big_ns = task.run_ns[BIG];
            let mut thread = before.get(&task.id).copied().unwrap_or(Thread {
                big_ns,
                ..Thread::default()
            });
            if busy_threads.contains(&task.id) {
                let gained = big_ns.saturating_sub(thread.big_ns);
                thread
                    .share
                    .wake(least_by_process.get(&task.tgid).copied().unwrap_or(0));
                thread.share.ns += gained;
                self.applications.entry(task.tgid).or_default().ns += gained;
            } else {
                thread.share.busy = false;
            }
            thread.total_ns = task.total_ns();
            thread.big_ns = big_ns;
            self.threads.insert(task.id, thread);
        }
    }

    fn candidate<'a>(&self, task: &'a Task) -> Candidate<'a> {
        Candidate {
            task,
            place: place(task),
            had: (
                self.applications
                    .get(&task.tgid)
                    .map_or(0, |share| share.ns),
                self.threads
                    .get(&task.id)
                    .map_or(0, |thread| thread.share.ns),
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
        self.charge(snapshot.tasks, &busy);

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

fn least_busy<'a>(shares: impl Iterator<Item = &'a Share>) -> u64 {
    shares
        .filter(|share| share.busy)
        .map(|share| share.ns)
        .min()
        .unwrap_or(0)
}

/// The core type where a task is or, if it waits, will be.
fn place(task: &Task) -> usize {
    match task.state {
        State::Running => task.core_type,
        _ => task.hint.unwrap_or(task.core_type),
    }
}
