// SPDX-License-Identifier: GPL-2.0-only
//! Goals of a mix's programs: `@60`, `@20/s` or `@12ms`, and with a weight `@60:200`; in a file a table as in `rules.toml`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use super::written::no_such_key;
use crate::goals::{DEFAULT_WEIGHT, MAX_WEIGHT};
use hetero_core::goals::TargetRate;

/// The most that a program can be asked for, percent of alone on the fastest cores.
const MAX_PERCENT: u32 = 1000;

/// Deadlines, ms: those whose frames/s are a target.
const DEADLINES_MS: std::ops::RangeInclusive<f64> = 1e-3..=1e6;

const KEYS: [&str; 4] = ["percent", "rate", "deadline_ms", "weight"];

/// How fast a program of a mix is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MixTarget {
    /// Percent of alone on the fastest cores.
    Percent(u32),
    /// Beats/s; see [`crate::sim::goals`].
    Rate(TargetRate),
    /// For the work of a frame, ms.
    Deadline(f64),
}

/// What a program of a mix is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixGoal {
    /// How fast.
    pub target: MixTarget,
    /// How much it counts where goals exceed the machine.
    pub weight: u32,
}

impl MixGoal {
    /// From numbers by their keys in a file.
    fn of<'a>(numbers: impl IntoIterator<Item = (&'a str, f64)>) -> Result<Self> {
        let (mut target, mut weight) = (None, DEFAULT_WEIGHT);
        for (key, number) in numbers {
            let read = match key {
                "percent" => whole(number, MAX_PERCENT).map(MixTarget::Percent),
                "rate" => TargetRate::per_second(number)
                    .map(MixTarget::Rate)
                    .map_err(anyhow::Error::new),
                "deadline_ms" => deadline(number),
                "weight" => {
                    weight = whole(number, MAX_WEIGHT).context("goal.weight")?;
                    continue;
                }
                _ => return Err(anyhow!(no_such_key("a goal", key, &KEYS))),
            };
            if target
                .replace(read.with_context(|| format!("goal.{key}"))?)
                .is_some()
            {
                target = None;
                break;
            }
        }
        let target = target.context("a goal says one of percent, rate and deadline_ms")?;
        Ok(Self { target, weight })
    }
}

/// A whole number from 1 on.
fn whole(number: f64, most: u32) -> Result<u32> {
    let fits = number.fract() == 0.0 && (1.0..=f64::from(most)).contains(&number);
    fits.then_some(number as u32)
        .with_context(|| format!("must be a whole number from 1 to {most}, not {number}"))
}

fn deadline(ms: f64) -> Result<MixTarget> {
    let (least, most) = (DEADLINES_MS.start(), DEADLINES_MS.end());
    DEADLINES_MS
        .contains(&ms)
        .then_some(MixTarget::Deadline(ms))
        .with_context(|| format!("must lie between {least} and {most} ms, not {ms}"))
}

impl FromStr for MixGoal {
    type Err = anyhow::Error;

    /// What stands behind the `@`.
    fn from_str(text: &str) -> Result<Self> {
        let (target, weight) = match text.split_once(':') {
            None => (text, None),
            Some((target, weight)) => (target, Some(weight)),
        };
        let (key, target) = if let Some(ms) = target.strip_suffix("ms") {
            ("deadline_ms", ms)
        } else if let Some(rate) = target.strip_suffix("/s") {
            ("rate", rate)
        } else {
            ("percent", target)
        };
        let number = |text: &str| text.parse::<f64>().context("PERCENT, BEATS/s or MSms");
        let weight = weight.map(|weight| anyhow::Ok(("weight", number(weight)?)));
        let read = || {
            Self::of(
                [(key, number(target)?)]
                    .into_iter()
                    .chain(weight.transpose()?),
            )
        };
        read().with_context(|| format!("'@{text}'"))
    }
}

impl fmt::Display for MixGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target {
            MixTarget::Percent(percent) => write!(f, "@{percent}")?,
            MixTarget::Rate(rate) => write!(f, "@{}/s", rate.rate())?,
            MixTarget::Deadline(ms) => write!(f, "@{ms}ms")?,
        }
        match self.weight {
            DEFAULT_WEIGHT => Ok(()),
            weight => write!(f, ":{weight}"),
        }
    }
}

impl<'de> Deserialize<'de> for MixGoal {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let numbers = BTreeMap::<String, f64>::deserialize(from)?;
        let numbers = numbers.iter().map(|(key, number)| (&**key, *number));
        Self::of(numbers).map_err(|why| serde::de::Error::custom(format!("{why:#}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_printed_as_they_are_written() {
        let rate = |rate| MixTarget::Rate(TargetRate::per_second(rate).unwrap());
        for (text, target, weight) in [
            ("60", MixTarget::Percent(60), 100),
            ("29.97/s", rate(29.97), 100),
            ("12.5ms:200", MixTarget::Deadline(12.5), 200),
            ("1000:1", MixTarget::Percent(1000), 1),
        ] {
            let goal: MixGoal = text.parse().unwrap();
            assert_eq!(goal, MixGoal { target, weight });
            assert_eq!(goal.to_string(), format!("@{text}"));
        }
    }

    #[test]
    fn what_is_no_goal_is_said_with_the_reason() {
        for (text, reason) in [
            ("", "PERCENT"),
            ("x", "PERCENT"),
            ("0", "goal.percent: must be a whole number from 1 to 1000"),
            ("60.5", "whole"),
            ("1001", "1 to 1000"),
            ("nan", "not NaN"),
            (
                "0/s",
                "goal.rate: a target of 0 beats per second is too low",
            ),
            ("1e9/s", "too high"),
            ("nan/s", "finite"),
            (
                "0ms",
                "goal.deadline_ms: must lie between 0.001 and 1000000 ms",
            ),
            ("-3ms", "not -3"),
            ("infms", "not inf"),
            ("nanms", "not NaN"),
            (
                "60:0",
                "goal.weight: must be a whole number from 1 to 10000",
            ),
            ("60:10001", "10000"),
            ("60:1.5", "whole"),
            ("60:nan", "whole"),
            ("60:", "PERCENT"),
        ] {
            let error = text.parse::<MixGoal>().unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
