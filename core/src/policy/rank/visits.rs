// SPDX-License-Identifier: GPL-2.0-or-later
//! Short visits to another core type: where it is not sure which of two threads gains more from the faster
//! one, they change places until both were measured there. That costs a part of a second of what the two
//! differ by, which is little where that is in doubt; a wrong place costs as much all the time.
//!
//! A thread is unsure if its score is near the border between those that have a place on the faster type and
//! those that have none, or if so little is known of it that the score says nothing. And however sure a model is of a
//! thread, one that keeps a place on a faster type is tried once: some programs are like none that a model was learnt from.

use rustc_hash::FxHashMap;

use super::{Ranked, STEADY};
use crate::policy::Reason;
use crate::table::TaskId;

/// What an estimate may err by without a visit, of the logarithm: what was measured half a minute ago does
/// not, nor what a model says that was right about a thread or two.
pub(super) const SURE: f64 = 0.1;

/// What errs by more, of the logarithm, says nothing: the SFs of programs do not differ by much more.
const LOST: f64 = 0.15;

/// A score is in doubt that is nearer to the border than so many standard errors. A visit of 0.3 s is worth
/// as much as a minute in a wrong place, times how likely that is, at 2.
const NEAR: f64 = 2.0;

/// For so long a thread has a faster core by a model's word alone, ns of its CPU time: a visit takes a tenth of it at most.
pub(super) const TRUSTED_NS: u64 = 5_000_000_000;

/// The longest visit, ns. It is over as soon as both threads were measured.
const VISIT_NS: u64 = 500_000_000;

/// A visit of a thread that brought nothing is not tried again before, ns.
const RETRY_NS: u64 = 3_000_000_000;

/// An exchange at once for so many threads.
const THREADS_PER_EXCHANGE: usize = 4;

/// The most exchanges at once.
const MAX_EXCHANGES: usize = 4;

/// The part of their time that threads spend on visits, but for the first one of each.
const SHARE: f64 = 0.05;

/// Two threads that have changed places.
#[derive(Clone, Copy, Debug)]
struct Visit {
    /// Which, and to which core types.
    pair: [(TaskId, usize); 2],
    since_ns: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Visits {
    under_way: Vec<Visit>,
    /// When the last visit of a thread began, ns.
    tried: FxHashMap<TaskId, u64>,
    /// Time that may be spent, ns.
    credit_ns: f64,
    looked_at_ns: Option<u64>,
    /// Threads that had credit for a start.
    threads: usize,
}

impl Visits {
    /// Sends threads that are unsure on a visit, keeps those on one where they are, and ends visits. To be
    /// called when it is known where all others should be.
    pub(super) fn step(&mut self, now_ns: u64, ranked: &mut [Ranked]) {
        self.earn(now_ns, ranked.len());
        self.end(now_ns, ranked);
        let most = (ranked.len() / THREADS_PER_EXCHANGE).clamp(1, MAX_EXCHANGES);
        while self.under_way.len() < most && self.credit_ns > 0.0 && self.begin(now_ns, ranked) {}
        for visit in &self.under_way {
            for (task, to) in visit.pair {
                if let Some(thread) = ranked.iter_mut().find(|it| it.seen.task == task) {
                    thread.to = to;
                }
            }
        }
    }

    /// Why a thread is moved.
    pub(super) fn reason(&self, thread: &Ranked, slowest: usize) -> Reason {
        match self.has(thread.seen.task) {
            true => Reason::Explore,
            false => thread.reason(slowest),
        }
    }

    /// Where a thread belongs that is on a visit.
    pub(super) fn home(&self, task: TaskId) -> Option<usize> {
        self.under_way.iter().find_map(|visit| {
            let [(one, to_one), (two, to_two)] = visit.pair;
            match task {
                _ if task == one => Some(to_two),
                _ if task == two => Some(to_one),
                _ => None,
            }
        })
    }

    fn has(&self, task: TaskId) -> bool {
        let mut all = self.under_way.iter().flat_map(|visit| visit.pair);
        all.any(|(visitor, _)| visitor == task)
    }

