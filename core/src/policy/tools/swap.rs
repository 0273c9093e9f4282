// SPDX-License-Identifier: GPL-2.0-or-later
//! Which threads change places: of each two core types, the thread on the faster one that loses
//! least by leaving it with the one on the slower that gains most by coming there.
//!
//! Where only progress counts (ACFS), that is the thread furthest ahead with the one furthest behind,
//! as in Algorithm 1 of the CAMPS paper (2018, section 4.3). What else counts for `camps` is in
//! [`crate::policy::camps::worth`].

use crate::policy::{Action, Seen};
use crate::table::{Task, TaskId};
use crate::topology::MAX_CORE_TYPES;

/// The most swaps planned in one go; more would be out of date before they are done.
pub(in crate::policy) const MAX_SWAPS: usize = 4;

/// A thread that may be swapped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwapCandidate {
    /// The task as the policy saw it.
    pub seen: Seen,
    /// Core type where it is or is on its way to, index.
    pub place: usize,
    /// CPU on which it ran last.
    pub cpu: u32,
    /// Core types that its affinity allows, a bit each.
    pub allowed: u8,
    /// Core type to which it is hinted, if any.
    pub hint: Option<usize>,
    /// It waits actively; then it goes to no faster type (section 4.5).
    pub spinning: bool,
    /// It was just sent here, and is not sent elsewhere yet.
    pub resting: bool,
    /// Runnable threads of its process.
    pub nr_runnable: u32,
    /// Effective progress, ns, or another rank: low ones belong on fast core types.
    pub progress: i64,
    /// What it is worth that it is on each core type, where a policy says that ([`super::exchange`]).
    pub worth: [f64; MAX_CORE_TYPES],
}

impl SwapCandidate {
    /// A task that is here, or on its way.
    pub fn new(task: &Task, place: usize, progress: i64) -> Self {
        Self {
            seen: task.into(),
            place,
            cpu: task.cpu.max(0) as u32,
            allowed: task.allowed_types,
            hint: task.hint,
            spinning: task.spinning,
            resting: false,
            nr_runnable: task.nr_runnable,
            progress,
            worth: [0.0; MAX_CORE_TYPES],
        }
    }

    fn id(&self) -> TaskId {
        self.seen.task
    }

    /// Whether its affinity lets it run on a core type.
    pub(super) fn may_use(&self, core_type: usize) -> bool {
        self.allowed & (1 << core_type) != 0
    }

    /// Whether it may change places with `other`, which is on a slower type.
    pub(crate) fn may_trade_with(&self, other: &Self) -> bool {
        let apart = self.place < other.place && self.may_use(other.place);
        apart && other.may_use(self.place) && !other.spinning
    }
}

/// Two that change places.
#[derive(Clone, Copy)]
struct Swap {
    down: usize,
    up: usize,
    gain: f64,
}

/// The swaps planned in one go.
#[derive(Default)]
pub(crate) struct PlannedSwaps {
    /// Indices of runners that change places.
    done: [[usize; 2]; MAX_SWAPS],
    swaps: usize,
}

impl PlannedSwaps {
    /// How many there are.
    pub(crate) fn swaps(&self) -> u32 {
        self.swaps as u32
    }

    /// Whether there may be more.
    pub(crate) fn has_room(&self) -> bool {
        self.swaps < MAX_SWAPS
    }

    /// Appends to `actions` the swap of the greatest gain among those that take part in none so far,
    /// and says which goes down and which goes up. `gain(runner, on, and_not)` is what it is worth to the
    /// runner with that index to be on the one core type and not on the other; a swap from `faster` to
    /// `slower` and back must be worth `least(faster, slower)` to the two together. Ties go by
    /// [`TaskId`], so equal input gives equal output. Takes O(n).
    pub(crate) fn add(
        &mut self,
        runners: &[SwapCandidate],
        nr_types: usize,
        gain: impl Fn(usize, usize, usize) -> f64,
        least: impl Fn(usize, usize) -> f64,
        actions: &mut Vec<Action>,
    ) -> Option<[usize; 2]> {
        let done = &self.done[..self.swaps];
        let free =
            |runner: &usize| !runners[*runner].resting && !done.as_flattened().contains(runner);
        let types =
            (0..nr_types).flat_map(|fast| (fast + 1..nr_types).map(move |slow| (fast, slow)));
        let swaps = types.filter_map(|(fast, slow)| {
            let swap = best(runners, fast, slow, |runner| gain(runner, fast, slow), free)?;
            (swap.gain >= least(fast, slow)).then_some(swap)
        });
        let Swap { down, up, .. } = swaps.reduce(|a, b| if b.gain > a.gain { b } else { a })?;
        let [from, to] = [&runners[down], &runners[up]];
        actions.push(Action::Swap([(from.seen, to.place), (to.seen, from.place)]));
        self.done[self.swaps] = [down, up];
        self.swaps += 1;
        Some([down, up])
    }
}

