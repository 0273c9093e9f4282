// SPDX-License-Identifier: GPL-2.0-or-later
//! Why threads are moved: kept while a policy decides, put in words here and nowhere else.

use serde::{Deserialize, Serialize};

use super::Action;
use super::tools::swap::{MAX_SWAPS, SwapCandidate};
use crate::table::TaskId;
use crate::text::grouped;

/// What two threads were compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// A rank of the policy's own: low ones belong on fast core types.
    #[default]
    Rank,
    /// Effective progress, ns.
    Progress,
    /// Lead over where the mean slowdown of all would have it, ns.
    Lead,
    /// CPU time scaled by the core type's rating and by weight, ns.
    ScaledTime,
    /// CPU time on the fastest core type, ns.
    BigTime,
    /// What a fast core is worth, in millionths below nothing, so that low ranks are high utilities.
    Utility,
    /// The logarithm of what a fast core is worth to the objective, EF say, in millionths below nothing.
    Efficiency,
}

/// Why a thread was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// It changed places with one that it was compared with.
    Compared {
        /// By what.
        by: Measure,
        /// Its own.
        own: i64,
        /// The other's.
        other: i64,
    },
    /// Where it stands in the ranking of all that compete for fast cores.
    Ranked {
        /// Its SF, in hundredths.
        sf: u32,
        /// Its place, of which 1 is the best.
        rank: u32,
        /// How many there are.
        of: u32,
    },
    /// There was room on a faster core type.
    Room,
    /// There were more threads on its core type than that should hold.
    Crowded,
    /// It, or the one it changed places with, is to be measured there.
    Explore,
    /// NWC mode: it is to be measured on the fastest core type without contention.
    Undisturbed,
    /// It made room for such a one.
    MadeRoom,
    /// It changed places with one so that the two are less in the way of others.
    Relief,
    /// Its session's goal needs it there. All in hundredths.
    Goal {
        /// Beats/s.
        rate: u32,
        /// Beats/s.
        target: u32,
        /// Fast cores that this takes.
        needs: u32,
        /// Fast cores that it has.
        has: u32,
    },
    /// A rule over the counters of both that changed places said so.
    Rule,
    /// While energy is saved: its work costs least there.
    Cheapest,
    /// It changed places with one of the same core type so that threads of one core (SMT) are less in each other's way.
    Siblings,
}

impl Measure {
    fn words(self, own: i64, other: i64) -> String {
        let ms = |ns: i64| grouped(ns / 1_000_000);
        let order = |more: &'static str, less: &'static str| {
            if own == other {
                "level with"
            } else if own > other {
                more
            } else {
                less
            }
        };
        let times =
            |what: &str, order: &str| format!("{what} {} ms {order} {}", ms(own), ms(other));
        match self {
            Self::Rank => format!("rank {} {} {}", own, order("after", "before"), other),
            Self::Progress => times("progress", order("ahead of", "behind")),
            Self::Lead => times("lead over the mean slowdown", order("above", "below")),
            Self::ScaledTime => times("scaled CPU time", order("ahead of", "behind")),
            Self::BigTime => times("fast-core time", order("ahead of", "behind")),
            Self::Utility => {
                let utility = |rank: i64| -rank as f64 / 1e6;
                let order = order("below", "above");
                format!("utility {:.2} {order} {:.2}", utility(own), utility(other))
            }
            Self::Efficiency => {
                let factor = |rank: i64| (-rank as f64 / 1e6).exp();
                let order = order("below", "above");
                format!("factor {:.2} {order} {:.2}", factor(own), factor(other))
            }
        }
    }
}

impl Reason {
    /// In words that follow "moved" or "swapped with 1234".
    pub fn words(self) -> String {
        match self {
            Self::Compared { by, own, other } => by.words(own, other),
            Self::Ranked { sf, rank, of } => {
                format!("SF {:.2}, rank {rank} of {of}", f64::from(sf) / 100.0)
            }
            Self::Room => "there was room on a faster core type".into(),
            Self::Crowded => "too many threads on its core type".into(),
            Self::Explore => "to be measured there".into(),
            Self::Undisturbed => "to be measured undisturbed (NWC mode)".into(),
            Self::MadeRoom => "made room for one to be measured undisturbed (NWC mode)".into(),
            Self::Rule => "by a rule over the counters of both".into(),
            Self::Cheapest => "its work takes least energy there".into(),
            Self::Relief => "so that others wait less for memory".into(),
            Self::Siblings => "so that threads of one core are less in each other's way".into(),
            Self::Goal {
                rate,
                target,
                needs,
                has,
            } => {
                let [rate, target, needs, has] =
                    [rate, target, needs, has].map(|it| f64::from(it) / 100.0);
                format!(
                    "goal: {rate:.1} of {target} beats/s, needs {needs:.2} fast cores, has {has:.2}"
                )
            }
        }
    }
}

