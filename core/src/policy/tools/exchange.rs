// SPDX-License-Identifier: GPL-2.0-or-later
//! What the policies that exchange threads have in common: which of them take part, how they rank, and the
//! moves that follow. Ranks are what the policies differ in: a number for each thread, or what each
//! core type is worth to it.

use super::balance::balance;
use super::explore::Explorer;
use super::is_contested;
use super::progress::Progress;
use super::speedup::Speedups;
use super::swap::{PlannedSwaps, SwapCandidate};
use crate::placement;
use crate::policy::reason::{Measure, Reason, Reasons};
use crate::policy::{Action, Insight, Snapshot};
use crate::table::{Task, TaskId};
use crate::topology::MAX_CORE_TYPES;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    progress: Progress,
    runners: Vec<SwapCandidate>,
    reasons: Reasons,
    /// What ranks are.
    measure: Measure,
    looked_at_ns: Option<u64>,
    elapsed_ns: u64,
}

impl Exchange {
    /// One whose ranks are so measured; ranks of no meaning by default.
    pub(crate) fn by(measure: Measure) -> Self {
        Self {
            measure,
            ..Self::default()
        }
    }

    /// Why a thread was just moved.
    pub(crate) fn reason(&self, task: TaskId) -> Option<Reason> {
        self.reasons.of(task)
    }

    /// What is known of a thread.
    pub(crate) fn insight(&self, task: &Task) -> Insight {
        Insight {
            takes_part: Some(self.progress.takes_part(task)),
            progress_ns: self.progress.of(task),
            ..Insight::default()
        }
    }

    /// Looks which threads take part; see [`Progress::update`] for `patience`, ns.
    pub(crate) fn look(&mut self, snapshot: &Snapshot, patience: impl Fn(TaskId) -> u64) {
        self.reasons.begin();
        self.progress.update(snapshot, patience);
        let before = self.looked_at_ns.unwrap_or(snapshot.now_ns);
        self.elapsed_ns = snapshot.now_ns.saturating_sub(before);
        self.looked_at_ns = Some(snapshot.now_ns);
    }

