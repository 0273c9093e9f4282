// SPDX-License-Identifier: GPL-2.0-only
//! Who changes places with whom: Algorithm 1 of the CAMPS paper (2018, section 4.3).
//!
//! Among more than two core types, swaps are pairwise: the thread furthest ahead on a type may
//! change places with one that lags on any slower type. Faster types come first.

use super::super::{Action, Seen};
use crate::table::{Task, TaskId};
use crate::topology::MAX_CORE_TYPES;

/// Threads so many thresholds apart change places whatever that does to contention (Algorithm 1).
pub const ESCAPE: i64 = 2;

/// The most swaps planned in one go; more would be out of date before they are done.
const MAX_SWAPS: usize = 4;

/// How many of the threads furthest ahead are tried if affinities forbid their swaps.
const MAX_TRIES: usize = 16;

/// A thread that may be swapped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Runner {
    /// The task as the policy saw it.
    pub seen: Seen,
    /// Core type where it is or is on its way to, index.
    pub place: usize,
    /// CPU on which it ran last.
    pub cpu: u32,
    /// Core types that its affinity allows, a bit each.
    pub allowed: u8,
    /// It waits actively; then it goes to no faster type (section 4.5).
    pub spinning: bool,
    /// Effective progress, ns.
    pub progress: i64,
    /// Its latest BTR where it is, bytes/s.
    pub btr: f64,
    /// What its BTR would be on each core type, bytes/s.
    pub btr_on: [f64; MAX_CORE_TYPES],
}

impl Runner {
    /// One whose BTR is nothing to go by.
    pub fn new(task: &Task, place: usize, progress: i64) -> Self {
        Self {
            seen: task.into(),
            place,
            cpu: task.cpu.max(0) as u32,
            allowed: task.allowed_types,
            spinning: task.spinning,
            progress,
            btr: 0.0,
            btr_on: [0.0; MAX_CORE_TYPES],
        }
    }

    fn id(&self) -> TaskId {
        self.seen.task
    }

    fn may_use(&self, core_type: usize) -> bool {
        self.allowed & (1 << core_type) != 0
    }
}

/// What a swap does to contention.
pub trait Contention {
    /// Whether it would be low on the cluster of `ahead`, the one on the faster type, after it
    /// changed places with `behind`.
    fn is_low_after(&self, ahead: &Runner, behind: &Runner) -> bool;

    /// The two will change places.
    fn note(&mut self, ahead: &Runner, behind: &Runner);
}

/// For policies that know of no contention (ACFS): the thread that lags most is the partner.
pub struct NoContention;

impl Contention for NoContention {
    fn is_low_after(&self, _ahead: &Runner, _behind: &Runner) -> bool {
        true
    }

    fn note(&mut self, _ahead: &Runner, _behind: &Runner) {}
}

/// When threads change places.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// `amp_threshold`, ns of progress.
    pub threshold: i64,
    /// See [`ESCAPE`]; `None` is never.
    pub escape: Option<i64>,
}

impl Rules {
    /// With the paper's escape.
    pub fn new(threshold: i64) -> Self {
        Self {
            threshold,
            escape: Some(ESCAPE),
        }
    }

    fn force(&self, lag: i64) -> bool {
        self.escape
            .is_some_and(|times| lag >= self.threshold.saturating_mul(times))
    }
}

/// How many swaps were planned, and how many of them in spite of contention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    pub swaps: u32,
    pub forced: u32,
}

/// Algorithm 1 for one thread, `ahead`: its partner among those `behind`, which come in ascending
/// order of progress. Times in ns of progress.
pub fn partner<'a>(
    ahead: &Runner,
    behind: impl Iterator<Item = &'a Runner>,
    rules: Rules,
    is_low_after: impl Fn(&Runner) -> bool,
) -> Option<&'a Runner> {
    let mut least: Option<&Runner> = None;
    for candidate in behind {
        let lag = ahead.progress.saturating_sub(candidate.progress);
        if lag < rules.threshold {
            break;
        }
        if !ahead.may_use(candidate.place) || !candidate.may_use(ahead.place) {
            continue;
        }
        if rules.force(lag) || is_low_after(candidate) {
            return Some(candidate);
        }
        if least.is_none_or(|least| candidate.btr < least.btr) {
            least = Some(candidate);
        }
    }
    least
}