/// The reasons of one decision.
#[derive(Debug, Default)]
pub struct Reasons {
    moved: Vec<(TaskId, Reason)>,
}

impl Reasons {
    /// Forgets those of the last decision, and has room for those of as many swaps as there may be.
    pub fn begin(&mut self) {
        self.moved.clear();
        self.moved.reserve(2 * MAX_SWAPS);
    }

    /// Notes why one thread is moved.
    pub fn note(&mut self, task: TaskId, reason: Reason) {
        self.moved.push((task, reason));
    }

    /// Why a thread is moved; `None` if it is not.
    pub fn of(&self, task: TaskId) -> Option<Reason> {
        let mut moved = self.moved.iter();
        Some(moved.find(|(moved, _)| *moved == task)?.1)
    }

    /// Notes that `actions` put numbers right.
    pub fn balanced(&mut self, actions: &[Action]) {
        for action in actions {
            if let Action::Hint(seen, Some(to)) = action {
                let reason = if *to < seen.on {
                    Reason::Room
                } else {
                    Reason::Crowded
                };
                self.note(seen.task, reason);
            }
        }
    }

    /// Notes that both threads of each swap in `actions` are moved to be measured.
    pub fn explored(&mut self, actions: &[Action]) {
        for action in actions {
            if let Action::Swap(pair) = action {
                for (seen, _) in pair {
                    self.note(seen.task, Reason::Explore);
                }
            }
        }
    }

    /// Notes that swaps in `actions` follow from what `runners` were compared by; or, where the first
    /// of two does not come after the second, from what the two do to others.
    pub fn compared(&mut self, actions: &[Action], by: Measure, runners: &[SwapCandidate]) {
        let rank = |task| {
            let mut runners = runners.iter();
            Some(runners.find(|runner| runner.seen.task == task)?.progress)
        };
        for action in actions {
            let Action::Swap([(one, _), (two, _)]) = action else {
                continue;
            };
            if let (Some(a), Some(b)) = (rank(one.task), rank(two.task)) {
                for (task, own, other) in [(one.task, a, b), (two.task, b, a)] {
                    let compared = Reason::Compared { by, own, other };
                    self.note(task, if a < b { Reason::Relief } else { compared });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Seen;

    const fn seen(slot: u32, on: usize) -> Seen {
        let generation = 1;
        Seen {
            task: TaskId { slot, generation },
            on,
        }
    }

    #[test]
    fn a_swap_is_told_from_both_sides() {
        let reason = |own, other| Reason::Compared {
            by: Measure::Progress,
            own,
            other,
        };
        let (much, less) = (14_300_000_000, 9_100_000_000);
        assert_eq!(
            reason(much, less).words(),
            "progress 14,300 ms ahead of 9,100"
        );
        assert_eq!(
            reason(less, much).words(),
            "progress 9,100 ms behind 14,300"
        );
        let utility = Reason::Compared {
            by: Measure::Utility,
            own: -300_000,
            other: -1_520_000,
        };
        assert_eq!(utility.words(), "utility 0.30 below 1.52");
    }

    #[test]
    fn a_rank_is_told_with_the_sf_that_it_comes_from() {
        let (sf, rank, of) = (213, 3, 12);
        let words = Reason::Ranked { sf, rank, of }.words();
        assert_eq!(words, "SF 2.13, rank 3 of 12");
    }

    #[test]
    fn a_goal_is_told_with_what_it_needs() {
        let goal = Reason::Goal {
            rate: 2412,
            target: 2997,
            needs: 240,
            has: 160,
        };
        let words = "goal: 24.1 of 29.97 beats/s, needs 2.40 fast cores, has 1.60";
        assert_eq!(goal.words(), words);
    }

    #[test]
    fn each_move_has_the_reason_of_its_decision() {
        let mut reasons = Reasons::default();
        reasons.balanced(&[
            Action::Hint(seen(1, 1), Some(0)),
            Action::Hint(seen(2, 0), Some(1)),
        ]);
        reasons.explored(&[Action::Swap([(seen(3, 0), 1), (seen(4, 1), 0)])]);
        let of = |reasons: &Reasons, slot| reasons.of(seen(slot, 0).task);
        assert_eq!(of(&reasons, 1), Some(Reason::Room));
        assert_eq!(of(&reasons, 2), Some(Reason::Crowded));
        assert_eq!(of(&reasons, 4), Some(Reason::Explore));
        reasons.begin();
        assert_eq!(of(&reasons, 1), None);
    }
}