    /// The tasks that take part.
    pub(crate) fn taking_part<'a>(
        &'a self,
        snapshot: &Snapshot<'a>,
    ) -> impl Iterator<Item = &'a Task> {
        let tasks = snapshot.tasks.iter();
        tasks.filter(|task| self.progress.takes_part(task))
    }

    /// Ranks those that take part: low ranks belong on fast core types. `rank` is given the task and
    /// its effective progress in ns, and may return just that.
    pub(crate) fn rank(&mut self, snapshot: &Snapshot, mut rank: impl FnMut(&Task, i64) -> i64) {
        self.runners.clear();
        for task in snapshot.tasks {
            if self.progress.takes_part(task) {
                let rank = rank(task, self.progress.of(task).unwrap_or_default());
                let place = self.progress.place(task);
                self.runners.push(SwapCandidate::new(task, place, rank));
            }
        }
    }

    /// Ranks those that take part by what each core type is worth to them, in the unit of the measure.
    /// Where only one of two can be on the fastest type, it is the one that gains more over the slowest
    /// type that so many threads fill.
    pub(crate) fn rank_by_worth(
        &mut self,
        snapshot: &Snapshot,
        mut worth: impl FnMut(&Task) -> [f64; MAX_CORE_TYPES],
    ) {
        let busy = snapshot.tasks.iter().filter(|t| self.progress.is_busy(t));
        let shares = placement::shares(snapshot.topology, busy.count());
        let slowest = shares.iter().rposition(|&share| share > 0).unwrap_or(0);
        self.runners.clear();
        for task in snapshot.tasks {
            if self.progress.takes_part(task) {
                let worth = worth(task);
                let rank = worth[slowest] - worth[0];
                let place = self.progress.place(task);
                let mut runner = SwapCandidate::new(task, place, rank as i64);
                runner.worth = worth;
                self.runners.push(runner);
            }
        }
    }

    /// Time since the last look but one in which threads competed for faster cores, ns.
    pub(crate) fn contested_ns(&self) -> u64 {
        if is_contested(&self.runners) {
            self.elapsed_ns
        } else {
            0
        }
    }

    /// Appends what is to be done, where threads are ranked by a number: right numbers on every core
    /// type first, then what `explorer` wants to see, then exchanges of threads whose ranks are `apart`
    /// or more in the wrong order. Says how many of the last.
    pub(crate) fn act(
        &mut self,
        snapshot: &Snapshot,
        explorer: Option<(&mut Explorer, &Speedups)>,
        apart: i64,
        actions: &mut Vec<Action>,
    ) -> u32 {
        let lag = |runner: &SwapCandidate, _, _| -runner.progress as f64;
        self.act_by(snapshot, explorer, lag, apart as f64, actions)
    }

    /// The same where they are ranked by what core types are worth: exchanges must be worth `least` to
    /// the two together.
    pub(crate) fn act_by_worth(
        &mut self,
        snapshot: &Snapshot,
        explorer: Option<(&mut Explorer, &Speedups)>,
        least: f64,
        actions: &mut Vec<Action>,
    ) -> u32 {
        let gain = |runner: &SwapCandidate, on: usize, and_not: usize| {
            runner.worth[on] - runner.worth[and_not]
        };
        self.act_by(snapshot, explorer, gain, least, actions)
    }

    /// The same where pairs are drawn by lot, as many as there are threads; those on one core type come to
    /// nothing. `draw` says a number below its argument, `should` whether the first, on the faster type,
    /// and the second are to change places.
    pub(crate) fn act_by_lot(
        &mut self,
        snapshot: &Snapshot,
        mut draw: impl FnMut(usize) -> usize,
        should: impl Fn(&SwapCandidate, &SwapCandidate) -> bool,
        actions: &mut Vec<Action>,
    ) {
        self.progress.release(snapshot, actions);
        let first = actions.len();
        if self.is_balanced(snapshot, actions) {
            self.runners.retain(|runner| !runner.resting);
            for _ in 0..self.runners.len() {
                if self.runners.is_empty() {
                    break;
                }
                let [a, b] = [(); 2].map(|()| draw(self.runners.len()));
                let (down, up) = if self.runners[a].place < self.runners[b].place {
                    (a, b)
                } else {
                    (b, a)
                };
                let [from, to] = [&self.runners[down], &self.runners[up]];
                if from.may_trade_with(to) && should(from, to) {
                    actions.push(Action::Swap([(from.seen, to.place), (to.seen, from.place)]));
                    for task in [from.seen.task, to.seen.task] {
                        self.reasons.note(task, Reason::Rule);
                    }
                    // Each takes part in one swap at the most.
                    self.runners.swap_remove(down.max(up));
                    self.runners.swap_remove(down.min(up));
                }
            }
        }
        self.progress.note(&actions[first..], snapshot.now_ns);
    }

    /// Right numbers on every core type come first: whether nothing is to be done for them. Then threads are settled.
    fn is_balanced(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) -> bool {
        let first = actions.len();
        balance(snapshot, &self.progress, &mut self.runners, actions);
        self.reasons.balanced(&actions[first..]);
        let balanced = actions.len() == first;
        if balanced {
            self.progress.settled(&mut self.runners);
        }
        balanced
    }

    fn act_by(
        &mut self,
        snapshot: &Snapshot,
        explorer: Option<(&mut Explorer, &Speedups)>,
        gain: impl Fn(&SwapCandidate, usize, usize) -> f64,
        least: f64,
        actions: &mut Vec<Action>,
    ) -> u32 {
        let nr_types = snapshot.topology.types.len();
        self.progress.release(snapshot, actions);
        let first = actions.len();
        let mut exchanged = 0;
        if self.is_balanced(snapshot, actions) {
            if let Some((explorer, speedups)) = explorer {
                explorer.step(snapshot, speedups, &mut self.runners, actions);
                self.reasons.explored(&actions[first..]);
            }
            let runners = &self.runners;
            let of = |runner: usize, on, and_not| gain(&runners[runner], on, and_not);
            let mut planned = PlannedSwaps::default();
            while planned.has_room()
                && let Some([down, up]) = planned.add(runners, nr_types, of, |_, _| least, actions)
            {
                let (fast, slow) = (runners[down].place, runners[up].place);
                let [a, b] = [down, up].map(|runner| -of(runner, fast, slow) as i64);
                for (runner, own, other) in [(down, a, b), (up, b, a)] {
                    let by = self.measure;
                    let task = runners[runner].seen.task;
                    self.reasons.note(task, Reason::Compared { by, own, other });
                }
            }
            exchanged = planned.swaps();
        }
        self.progress.note(&actions[first..], snapshot.now_ns);
        exchanged
    }
}
