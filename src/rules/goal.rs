// SPDX-License-Identifier: GPL-2.0-only
//! `goal =` of a rule, as it is written: false, or a table of numbers.

use std::fmt;
use std::fs;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use toml::Spanned;

use super::{InProc, ThreadFacts, WEIGHTS, Wrong};
use crate::goals::RuledGoal;
use hetero_core::goals::TargetRate;

/// See the module.
pub(super) enum WrittenGoal {
    Forbidden,
    Given(WrittenNumbers),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenNumbers {
    rate: Option<Spanned<f64>>,
    most: Option<Spanned<f64>>,
    weight: Option<Spanned<i64>>,
}

impl<'de> Deserialize<'de> for WrittenGoal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = WrittenGoal;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "goal = {{ rate = BEATS, weight = N }} or goal = false")
            }

            fn visit_bool<E: Error>(self, wanted: bool) -> Result<WrittenGoal, E> {
                match wanted {
                    false => Ok(WrittenGoal::Forbidden),
                    true => Err(E::custom(
                        "goal = true says not how fast: goal = { rate = BEATS }",
                    )),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, numbers: A) -> Result<WrittenGoal, A::Error> {
                let numbers = WrittenNumbers::deserialize(MapAccessDeserializer::new(numbers))?;
                Ok(WrittenGoal::Given(numbers))
            }
        }
        from.deserialize_any(Either)
    }
}

impl WrittenGoal {
    /// What it says.
    ///
    /// # Errors
    /// What is wrong, with the key, and where.
    pub(super) fn read(written: &Spanned<Self>) -> Result<RuledGoal, Wrong> {
        let Self::Given(numbers) = written.get_ref() else {
            return Ok(RuledGoal::Forbidden);
        };
        let rate = target("rate", numbers.rate.as_ref())?;
        let most = target("most", numbers.most.as_ref())?;
        let weight = numbers.weight.as_ref().map(weight).transpose()?;
        match (rate, most, weight) {
            (None, None, None) => {
                let why = "a goal says rate, most or weight; goal = false takes it away";
                Err((written.span(), why.into()))
            }
            (Some(_), Some(_), _) => {
                let why = "a goal says either rate, the target whatever the program wants, or most, \
                           the most that it may want";
                Err((written.span(), why.into()))
            }
            _ => Ok(RuledGoal::Given { rate, most, weight }),
        }
    }
}

/// Thousandths of a beat per second.
fn target(key: &str, written: Option<&Spanned<f64>>) -> Result<Option<u64>, Wrong> {
    let Some(written) = written else {
        return Ok(None);
    };
    let target = TargetRate::per_second(*written.get_ref());
    let target = target.map_err(|why| (written.span(), format!("goal.{key}: {why}")))?;
    Ok(Some((target.rate() * 1000.0).round() as u64))
}

fn weight(written: &Spanned<i64>) -> Result<u32, Wrong> {
    let weight = u16::try_from(*written.get_ref()).ok();
    let weight = weight.filter(|weight| WEIGHTS.contains(weight));
    weight.map(u32::from).ok_or_else(|| {
        let why = format!(
            "goal.weight: a weight is from {} to {}; most goals have {}",
            WEIGHTS.start(),
            WEIGHTS.end(),
            crate::goals::DEFAULT_WEIGHT
        );
        (written.span(), why)
    })
}

/// A process of this machine: its first thread, by /proc.
pub struct ProcessInProc {
    /// Process id.
    pub tgid: u32,
}

impl ProcessInProc {
    fn thread(&self) -> InProc<'static> {
        InProc {
            tid: self.tgid,
            comm: &"",
        }
    }
}

impl ThreadFacts for ProcessInProc {
    fn comm(&self) -> String {
        let name = fs::read(format!("/proc/{}/comm", self.tgid)).unwrap_or_default();
        String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned()
    }

    fn exe(&self) -> Option<String> {
        self.thread().exe()
    }

    fn cgroup(&self) -> Option<String> {
        self.thread().cgroup()
    }
}
