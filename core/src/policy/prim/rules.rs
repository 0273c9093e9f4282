// SPDX-License-Identifier: GPL-2.0-or-later
//! Rules that say whether two threads should change places, by what was counted of them.
//!
//! A rule is a box: bounds for each feature of both threads. PRIM, the **patient rule induction method**
//! of Friedman and Fisher (1999) from which the scheduler has its name (so we take it: PMCTrack does not
//! say how its rules are made), finds boxes in which examples gain much. It begins with all examples and
//! peels off, again and again, the tenth at one end of one feature without which the rest gains most, as
//! long as enough are left. What the box holds is put aside, and the next one is found in the rest.

use serde::{Deserialize, Serialize};

use crate::pmu::sample::{LINE_BYTES, SampleMetrics};

/// Features of a thread: instructions per cycle; of 1,000 instructions misses of the last-level cache,
/// loads, and branches.
pub const FEATURES: usize = 4;

/// Of the one on the faster core type, then of the one on the slower.
const BOTH: usize = 2 * FEATURES;

/// Part of the examples in a box that is peeled off at once.
const PEELED: f64 = 0.1;

/// Part of all examples that a box holds at the least.
const LEAST: f64 = 0.03;

/// A rule is kept only if those in its box gain so much on average, as a logarithm of EDP.
const LEAST_GAIN: f64 = 0.05;

/// The most rules.
const MOST_RULES: usize = 12;

/// What was counted of a thread; not finite where this machine cannot count it.
pub fn features(metrics: &SampleMetrics) -> [f64; FEATURES] {
    let misses = metrics.btr.map(|btr| btr / LINE_BYTES / metrics.ips * 1e3);
    let branches = metrics.branch_fraction.map(|part| 1e3 * part);
    [Some(metrics.ipc), misses, metrics.l1_per_kilo, branches].map(|of| of.unwrap_or(f64::NAN))
}

/// Two threads, one on a fast core and one on a slow one, and what it gains that they change places.
#[derive(Clone, Copy, Debug)]
pub struct SwapExample {
    /// Of the one on the faster core type.
    pub down: [f64; FEATURES],
    /// Of the one on the slower.
    pub up: [f64; FEATURES],
    /// Logarithm of the product of both EDPs before over that after.
    pub gain: f64,
}

/// A box: least and most of each feature, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct SwapRule {
    least: [f64; BOTH],
    most: [f64; BOTH],
}

/// Rules; any of them is enough.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwapRules(Vec<SwapRule>);

/// An example's features in one row.
struct Row {
    features: [f64; BOTH],
    gain: f64,
}

fn joined(down: &[f64; FEATURES], up: &[f64; FEATURES]) -> [f64; BOTH] {
    std::array::from_fn(|of| match of.checked_sub(FEATURES) {
        None => down[of],
        Some(of) => up[of],
    })
}

impl SwapRule {
    /// One that holds everything.
    const ALL: Self = Self {
        least: [f64::MIN; BOTH],
        most: [f64::MAX; BOTH],
    };

    fn holds(&self, features: &[f64; BOTH]) -> bool {
        let bounds = self.least.iter().zip(&self.most);
        let mut within = features.iter().zip(bounds);
        within.all(|(value, (least, most))| (*least..=*most).contains(value))
    }
}

