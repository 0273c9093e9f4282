// SPDX-License-Identifier: GPL-2.0-or-later
//! The policies by name. What there is to say of one stands in its own file, as `ABOUT`.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::{Policy, Settings};
use crate::topology::Topology;

/// What users are told of a policy, and how it is made.
pub(super) struct About {
    /// As `--policy` takes it.
    pub(super) name: &'static str,
    /// A line of help.
    pub(super) help: &'static str,
    /// What it knows, of all that only some do.
    pub(super) knows: &'static [Knows],
    /// Makes it.
    pub(super) build: fn(&Settings) -> Box<dyn Policy>,
}

/// What not every policy can do something with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knows {
    /// SF by a model ([`Sample::sf`](crate::pmu::sample::Sample::sf)).
    Model,
    /// And does little without one.
    NeedsModel,
    /// [`Settings::fairness`].
    Fairness,
    /// [`Settings::oversubscribe`].
    Oversubscribe,
    /// EF by a model ([`Sample::ef`](crate::pmu::sample::Sample::ef)), and [`Settings::objective`].
    Energy,
}

/// The one list of policies.
macro_rules! policies {
    ($($name:ident: $file:ident),+ $(,)?) => {
        /// The policies by the name that `--policy` takes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Name {
            $(#[doc = concat!("`policy::", stringify!($file), "`.")] $name),+
        }

        impl Name {
            const ALL: &[Self] = &[$(Self::$name),+];

            fn about(self) -> &'static About {
                match self {
                    $(Self::$name => &super::$file::ABOUT),+
                }
            }
        }
    };
}

policies! {
    None: none,
    Rr: rr,
    Camps: camps,
    Acfs: acfs,
    Eqp: eqp,
    Adwrr: adwrr,
    Hsp: hsp,
    Rank: rank,
    Ef: ef,
    Prim: prim,
}

impl Name {
    /// Whether it promises threads even shares of the fast cores, or of progress, which no other aim is to take
    /// from them.
    pub fn is_fair(self) -> bool {
        matches!(
            self,
            Self::Rr | Self::Camps | Self::Acfs | Self::Eqp | Self::Adwrr
        )
    }

    /// What suits a machine best: with a single core type there is nothing to share out, and
    /// without `counters` nothing is known of contention.
    pub fn best(topology: &Topology, counters: bool) -> Self {
        match topology.types.len() {
            0 | 1 => Name::None,
            _ if counters => Name::Camps,
            _ => Name::Acfs,
        }
    }

    /// Whether it can do something with that.
    pub fn knows(self, what: Knows) -> bool {
        self.about().knows.contains(&what)
    }

    /// The names of those that can, in words.
    pub fn all_that_know(what: Knows) -> String {
        let names = Self::ALL.iter().filter(|name| name.knows(what));
        let names: Vec<_> = names.map(ToString::to_string).collect();
        match names.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        }
    }

    /// Makes the policy.
    pub fn build(self, settings: Settings) -> Box<dyn Policy> {
        (self.about().build)(&settings)
    }
}

impl ValueEnum for Name {
    fn value_variants<'a>() -> &'a [Self] {
        Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let about = self.about();
        Some(PossibleValue::new(about.name).help(about.help))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.about().name)
    }
}
