// SPDX-License-Identifier: GPL-2.0-only
//! What decisions come to: how often threads are moved, where they would be, and how fast there.

use std::collections::{BTreeMap, HashMap};

use crate::policy::{Action, Insight};
use crate::record::format::Decided;
use crate::table::{Comm, Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// A thread counts for unfairness and throughput if it ran for so much of the time that it was
/// there.
const BUSY: f64 = 0.25;

/// And was there for so long, ns.
const LEAST_NS: u64 = 1_000_000_000;

/// What a thread ran between two looks.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Its place in the table.
    pub index: usize,
    /// By core type, ns.
    pub on_ns: [u64; MAX_CORE_TYPES],
    /// What is known of it.
    pub insight: Insight,
}

/// A thread, by what was decided for it.
#[derive(Clone, Debug, Default)]
pub struct ThreadSums {
    /// Thread id.
    pub tid: u32,
    /// Its name.
    pub comm: Comm,
    /// How long it was there, ns.
    pub there_ns: u64,
    /// What it would have run on each core type, by the wishes for it, ns.
    pub wished_ns: [f64; MAX_CORE_TYPES],
    /// What that comes to alone on the fastest core type, ns.
    progress_ns: f64,
    /// And that alone on the slowest, ns.
    slowest_ns: f64,
    /// How often it was moved.
    pub moves: u64,
}

/// See the module.
#[derive(Default)]
pub struct Sums {
    /// Times that the policy decided.
    pub decisions: u64,
    /// Threads wished elsewhere one at a time.
    pub hints: u64,
    /// Two that changed places.
    pub swaps: u64,
    /// CPUs kept from ordinary tasks.
    pub parks: u64,
    /// By identity, which holds for as long as what is known of threads is kept.
    pub threads: BTreeMap<(u32, TaskId), ThreadSums>,
    wishes: HashMap<TaskId, usize>,
    /// How long threads were looked at, ns.
    elapsed_ns: u64,
    /// How often all was forgotten.
    forgotten: u32,
}

impl ThreadSums {
    /// CPU time, ns.
    pub fn ran_ns(&self) -> f64 {
        self.wished_ns.iter().sum()
    }

    /// Whether it computes, so that fast cores matter to it.
    pub fn is_busy(&self) -> bool {
        self.there_ns >= LEAST_NS && self.ran_ns() >= BUSY * self.there_ns as f64
    }

    /// By CPU time, against the fastest core type alone.
    pub fn slowdown(&self) -> Option<f64> {
        (self.progress_ns > 0.0).then(|| self.ran_ns() / self.progress_ns)
    }

    /// CT_slow/CT_sched - 1.
    fn speedup(&self) -> f64 {
        self.slowest_ns / self.ran_ns().max(1.0) - 1.0
    }
}

impl Sums {
    /// Takes note of a decision, whose actions were carried out where `done` says so.
    pub fn decided(&mut self, decided: &[Decided], done: impl Fn(usize) -> bool) {
        self.decisions += 1;
        let done = |(place, _): &(usize, &Decided)| done(*place);
        for (_, decided) in decided.iter().enumerate().filter(done) {
            match &decided.action {
                Action::Hint(_, Some(_)) => self.hints += 1,
                Action::Hint(seen, None) => drop(self.wishes.remove(&seen.task)),
                Action::Swap(_) => self.swaps += 1,
                Action::Park(..) => self.parks += 1,
                Action::Slowdown(..) | Action::Weight(..) | Action::Join(..) => {}
            }
            for (task, from, to, _) in decided.moves() {
                self.wishes.insert(task, to);
                let sums = self.threads.entry((self.forgotten, task)).or_default();
                sums.moves += u64::from(from != to);
            }
        }
    }

    /// Another policy decides, with which earlier wishes are void.
    pub fn forget_wishes(&mut self) {
        self.wishes.clear();
    }

    /// The scheduler begins anew and knows no thread: ids are given again.
    pub fn forget_threads(&mut self) {
        self.forgotten += 1;
        self.wishes.clear();
    }