/// The best swap between two core types of those that are `free` for one, if any.
fn best(
    runners: &[SwapCandidate],
    fast: usize,
    slow: usize,
    gain: impl Fn(usize) -> f64,
    free: impl Fn(&usize) -> bool,
) -> Option<Swap> {
    let on = |place: usize, other: usize| {
        let there = move |index: &usize| {
            let runner = &runners[*index];
            runner.place == place && runner.may_use(other)
        };
        (0..runners.len()).filter(there).filter(&free)
    };
    let by_gain = |a: &usize, b: &usize| {
        let ids = || runners[*b].id().cmp(&runners[*a].id());
        gain(*a).total_cmp(&gain(*b)).then_with(ids)
    };
    let down = on(fast, slow).min_by(by_gain)?;
    let up = on(slow, fast).filter(|&index| !runners[index].spinning);
    let up = up.max_by(by_gain)?;
    let gain = gain(up) - gain(down);
    Some(Swap { down, up, gain })
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: i64 = 100;

    fn runner(slot: u32, place: usize, progress: i64) -> SwapCandidate {
        SwapCandidate {
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
            hint: None,
            spinning: false,
            resting: false,
            nr_runnable: 1,
            progress,
            worth: [0.0; MAX_CORE_TYPES],
        }
    }

    #[test]
    fn who_lags_by_less_than_the_threshold_is_no_partner() {
        let ahead = runner(0, 0, 1000);
        assert_eq!(planned(vec![ahead, runner(1, 1, 901)], 2), []);
        assert_eq!(planned(vec![ahead, runner(1, 1, 900)], 2), [(0, 1)]);
        assert_eq!(planned(vec![ahead], 2), []);
    }

    #[test]
    fn affinity_is_respected_both_ways() {
        let mut little_only = runner(1, 1, 0);
        little_only.allowed = 0b10;
        let mut ahead = runner(0, 0, 1000);
        assert_eq!(
            planned(vec![ahead, little_only, runner(2, 1, 850)], 2),
            [(0, 2)]
        );
        ahead.allowed = 0b101;
        assert_eq!(
            planned(vec![ahead, runner(1, 1, 0), runner(2, 2, 850)], 3),
            [(0, 2)]
        );
    }

    #[test]
    fn who_loses_least_makes_room_for_who_gains_most() {
        let runners: Vec<_> = (0..6).map(|i| runner(i, usize::from(i >= 3), 0)).collect();
        let gains = [200.0, 90.0, 150.0, 180.0, 195.0, 60.0];
        let (mut planned, mut actions) = (PlannedSwaps::default(), Vec::new());
        let mut add = || planned.add(&runners, 2, |i, _, _| gains[i], |_, _| 100.0, &mut actions);
        assert_eq!([add(), add()], [Some([1, 4]), None]);
    }

    fn planned(runners: Vec<SwapCandidate>, nr_types: usize) -> Vec<(u32, u32)> {
        let (mut planned, mut actions) = (PlannedSwaps::default(), Vec::new());
        let lag = |runner: usize, _, _| -runners[runner].progress as f64;
        let least = |_, _| THRESHOLD as f64;
        while planned.has_room()
            && planned
                .add(&runners, nr_types, lag, least, &mut actions)
                .is_some()
        {}
        let pair = |action: &Action| match action {
            Action::Swap([(a, _), (b, _)]) => (a.task.slot, b.task.slot),
            other => panic!("{other:?}"),
        };
        actions.iter().map(pair).collect()
    }

    #[test]
    fn those_furthest_ahead_leave_and_those_furthest_behind_enter() {
        let runners = vec![
            runner(0, 0, 500),
            runner(1, 0, 400),
            runner(2, 0, 90),
            runner(3, 1, 10),
            runner(4, 1, 0),
            runner(5, 1, 5),
        ];
        assert_eq!(planned(runners, 2), [(0, 4), (1, 5)]);
    }

    #[test]
    fn who_spins_does_not_go_up() {
        let mut waits = runner(1, 1, 0);
        waits.spinning = true;
        let works = runner(2, 1, 50);
        assert_eq!(planned(vec![runner(0, 0, 500), waits, works], 2), [(0, 2)]);
        // It goes down like all others.
        let mut waits = runner(0, 0, 500);
        waits.spinning = true;
        assert_eq!(planned(vec![waits, works], 2), [(0, 2)]);
    }

    #[test]
    fn who_was_just_sent_somewhere_stays_there() {
        let mut here = runner(0, 0, 500);
        here.resting = true;
        let runners = vec![here, runner(1, 0, 400), runner(2, 1, 0)];
        assert_eq!(planned(runners, 2), [(1, 2)]);
    }

    #[test]
    fn ties_go_by_task() {
        let mut runners = vec![
            runner(7, 0, 500),
            runner(3, 0, 500),
            runner(6, 1, 0),
            runner(2, 1, 0),
        ];
        let one_way = planned(runners.clone(), 2);
        assert_eq!(one_way, [(7, 2), (3, 6)]);
        runners.reverse();
        assert_eq!(planned(runners, 2), one_way);
    }

    #[test]
    fn middle_types_swap_pairwise() {
        let runners = vec![
            runner(0, 0, 1000),
            runner(1, 1, 500),
            runner(2, 1, 450),
            runner(3, 2, 0),
            runner(4, 2, 100),
        ];
        // The fast one takes the place of the laggard on the slowest type, then the middle ones.
        assert_eq!(planned(runners, 3), [(0, 3), (1, 4)]);
    }

    #[test]
    fn only_so_many_swaps_at_once() {
        let runners = (0..100).map(|i| runner(i, (i % 2) as usize, i64::from(i % 2) * -1000));
        assert_eq!(planned(runners.collect(), 2).len(), MAX_SWAPS);
    }
}
