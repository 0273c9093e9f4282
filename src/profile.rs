// SPDX-License-Identifier: GPL-2.0-only
//! Profiles: what a machine is used for, in one word. They are scx_loader's modes, and each stands
//! for settings that can also be given one by one.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

use crate::policy;

/// What the machine is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// Even progress; efficient cores first while the power profile, or else the battery, asks
    /// for it
    #[default]
    Auto,
    /// Most throughput: the fast cores to the threads that gain most
    Gaming,
    /// Efficient cores first, always
    Powersave,
    /// Short turns, and no core kept idle to measure
    Lowlatency,
    /// Long turns
    Server,
}

/// When efficient cores are to be filled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// Never.
    Never,
    /// While the machine's user asks for it ([`crate::power`]).
    Asked,
    /// Always.
    Always,
}

impl Profile {
    /// Its policy; `None` is the best that the machine allows.
    pub fn policy(self) -> Option<policy::Name> {
        match self {
            Self::Gaming => Some(policy::Name::Hsp),
            Self::Lowlatency => Some(policy::Name::Acfs),
            Self::Auto | Self::Powersave | Self::Server => None,
        }
    }

    /// How long a turn is.
    pub fn slice(self) -> Duration {
        Duration::from_millis(match self {
            Self::Auto | Self::Gaming | Self::Powersave => 5,
            Self::Lowlatency => 2,
            Self::Server => 20,
        })
    }

    /// When efficient cores are to be filled first.
    pub fn saving(self) -> Saving {
        match self {
            Self::Auto => Saving::Asked,
            Self::Powersave => Saving::Always,
            Self::Gaming | Self::Lowlatency | Self::Server => Saving::Never,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // None is hidden, so each has a name.
        let name = self.to_possible_value();
        f.write_str(name.as_ref().map_or("", |name| name.get_name()))
    }
}
