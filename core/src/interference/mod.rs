// SPDX-License-Identifier: GPL-2.0-or-later
//! What slows a thread down beside others, and which process does (Zellweger, Lin and Roscoe 2016, section 5).
//!
//! A thread's rates are compared with those it had undisturbed ([`undisturbed`]), and with what runs beside it
//! ([`company`]): the [`signs`]. From these follows the class, by [`rules`] that know what a machine is made of; and
//! from the class and the company the [`culprit`]. Plain values throughout; the agent keeps them by thread.

pub mod company;
pub mod culprit;
pub mod data;
pub mod rules;
pub mod scores;
pub mod signs;
pub mod undisturbed;

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// A thread that is slower by less than this is not disturbed.
pub const DISTURBED: f64 = 1.05;

/// What two threads contend for.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum InterferenceClass {
    /// Nothing: it is slower by less than [`DISTURBED`].
    #[default]
    None,
    /// Room in the last-level cache.
    Llc,
    /// Room in a second-level cache that cores of a cluster share.
    L2,
    /// The way to memory.
    Bandwidth,
    /// What threads of one core share: its execution units, L1 and L2.
    Sibling,
    /// The clock: power or heat.
    Power,
    /// A lock or a barrier: a thread of its own process that is late.
    Wait,
}

/// How many there are.
pub const CLASSES: usize = InterferenceClass::VARIANTS.len();

impl InterferenceClass {
    /// All of them, in order.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// As files have it, such as `bandwidth`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether it is told by misses of the last-level cache alone: where these are not counted it never is.
    pub fn takes_misses(self) -> bool {
        matches!(self, Self::Llc | Self::Bandwidth)
    }

    /// For people.
    pub fn told(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Llc => "last-level cache",
            Self::L2 => "L2 cache of its cluster",
            Self::Bandwidth => "memory bandwidth",
            Self::Sibling => "SMT sibling",
            Self::Power => "power or heat",
            Self::Wait => "lock or barrier",
        }
    }
}

impl fmt::Display for InterferenceClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for InterferenceClass {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match Self::ALL.iter().find(|class| class.name() == text) {
            Some(&class) => Ok(class),
            None => bail!("'{text}' is no class of interference"),
        }
    }
}

/// What a thread suffers from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interference {
    /// How much slower it is than it was undisturbed on the same core type, 1 or more.
    pub slowdown: f64,
    /// Why.
    pub class: InterferenceClass,
    /// And why besides, where [`rules::BOTH`] are.
    pub also: Option<InterferenceClass>,
    /// How sure that is, 0 to 1; of both together where there are two.
    pub confidence: f64,
    /// The process that disturbs it most, and its part of what all do, 0 to 1.
    pub culprit: Option<(u32, f64)>,
}

impl Interference {
    /// What a thread lost that ran for so long, s: that would have taken less, and what waits loses the time besides.
    pub fn lost_s(&self, ran_s: f64) -> f64 {
        match self.class {
            InterferenceClass::Wait => ran_s * (self.slowdown - 1.0),
            _ => ran_s * (1.0 - 1.0 / self.slowdown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_names_that_can_be_read_again() {
        for (at, &class) in InterferenceClass::ALL.iter().enumerate() {
            assert_eq!(class as usize, at);
            assert_eq!(class.name().parse::<InterferenceClass>().unwrap(), class);
            let json = serde_json::to_string(&class).unwrap();
            assert_eq!(json, format!("\"{class}\""));
        }
        assert!("cache".parse::<InterferenceClass>().is_err());
    }
}
