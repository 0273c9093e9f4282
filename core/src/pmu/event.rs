// SPDX-License-Identifier: GPL-2.0-or-later
//! Events: what is meant, and how a PMU is told to count it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// What an event counts, whatever the microarchitecture calls it.
///
/// Close relatives, not twins: each vendor draws the borders a little differently, and the
/// differences that matter are said here. A number is compared between core types only through a
/// model that knows on which type it was counted.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    ValueEnum,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub enum Meaning {
    /// Retired instructions.
    Instructions,
    /// Core cycles that were not halted, at the clock of the moment.
    Cycles,
    /// Cycles that were not halted, of a clock that never changes its frequency.
    RefCycles,
    /// Retired branches; on ARM cores without such an event, predictable branches executed.
    Branches,
    /// Mispredicted branches among them.
    BranchMisses,
    /// Loads: retired instructions on Intel's P cores, retired micro-operations on its E cores,
    /// dispatched ones on AMD, executed ones on most ARM cores.
    Loads,
    /// Stores, counted as loads are.
    Stores,
    /// Accesses to the L1 data cache: loads and stores where one event counts both, else the
    /// loads (Gracemont and Crestmont).
    L1Accesses,
    /// Misses of the L1 data cache: lines filled, prefetched ones included; on Intel's E cores
    /// retired loads that missed.
    L1Misses,
    /// Requests to the L2 cache; AMD does not count the L2's own prefetches. No event counts
    /// them all on Crestmont.
    L2Accesses,
    /// Those that missed.
    L2Misses,
    /// Requests to the last-level cache; on AMD, lines filled into L1 from beyond L2; on ARM
    /// cores with an L3, reads only; on older ARM cores, where it is the last, the L2's accesses.
    LlcReferences,
    /// Those that missed; on AMD, lines filled into L1 from beyond the core complex.
    LlcMisses,
    /// Retired floating-point instructions; on AMD operations; on ARM scalar ones executed, with
    /// vector ones counted apart and left out. Gracemont, Cortex-A7 and A53 cannot tell.
    FpOps,
    /// Cycles without progress because a load waits: for data from beyond L2 on Intel, for any
    /// data elsewhere (and on Lion Cove).
    StalledMem,
    /// Cycles in which the front end delivers nothing. Intel's E cores count slots, not cycles,
    /// so they have none.
    StalledFrontend,
    /// Data addresses that needed a page walk, loads only on Intel; on older ARM cores misses of
    /// the first-level TLB.
    DtlbMisses,
    /// Cycles in which the divider is busy.
    Divider,
}

impl Meaning {
    /// All of them, in the order of their definition.
    pub fn all() -> &'static [Self] {
        Self::VARIANTS
    }

    /// Its name, such as `llc-misses`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An event's name as names are compared: `LLC_misses` is `llc-misses`.
pub fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

impl FromStr for Meaning {
    type Err = anyhow::Error;

    /// `llc-misses`, also spelled `llc_misses` or `LLC-misses`.
    fn from_str(text: &str) -> Result<Self> {
        let wanted = plain(text.trim());
        let found = Self::all().iter().find(|m| m.name() == wanted);
        let Some(&found) = found else {
            let names: Vec<_> = Self::all().iter().map(|m| m.name()).collect();
            bail!("'{text}' is none of the events {}", names.join(", "));
        };
        Ok(found)
    }
}

/// An event as a user asks for it: by meaning, or in the PMU's own words.
///
/// The latter is a name from the PMU's sysfs `events/`, the vendor's name from our tables, a raw
/// code (`r4f2e`, `0x4f2e`), or terms (`event=0x2e,umask=0x4f`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Event {
    /// By what it means.
    Meaning(Meaning),
    /// By what this PMU calls it.
    Raw(String),
}

impl From<Meaning> for Event {
    fn from(meaning: Meaning) -> Self {
        Self::Meaning(meaning)
    }
}

impl From<String> for Event {
    fn from(text: String) -> Self {
        match text.parse() {
            Ok(meaning) => Self::Meaning(meaning),
            Err(_) => Self::Raw(text),
        }
    }
}

impl From<Event> for String {
    fn from(event: Event) -> Self {
        event.to_string()
    }
}

impl FromStr for Event {
    type Err = std::convert::Infallible;

    /// Never fails: whether a PMU knows the event is for [`super::Pmu::encode`] to say.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.trim().to_string().into())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meaning(meaning) => meaning.fmt(f),
            Self::Raw(text) => f.pad(text),
        }
    }
}

/// Whose numbering an [`Encoding`] uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Space {
    /// The PMU's own codes: the type is the PMU's.
    Pmu,
    /// The kernel's generalised events (`PERF_TYPE_HARDWARE`).
    Hardware,
    /// The kernel's generalised cache events (`PERF_TYPE_HW_CACHE`).
    Cache,
}

/// Any general counter will do.
pub const ANY: u64 = u64::MAX;

/// How a PMU is told to count an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Encoding {
    /// Whose numbering this is.
    pub space: Space,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.config1`.
    pub config1: u64,
    /// `perf_event_attr.config2`.
    pub config2: u64,
    /// The fixed counter that counts it, where the PMU has one.
    pub fixed: Option<u8>,
    /// The general counters that can count it, a bit each.
    pub general: u64,
    /// The vendor's name of the event, the kernel's, or what the user wrote.
    pub name: Cow<'static, str>,
}

impl Encoding {
    /// An event in the PMU's own numbering that any general counter can count.
    pub fn raw(config: u64, name: impl Into<Cow<'static, str>>) -> Self {
        Self {
            space: Space::Pmu,
            config,
            config1: 0,
            config2: 0,
            fixed: None,
            general: ANY,
            name: name.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line_and_of_json() {
        for &meaning in Meaning::all() {
            let value = meaning.to_possible_value().unwrap();
            assert_eq!(value.get_name(), meaning.name());
            assert!(value.get_help().is_some(), "{meaning} has no description");
            let json = serde_json::to_string(&meaning).unwrap();
            assert_eq!(json, format!("\"{meaning}\""));
            assert_eq!(meaning.name().parse::<Meaning>().unwrap(), meaning);
        }
        assert_eq!("LLC_misses".parse::<Meaning>().unwrap(), Meaning::LlcMisses);
        let error = "llc".parse::<Meaning>().unwrap_err().to_string();
        assert!(error.contains("llc-misses"), "{error}");
    }

    #[test]
    fn an_event_is_a_meaning_or_else_raw() {
        let event = |text: &str| text.parse::<Event>().unwrap();
        assert_eq!(event("l1-misses"), Event::Meaning(Meaning::L1Misses));
        assert_eq!(event("r4f2e"), Event::Raw("r4f2e".to_string()));
        assert_eq!(event("l1_misses").to_string(), "l1-misses");
        assert_eq!(serde_json::to_string(&event("r4f2e")).unwrap(), "\"r4f2e\"");
    }
}