/// Plans swaps among `runners` and appends them to `actions`. Ties go by
/// [`TaskId`], so equal input gives equal output. Takes O(n log n).
pub fn plan(
    runners: &mut [Runner],
    nr_types: usize,
    rules: Rules,
    contention: &mut impl Contention,
    actions: &mut Vec<Action>,
) -> Planned {
    runners.sort_unstable_by_key(|runner| (runner.progress, runner.id()));
    let mut done: [Option<[TaskId; 2]>; MAX_SWAPS] = [None; MAX_SWAPS];
    let mut planned = Planned::default();
    for place in 0..nr_types.saturating_sub(1) {
        let fast = runners.iter().rev().filter(|runner| runner.place == place);
        for ahead in fast.take(MAX_TRIES) {
            if planned.swaps == MAX_SWAPS as u32 {
                return planned;
            }
            let is_free = |runner: &Runner| {
                !done
                    .iter()
                    .flatten()
                    .any(|pair| pair.contains(&runner.id()))
            };
            let slower =
                |runner: &&Runner| runner.place > place && !runner.spinning && is_free(runner);
            let low = |candidate: &Runner| contention.is_low_after(ahead, candidate);
            if !is_free(ahead) {
                continue;
            }
            let behind = runners.iter().filter(slower);
            let Some(candidate) = partner(ahead, behind, rules, low) else {
                continue;
            };
            let lag = ahead.progress.saturating_sub(candidate.progress);
            planned.forced += u32::from(rules.force(lag) && !low(candidate));
            contention.note(ahead, candidate);
            actions.push(Action::Swap([
                (ahead.seen, candidate.place),
                (candidate.seen, place),
            ]));
            done[planned.swaps as usize] = Some([ahead.id(), candidate.id()]);
            planned.swaps += 1;
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: i64 = 100;

    fn runner(slot: u32, place: usize, progress: i64, btr: f64) -> Runner {
        Runner {
            seen: Seen {
                task: TaskId {
                    slot,
                    generation: 1,
                },
                on: place,
            },
            place,
            cpu: slot,
            allowed: 0b1111,
            spinning: false,
            progress,
            btr,
            btr_on: [btr; MAX_CORE_TYPES],
        }
    }

    fn choose(behind: &[Runner], friendly: &[u32]) -> Option<u32> {
        let ahead = runner(0, 0, 1000, 5.0);
        let low = |candidate: &Runner| friendly.contains(&candidate.seen.task.slot);
        partner(&ahead, behind.iter(), Rules::new(THRESHOLD), low)
            .map(|runner| runner.seen.task.slot)
    }

    #[test]
    fn the_first_contention_friendly_thread_that_lags_is_the_partner() {
        let behind = [
            runner(1, 1, 810, 9.0),
            runner(2, 1, 850, 1.0),
            runner(3, 1, 860, 3.0),
        ];
        assert_eq!(choose(&behind, &[1, 2, 3]), Some(1));
        assert_eq!(choose(&behind, &[3]), Some(3));
    }

    #[test]
    fn without_a_friendly_one_it_is_the_one_with_the_lowest_btr() {
        let behind = [
            runner(1, 1, 810, 9.0),
            runner(2, 1, 850, 1.0),
            runner(3, 1, 860, 3.0),
        ];
        assert_eq!(choose(&behind, &[]), Some(2));
    }

    #[test]
    fn twice_the_threshold_forces_the_swap() {
        let behind = [runner(1, 1, 800, 9.0), runner(2, 1, 850, 1.0)];
        assert_eq!(choose(&behind, &[2]), Some(1));
    }

    #[test]
    fn who_lags_by_less_than_the_threshold_is_no_partner() {
        assert_eq!(choose(&[runner(1, 1, 901, 0.0)], &[1]), None);
        assert_eq!(choose(&[runner(1, 1, 900, 0.0)], &[1]), Some(1));
        assert_eq!(choose(&[], &[]), None);
    }

    #[test]
    fn affinity_is_respected_both_ways() {
        let mut little_only = runner(1, 1, 0, 0.0);
        little_only.allowed = 0b10;
        let free = runner(2, 1, 850, 0.0);
        assert_eq!(choose(&[little_only, free], &[1, 2]), Some(2));
        let mut ahead = runner(0, 0, 1000, 0.0);
        ahead.allowed = 0b101;
        let behind = [runner(1, 1, 0, 0.0), runner(2, 2, 850, 0.0)];
        let chosen = partner(&ahead, behind.iter(), Rules::new(THRESHOLD), |_| true);
        assert_eq!(chosen, Some(&behind[1]));
    }

    fn planned(mut runners: Vec<Runner>, nr_types: usize) -> Vec<(u32, u32)> {
        let mut actions = Vec::new();
        plan(
            &mut runners,
            nr_types,
            Rules::new(THRESHOLD),
            &mut NoContention,
            &mut actions,
        );
        let pair = |action: &Action| match action {
            Action::Swap([(a, _), (b, _)]) => (a.task.slot, b.task.slot),
            other => panic!("{other:?}"),
        };
        actions.iter().map(pair).collect()
    }

    #[test]
    fn those_furthest_ahead_leave_and_those_furthest_behind_enter() {
        let runners = vec![
            runner(0, 0, 500, 0.0),
            runner(1, 0, 400, 0.0),
            runner(2, 0, 90, 0.0),
            runner(3, 1, 10, 0.0),
            runner(4, 1, 0, 0.0),
            runner(5, 1, 5, 0.0),
        ];
        assert_eq!(planned(runners, 2), [(0, 4), (1, 5)]);
    }

    #[test]
    fn who_spins_does_not_go_up() {
        let mut waits = runner(1, 1, 0, 0.0);
        waits.spinning = true;
        let works = runner(2, 1, 50, 0.0);
        assert_eq!(
            planned(vec![runner(0, 0, 500, 0.0), waits, works], 2),
            [(0, 2)]
        );
        // It goes down like everybody.
        let mut waits = runner(0, 0, 500, 0.0);
        waits.spinning = true;
        assert_eq!(planned(vec![waits, works], 2), [(0, 2)]);
    }

    #[test]
    fn ties_go_by_task() {
        let mut runners = vec![
            runner(7, 0, 500, 0.0),
            runner(3, 0, 500, 0.0),
            runner(6, 1, 0, 0.0),
            runner(2, 1, 0, 0.0),
        ];
        let one_way = planned(runners.clone(), 2);
        assert_eq!(one_way, [(7, 2), (3, 6)]);
        runners.reverse();
        assert_eq!(planned(runners, 2), one_way);
    }

    #[test]
    fn middle_types_swap_pairwise() {
        let runners = vec![
            runner(0, 0, 1000, 0.0),
            runner(1, 1, 500, 0.0),
            runner(2, 1, 450, 0.0),
            runner(3, 2, 0, 0.0),
            runner(4, 2, 100, 0.0),
        ];
        // The fast one takes the place of the laggard on the slowest type, then the middle ones.
        assert_eq!(planned(runners, 3), [(0, 3), (1, 4)]);
    }

    #[test]
    fn only_so_many_swaps_at_once() {
        let runners = (0..100).map(|i| runner(i, (i % 2) as usize, i64::from(i % 2) * -1000, 0.0));
        assert_eq!(planned(runners.collect(), 2).len(), MAX_SWAPS);
    }
}