    /// Threads ran, `passed_ns` since the last look. Each core type has done as much as it did, and
    /// what for follows from the wishes, or where there is none from where a thread was.
    pub fn ran(&mut self, topology: &Topology, tasks: &[Task], ran: &[Ran], passed_ns: u64) {
        self.elapsed_ns += passed_ns;
        let nr_types = topology.types.len();
        let wish = |task: &Task| {
            let wish = self.wishes.get(&task.id).copied();
            let wish = wish.filter(|&to| to < nr_types && task.may_use(to));
            wish.unwrap_or(task.core_type)
        };
        let wishes: Vec<usize> = ran.iter().map(|ran| wish(&tasks[ran.index])).collect();
        let times = share(ran, &wishes);
        for (ran, times) in ran.iter().zip(times) {
            let sums = self
                .threads
                .entry((self.forgotten, tasks[ran.index].id))
                .or_default();
            for (on, ns) in times.into_iter().enumerate().take(nr_types) {
                let (slowdown, sf) = speeds(&ran.insight, topology, on);
                sums.wished_ns[on] += ns;
                sums.progress_ns += ns / slowdown;
                sums.slowest_ns += ns / slowdown * sf;
            }
        }
        for task in tasks.iter().filter(|task| !task.kthread) {
            let sums = self.threads.entry((self.forgotten, task.id)).or_default();
            (sums.tid, sums.comm) = (task.tid, task.comm);
            sums.there_ns += passed_ns;
        }
    }

    /// The greatest slowdown over the least; `None` with fewer than two busy threads.
    pub fn unfairness(&self) -> Option<f64> {
        let busy = self.threads.values().filter(|thread| thread.is_busy());
        let slowdowns: Vec<f64> = busy.filter_map(ThreadSums::slowdown).collect();
        let most = slowdowns.iter().copied().fold(0.0, f64::max);
        let least = slowdowns.iter().copied().fold(f64::INFINITY, f64::min);
        (slowdowns.len() > 1).then(|| most / least)
    }

    /// Aggregate speedup, Σ(CT_slow/CT_sched - 1), over busy threads, each for the part of the time that
    /// it was there: a program that starts again and again is one. `None` without any.
    pub fn asp(&self) -> Option<f64> {
        let busy = self.threads.values().filter(|thread| thread.is_busy());
        let elapsed = self.elapsed_ns.max(1) as f64;
        let speedups: Vec<f64> = busy
            .map(|thread| thread.speedup() * thread.there_ns as f64 / elapsed)
            .collect();
        (!speedups.is_empty()).then(|| speedups.iter().sum())
    }
}

/// What each thread runs on each core type, ns: those that wish for one share what it did, by what they
/// ran; those for which there is not enough take what is left elsewhere.
fn share(ran: &[Ran], wishes: &[usize]) -> Vec<[f64; MAX_CORE_TYPES]> {
    let (mut done, mut wished) = ([0.0; MAX_CORE_TYPES], [0.0; MAX_CORE_TYPES]);
    for (ran, wish) in ran.iter().zip(wishes) {
        for (done, ns) in done.iter_mut().zip(ran.on_ns) {
            *done += ns as f64;
            wished[*wish] += ns as f64;
        }
    }
    let granted = |on: usize| (done[on] / wished[on].max(1.0)).min(1.0);
    let left = |on: usize| (done[on] - wished[on]).max(0.0);
    let all_left: f64 = (0..MAX_CORE_TYPES).map(left).sum();
    let pairs = ran.iter().zip(wishes);
    pairs
        .map(|(ran, &wish)| {
            let own = ran.on_ns.iter().sum::<u64>() as f64;
            let rest = own * (1.0 - granted(wish));
            let mut times = [0.0; MAX_CORE_TYPES];
            for (on, time) in times.iter_mut().enumerate() {
                *time = rest * left(on) / all_left.max(1.0);
            }
            times[wish] += own * granted(wish);
            times
        })
        .collect()
}

