// SPDX-License-Identifier: GPL-2.0-only
//! What the user's rules say of goals (`goal =` in `rules.toml`), and the sessions that these fit.

use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{GoalSessions, GoalTarget, SessionReading};

/// Sessions whose rules are looked up at one look at the sessions: each takes some small reads of files.
const LOOKUPS: usize = 8;

/// How soon a process is looked up again: it may have become another program, or be in another cgroup.
const AGAIN: Duration = Duration::from_secs(1);

/// What a rule says of the goals of the programs that it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuledGoal {
    /// They have none.
    Forbidden,
    /// They have this one.
    Given {
        /// The target, whatever the program wants, in thousandths of a beat per second.
        rate: Option<u64>,
        /// The most that it may want, likewise.
        most: Option<u64>,
        /// How much it counts where goals exceed the machine.
        weight: Option<u32>,
    },
}

/// Whose a session's target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GoalSource {
    /// The program's.
    #[default]
    Own,
    /// A rule's.
    Rule,
    /// An administrator's, by `goal set` or `goal remove`.
    Set,
}

impl GoalSource {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Rule => "rule",
            Self::Set => "set",
        }
    }
}

impl RuledGoal {
    /// What becomes of what a program wants: its target, the weight that the rule gives it, and whose the target is. What the target is
    /// held against stays as the program has it.
    pub(super) fn apply(self, own: GoalTarget) -> (GoalTarget, Option<u32>, GoalSource) {
        let Self::Given { rate, most, weight } = self else {
            return (GoalTarget::None, None, GoalSource::Rule);
        };
        let capped = most.filter(|&most| own.thousandths() > most);
        match rate.or(capped) {
            Some(target) => (own.with(target), weight, GoalSource::Rule),
            None => (own, weight, GoalSource::Own),
        }
    }
}

/// Which rules fit which sessions, as far as that was looked up.
#[derive(Debug, Default)]
pub struct GoalRules {
    /// By session: when it was looked up last, ns, and by which generation of the rules.
    looked: FxHashMap<u64, (u64, u32)>,
    generation: u32,
    /// The session whose turn is next, of those that are looked up again.
    next: u64,
    behind: bool,
}

impl GoalRules {
    /// The rules are others from now on.
    pub fn renew(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Whether some sessions still wait for their first time.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Looks up sessions at `now_ns`; whether any was. First those that are new or know only older rules, then others, each in
    /// its turn. `any` is whether a rule says anything of goals, and `rule` what is said of a process.
    pub fn look_up(
        &mut self,
        sessions: &GoalSessions,
        readings: &[SessionReading],
        (now_ns, any): (u64, bool),
        mut rule: impl FnMut(u32) -> Option<RuledGoal>,
    ) -> bool {
        let changed = sessions.await_rules(any);
        self.behind = false;
        if !any {
            self.looked.clear();
            return changed;
        }
        let there = |id: &u64| readings.binary_search_by_key(id, |it| it.about.id).is_ok();
        self.looked.retain(|id, _| there(id));
        let mut left = LOOKUPS;
        let mut look_up = |reading: &SessionReading, looked: &mut FxHashMap<_, _>| {
            looked.insert(reading.about.id, (now_ns, self.generation));
            sessions.rule(reading.about.id, rule(reading.about.tgid));
        };
        for reading in readings {
            let known = self.looked.get(&reading.about.id);
            if known.is_some_and(|&(_, generation)| generation == self.generation) {
                continue;
            }
            if left == 0 {
                self.behind = true;
                break;
            }
            left -= 1;
            look_up(reading, &mut self.looked);
        }
        let turn = readings.partition_point(|reading| reading.about.id < self.next);
        for reading in readings[turn..].iter().chain(&readings[..turn]) {
            let known = self.looked.get(&reading.about.id);
            let due = known.is_some_and(|&(looked_ns, generation)| {
                let age_ns = u128::from(now_ns.saturating_sub(looked_ns));
                generation == self.generation && age_ns >= AGAIN.as_nanos()
            });
            if !due {
                continue;
            }
            if left == 0 {
                self.next = reading.about.id;
                break;
            }
            left -= 1;
            look_up(reading, &mut self.looked);
        }
        changed || left < LOOKUPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_overrides_caps_weighs_and_forbids() {
        let given = |rate, most, weight| RuledGoal::Given { rate, most, weight };
        let (rate, none) = (GoalTarget::Rate(60_000), GoalTarget::None);
        let (own, rule) = (GoalSource::Own, GoalSource::Rule);
        for (goal, wants, gets) in [
            (
                given(Some(30_000), None, None),
                none,
                (GoalTarget::Rate(30_000), None, rule),
            ),
            (
                given(Some(30_000), None, Some(7)),
                rate,
                (GoalTarget::Rate(30_000), Some(7), rule),
            ),
            (
                given(Some(30_000), None, None),
                GoalTarget::Deadline(60_000),
                (GoalTarget::Deadline(30_000), None, rule),
            ),
            (
                given(None, Some(30_000), None),
                rate,
                (GoalTarget::Rate(30_000), None, rule),
            ),
            (given(None, Some(60_000), None), rate, (rate, None, own)),
            // A bound is no goal.
            (given(None, Some(60_000), None), none, (none, None, own)),
            (given(None, None, Some(200)), rate, (rate, Some(200), own)),
            (RuledGoal::Forbidden, rate, (none, None, rule)),
        ] {
            assert_eq!(goal.apply(wants), gets, "{goal:?} of {wants:?}");
        }
    }
}