impl SwapRules {
    /// Whether the two should change places: `down` is on the faster core type.
    pub fn say(&self, down: &[f64; FEATURES], up: &[f64; FEATURES]) -> bool {
        let both = joined(down, up);
        self.0.iter().any(|rule| rule.holds(&both))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Finds rules in examples.
    pub fn induced(examples: &[SwapExample]) -> Self {
        let rows = examples.iter().map(|of| Row {
            features: joined(&of.down, &of.up),
            gain: of.gain,
        });
        let mut left: Vec<Row> = rows.collect();
        let least = ((LEAST * left.len() as f64) as usize).max(1);
        let mut rules = Vec::new();
        while rules.len() < MOST_RULES && left.len() >= least {
            let (rule, gain) = peeled(&left, least);
            if gain < LEAST_GAIN {
                break;
            }
            left.retain(|row| !rule.holds(&row.features));
            rules.push(rule);
        }
        Self(rules)
    }

    /// Those of a virtual Juno board, by the simulator's programs there (`scx_hetero sim --policy prim`).
    pub fn of_juno() -> Self {
        // A test sees that it can be read.
        serde_json::from_str(include_str!("juno.json")).unwrap_or_default()
    }

    /// One rule: the one on the slower has an IPC above `limit`, the other below.
    #[cfg(test)]
    pub(super) fn where_up_has_more_ipc(limit: f64) -> Self {
        let mut rule = SwapRule::ALL;
        (rule.most[0], rule.least[FEATURES]) = (limit, limit);
        Self(vec![rule])
    }
}

fn mean(rows: &[&Row]) -> f64 {
    rows.iter().map(|row| row.gain).sum::<f64>() / rows.len().max(1) as f64
}

/// The box that peeling ends at, and what those in it gain on average.
fn peeled(rows: &[Row], least: usize) -> (SwapRule, f64) {
    let mut rule = SwapRule::ALL;
    let mut inside: Vec<&Row> = rows.iter().collect();
    let mut gain = mean(&inside);
    loop {
        let mut best: Option<(SwapRule, f64)> = None;
        for of in 0..BOTH {
            let mut values: Vec<f64> = inside.iter().map(|row| row.features[of]).collect();
            values.sort_unstable_by(f64::total_cmp);
            let part = ((PEELED * values.len() as f64) as usize).max(1);
            // Equal values go or stay together, so that a bound lies between two that differ.
            let low = values.iter().find(|&&value| value > values[part - 1]);
            let high = values
                .iter()
                .rev()
                .find(|&&v| v < values[values.len() - part]);
            for (bound, is_low) in [(low, true), (high, false)] {
                let Some(&bound) = bound else { continue };
                let mut narrower = rule;
                match is_low {
                    true => narrower.least[of] = bound,
                    false => narrower.most[of] = bound,
                }
                let kept: Vec<&Row> = inside
                    .iter()
                    .copied()
                    .filter(|row| narrower.holds(&row.features))
                    .collect();
                if kept.len() < least {
                    continue;
                }
                let gain = mean(&kept);
                if best.is_none_or(|(_, most)| gain > most) {
                    best = Some((narrower, gain));
                }
            }
        }
        match best {
            Some((narrower, more)) if more > gain => {
                (rule, gain) = (narrower, more);
                inside.retain(|row| rule.holds(&row.features));
            }
            _ => return (rule, gain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many IPCs and misses each, whose EF falls with IPC on the big core.
    fn examples() -> Vec<SwapExample> {
        let threads: Vec<_> = (0..20)
            .map(|i| (0.2 * f64::from(i), f64::from(i * 7 % 20)))
            .collect();
        let mut all = Vec::new();
        for &(down, misses) in &threads {
            for &(up, others) in &threads {
                all.push(SwapExample {
                    down: [down, misses, 300.0, 100.0],
                    up: [up, others, 300.0, 100.0],
                    gain: up - down,
                });
            }
        }
        all
    }

    #[test]
    fn rules_are_found_that_hold_what_gains_and_little_else() {
        let examples = examples();
        let rules = SwapRules::induced(&examples);
        assert!((1..=MOST_RULES).contains(&rules.count()), "{rules:?}");
        let says = |of: &&SwapExample| rules.say(&of.down, &of.up);
        let said: Vec<_> = examples.iter().filter(says).collect();
        let right = said.iter().filter(|of| of.gain > 0.0).count();
        assert!(right * 10 >= said.len() * 8, "{right} of {}", said.len());
        let much = || examples.iter().filter(|of| of.gain > 1.5);
        let found = much().filter(says).count();
        assert!(
            found * 10 >= much().count() * 8,
            "{found} of {}",
            much().count()
        );
    }

    #[test]
    fn where_nothing_gains_there_is_no_rule_and_what_was_not_counted_fits_none() {
        let mut examples = examples();
        examples.iter_mut().for_each(|of| of.gain = -1.0);
        assert_eq!(SwapRules::induced(&examples).count(), 0);
        assert_eq!(SwapRules::induced(&[]).count(), 0);
        let rules = SwapRules::where_up_has_more_ipc(1.0);
        assert!(rules.say(&[0.5; FEATURES], &[2.0; FEATURES]));
        assert!(!rules.say(&[0.5; FEATURES], &[2.0, f64::NAN, 2.0, 2.0]));
    }

    #[test]
    fn those_that_come_along_can_be_read() {
        assert!(SwapRules::of_juno().count() > 0);
    }
}