    /// Every thread has a visit for a start.
    fn earn(&mut self, now_ns: u64, threads: usize) {
        let elapsed = now_ns.saturating_sub(self.looked_at_ns.unwrap_or(now_ns));
        self.looked_at_ns = Some(now_ns);
        let first = threads.saturating_sub(self.threads) as f64 * VISIT_NS as f64;
        if threads > self.threads {
            self.threads = threads;
            // Nothing is to be allocated later.
            self.tried.reserve(2 * threads + 2 * MAX_EXCHANGES);
            self.under_way.reserve(MAX_EXCHANGES);
        }
        let earned = SHARE * elapsed as f64 * threads as f64;
        let most = threads as f64 * VISIT_NS as f64;
        self.credit_ns = (self.credit_ns + first + earned).min(most);
    }

    /// Ends visits that have lasted long enough.
    fn end(&mut self, now_ns: u64, ranked: &[Ranked]) {
        let credit_ns = &mut self.credit_ns;
        self.under_way.retain(|visit| {
            let [(_, one), (_, two)] = visit.pair;
            let measured = visit.pair.iter().all(|(task, to)| {
                let thread = ranked.iter().find(|it| it.seen.task == *task);
                // One that is gone keeps nothing waiting.
                thread.is_none_or(|it| {
                    let sure = it.speeds.sigma(one, two) <= SURE;
                    it.seen.on == *to && it.speeds.is_measured(*to) && sure
                })
            });
            let took = now_ns.saturating_sub(visit.since_ns);
            let ends = measured || took >= VISIT_NS;
            if ends {
                *credit_ns -= 2.0 * took as f64;
            }
            !ends
        });
        if self.tried.len() > 2 * ranked.len() {
            self.tried.retain(|_, began| now_ns - *began < RETRY_NS);
        }
    }

    /// Lets two threads change places; says whether there may be two more.
    fn begin(&mut self, now_ns: u64, ranked: &[Ranked]) -> bool {
        let may = |it: &&Ranked| {
            let tried = self.tried.get(&it.seen.task);
            it.may_visit()
                && tried.is_none_or(|began| now_ns - began >= RETRY_NS)
                && !self.has(it.seen.task)
        };
        let by_doubt = |a: &&Ranked, b: &&Ranked| a.doubt.total_cmp(&b.doubt);
        let unsure = |it: &&Ranked| {
            let untried = it.on_trust && it.seen.on < it.other;
            (it.doubt > 0.0 && !it.is_sure()) || it.is_lost() || untried
        };
        let Some(first) = ranked.iter().filter(unsure).filter(may).max_by(by_doubt) else {
            return false;
        };
        let fits = |it: &&Ranked| it.seen.on == first.other && it.other == first.seen.on;
        let others = || ranked.iter().filter(fits).filter(may);
        let second = others().filter(unsure).max_by(by_doubt);
        // Where it makes no difference otherwise, one is tried with it of which a model alone says that it gains little. What makes
        // room loses least where it is as near to the border as can be.
        let second = second.or_else(|| others().filter(|it| it.on_trust).max_by(by_doubt));
        let second = second.or_else(|| others().max_by(by_doubt));
        let Some(second) = second else {
            // Another may have better luck at the next look.
            self.tried.insert(first.seen.task, now_ns);
            return false;
        };
        let pair = [first, second].map(|it| (it.seen.task, it.other));
        for (task, _) in pair {
            self.tried.insert(task, now_ns);
        }
        let since_ns = now_ns;
        self.under_way.push(Visit { pair, since_ns });
        true
    }
}

/// See [`Ranked::doubt`]: of a score that may err by `sigma`, and is so far from the border.
pub(super) fn doubt(sigma: f64, apart: f64) -> f64 {
    NEAR * sigma - apart.abs()
}

impl Ranked {
    fn is_lost(&self) -> bool {
        self.speeds.sigma(self.seen.on, self.other) > LOST
    }

    /// Whether it is sure enough how it compares on the two sides of the border.
    fn is_sure(&self) -> bool {
        self.speeds.sigma(self.seen.on, self.other) <= SURE
    }

    /// Only a thread that is where it should be, and was measured there: elsewhere it may be that nothing
    /// can be counted at all.
    fn may_visit(&self) -> bool {
        self.settled
            && self.to == self.seen.on
            && self.takes > STEADY
            && self.other != self.seen.on
            && self.may_use(self.other)
            && self.speeds.is_measured(self.seen.on)
    }
}
