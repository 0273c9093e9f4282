// SPDX-License-Identifier: GPL-2.0-or-later
//! `prim`: pairs of threads by lot, and rules that say whether they should change places. The rival of
//! PMCTrack's EF-driven scheduler, by Zhang et al. (2015), as PMCTrack describes it (2017, section 4.2.2):
//! threads begin anywhere. "Every so often, the scheduler randomly selects a certain number of thread
//! pairs", one thread on a fast core and one on a slow one each, and platform-specific rules over their
//! counters say whether a swap saves energy; then they are swapped. Rules say whether, and not how much,
//! so the scheduler takes the first that will do, and not the best.
//!
//! The rules are induced from examples ([`rules`]). As many pairs are drawn as there are threads, and those
//! on one core type come to nothing: how many are drawn there is not said.
//!
//! Of three and more core types pairs are on any two of them, and the rules are the same.

pub mod rules;

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::name::About;
use super::tools::exchange::Exchange;
use super::tools::swap::SwapCandidate;
use super::{Action, Insight, Policy, Reason, Snapshot};
use crate::pmu::Meaning;
use crate::pmu::sample::Sample;
use crate::table::{Task, TaskId};
use crate::topology::Topology;
use rules::{FEATURES, SwapRules, features};

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "prim",
    help: "Pairs by lot, swapped where rules over their counters say that this saves energy; to compare with ef",
    knows: &[],
    build: |settings| {
        Box::new(Prim::new(
            settings.swap_interval,
            settings.swap_rules.cloned(),
        ))
    },
};

/// A sample counts for so much in a thread's mean.
const NEW: f64 = 0.25;

/// See the module.
pub struct Prim {
    interval: Duration,
    rules: SwapRules,
    exchange: Exchange,
    /// What was counted of a thread, on the core type where it was sampled last.
    threads: FxHashMap<TaskId, (usize, [f64; FEATURES])>,
    random: u64,
}

impl Prim {
    /// With a look so often; by the rules of a virtual Juno board where none are given.
    pub fn new(interval: Duration, rules: Option<SwapRules>) -> Self {
        Self {
            interval,
            rules: rules.unwrap_or_else(SwapRules::of_juno),
            exchange: Exchange::default(),
            threads: FxHashMap::default(),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }
}

/// xorshift64*: to draw lots it is good enough, and the same run draws the same.
fn draw(state: &mut u64, below: usize) -> usize {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
}

impl Policy for Prim {
    fn events(&self) -> Option<&'static [Meaning]> {
        Some(&[Meaning::Loads, Meaning::Branches, Meaning::LlcMisses])
    }

    fn rest(&mut self, snapshot: &Snapshot) {
        self.threads.retain(|&id, _| snapshot.is_alive(id));
    }

    fn observe(&mut self, sample: &Sample) {
        let seen = features(&sample.metrics);
        if sample.last || seen.iter().any(|value| !value.is_finite()) {
            return;
        }
        let entry = self.threads.entry(sample.task);
        let (on, means) = entry.or_insert((sample.core_type, seen));
        if std::mem::replace(on, sample.core_type) != sample.core_type {
            *means = seen;
        }
        for (mean, new) in means.iter_mut().zip(seen) {
            *mean += NEW * (new - *mean);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        let Self {
            rules,
            exchange,
            threads,
            random,
            ..
        } = self;
        let alive = |id: &TaskId| snapshot.is_alive(*id);
        threads.retain(|id, _| alive(id));
        if snapshot.topology.types.len() < 2 {
            return;
        }
        exchange.look(snapshot, |_| u64::MAX);
        exchange.rank(snapshot, |_, _| 0);
        let of = |runner: &SwapCandidate| {
            let (on, means) = threads.get(&runner.seen.task)?;
            (*on == runner.place).then_some(means)
        };
        let saves = |down: &SwapCandidate, up: &SwapCandidate| {
            of(down)
                .zip(of(up))
                .is_some_and(|(down, up)| rules.say(down, up))
        };
        exchange.act_by_lot(snapshot, |below| draw(random, below), saves, actions);
    }

    fn reason(&self, task: TaskId) -> Option<Reason> {
        self.exchange.reason(task)
    }

    fn insight(&self, task: &Task, _: &Topology) -> Insight {
        self.exchange.insight(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MS, board, sample, task};

    /// Six threads on two big and four small cores, of these IPC wherever they are; the rules want those of
    /// high IPC on the big ones.
    fn swaps_of(ipc: [f64; 6], looks: u64) -> (Vec<usize>, usize) {
        let mut policy = Prim::new(
            Duration::from_millis(400),
            Some(SwapRules::where_up_has_more_ipc(1.0)),
        );
        let mut tasks: Vec<_> = (0..6).map(|i| task(i, i, usize::from(i >= 2))).collect();
        let mut swaps = 0;
        for look in 1..=looks {
            for (task, ipc) in tasks.iter_mut().zip(ipc) {
                task.run_ns[task.core_type] += 400 * MS;
                policy.observe(&sample(task, ipc, 300.0, 0.0));
            }
            let topology = board(2, 4);
            let snapshot = Snapshot {
                now_ns: look * 400 * MS,
                topology: &topology,
                tasks: &tasks,
            };
            let mut actions = Vec::new();
            policy.decide(&snapshot, &mut actions);
            for action in actions {
                if let Action::Swap(both) = action {
                    swaps += 1;
                    for (seen, to) in both {
                        tasks[seen.task.slot as usize].core_type = to;
                    }
                }
            }
        }
        (tasks.iter().map(|task| task.core_type).collect(), swaps)
    }

    #[test]
    fn pairs_are_swapped_where_the_rules_say_so_and_only_there() {
        let (places, swaps) = swaps_of([0.5, 0.6, 0.4, 2.0, 0.3, 1.8], 40);
        assert_eq!(places, [1, 1, 1, 0, 1, 0]);
        assert_eq!(swaps, 2);
        assert_eq!(swaps_of([0.5; 6], 40).1, 0);
    }

    #[test]
    fn lots_are_drawn_of_all_that_there_is() {
        let mut state = 1;
        let mut seen = [0; 5];
        (0..500).for_each(|_| seen[draw(&mut state, 5)] += 1);
        assert!(seen.iter().all(|&times| times > 60), "{seen:?}");
        assert_eq!(draw(&mut state, 0), 0);
    }
}