/// Slowdown on a core type, and SF: as known, or as the static capacities say.
fn speeds(insight: &Insight, topology: &Topology, on: usize) -> (f64, f64) {
    let assumed = |core_type: usize| {
        let capacity = topology.types[core_type].capacity;
        1024.0 / f64::from(capacity.clamp(1, 1024))
    };
    let known = |value: Option<f64>| value.filter(|value| value.is_finite() && *value > 0.0);
    let slowest = topology.types.len() - 1;
    let slowdown = known(insight.slowdown[on]).unwrap_or_else(|| assumed(on));
    let sf = known(insight.asymmetry[slowest]).unwrap_or_else(|| assumed(slowest));
    (slowdown, sf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Seen;
    use hetero_core::testing::{board, task};

    const SECOND: u64 = 1_000_000_000;

    fn known(slow: f64) -> Insight {
        let mut insight = Insight::default();
        insight.slowdown[..2].copy_from_slice(&[Some(1.0), Some(slow)]);
        insight.asymmetry[..2].copy_from_slice(&[Some(1.0), Some(slow)]);
        insight
    }

    fn two() -> [Task; 2] {
        [task(0, 0, 0), task(1, 1, 1)]
    }

    /// Both ran for a second, each where it was.
    fn ran(slow: [f64; 2]) -> Vec<Ran> {
        let one = |(index, slow): (usize, f64)| {
            let mut on_ns = [0; MAX_CORE_TYPES];
            on_ns[index] = SECOND;
            Ran {
                index,
                on_ns,
                insight: known(slow),
            }
        };
        slow.into_iter().enumerate().map(one).collect()
    }

    fn decide(action: Action) -> [Decided; 1] {
        [Decided {
            action,
            reasons: [None; 2],
        }]
    }

    fn slowdowns(sums: &Sums) -> Vec<f64> {
        let threads = sums.threads.values();
        threads.map(|thread| thread.slowdown().unwrap()).collect()
    }

    #[test]
    fn threads_are_judged_by_where_they_are_wished_and_what_that_is_worth_to_them() {
        let (topology, tasks) = (board(1, 1), two());
        let ran = ran([3.0, 2.0]);
        let mut sums = Sums::default();
        sums.ran(&topology, &tasks, &ran, SECOND);
        assert_eq!(sums.unfairness(), Some(2.0));
        // One runs three times as fast as on the slow core, the other no faster.
        assert_eq!(sums.asp(), Some(2.0));
        let swap = [0, 1].map(|i: usize| (Seen::from(&tasks[i]), 1 - i));
        let decided = decide(Action::Swap(swap));
        sums.decided(&decided, |_| false);
        assert_eq!(sums.swaps, 0, "it was not carried out");
        sums.decided(&decided, |_| true);
        sums.ran(&topology, &tasks, &ran, SECOND);
        assert_eq!(slowdowns(&sums), [1.5, 4.0 / 3.0]);
        assert_eq!(sums.threads.values().map(|t| t.moves).sum::<u64>(), 2);
        for thread in sums.threads.values() {
            assert_eq!(thread.wished_ns[..2], [SECOND as f64; 2]);
        }
    }

    #[test]
    fn one_that_starts_again_and_again_counts_once() {
        let topology = board(1, 1);
        let mut sums = Sums::default();
        for generation in 0..10 {
            let mut tasks = two();
            tasks
                .iter_mut()
                .for_each(|task| task.id.generation = generation);
            sums.ran(&topology, &tasks, &ran([3.0, 2.0]), SECOND);
        }
        assert_eq!(sums.threads.len(), 20);
        assert!((sums.asp().unwrap() - 2.0).abs() < 1e-9, "{:?}", sums.asp());
    }

    #[test]
    fn to_stay_is_a_wish_and_no_move() {
        let tasks = two();
        let mut sums = Sums::default();
        sums.decided(
            &decide(Action::Hint(Seen::from(&tasks[1]), Some(1))),
            |_| true,
        );
        assert_eq!((sums.hints, sums.wishes.len()), (1, 1));
        assert!(sums.threads.values().all(|thread| thread.moves == 0));
    }

    #[test]
    fn no_core_type_does_more_than_it_did() {
        let (topology, tasks) = (board(1, 1), two());
        let mut sums = Sums::default();
        let decided = decide(Action::Hint(Seen::from(&tasks[1]), Some(0)));
        sums.decided(&decided, |_| true);
        sums.ran(&topology, &tasks, &ran([2.0, 2.0]), SECOND);
        assert_eq!(slowdowns(&sums), [4.0 / 3.0; 2]);
    }
}
