// SPDX-License-Identifier: GPL-2.0-only
//! What may happen in a random life, and what came of it.

use std::collections::BTreeSet;
use std::fmt;

/// What may happen besides waking, running and sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Chaos {
    Nice,
    Affinity,
    Cgroups,
    RealTime,
    MigrationDisabled,
    Hints,
    Swaps,
    Parks,
    Slowdowns,
    Hostile,
    Sync,
    Forks,
    Exits,
    Yields,
    Spins,
    Detach,
    Rotation,
    Silence,
    RingFull,
    Pinned,
    Delays,
    Slow,
    Rest,
    BusyAgent,
    Clocks,
    Unknown,
    Suspends,
    Hotplug,
    Killed,
    Races,
    Goals,
    Lapses,
}

impl Chaos {
    /// All of it.
    pub const ALL: [Self; 32] = [
        Self::Nice,
        Self::Affinity,
        Self::Cgroups,
        Self::RealTime,
        Self::MigrationDisabled,
        Self::Hints,
        Self::Swaps,
        Self::Parks,
        Self::Slowdowns,
        Self::Hostile,
        Self::Sync,
        Self::Forks,
        Self::Exits,
        Self::Yields,
        Self::Spins,
        Self::Detach,
        Self::Rotation,
        Self::Silence,
        Self::RingFull,
        Self::Pinned,
        Self::Delays,
        Self::Slow,
        Self::Rest,
        Self::BusyAgent,
        Self::Clocks,
        Self::Unknown,
        Self::Suspends,
        Self::Hotplug,
        Self::Killed,
        Self::Races,
        Self::Goals,
        Self::Lapses,
    ];
}

/// A broken rule.
#[derive(Clone, Debug)]
pub struct BrokenRule {
    /// The machine and its kernel, in short.
    pub machine: String,
    /// Of [`super::World::random`].
    pub seed: u64,
    /// At which event.
    pub event: u64,
    /// Simulated time since the start, ns.
    pub at_ns: u64,
    /// What is wrong.
    pub message: String,
    /// What had to happen for it; smaller than [`Chaos::ALL`] if it was made smaller.
    pub chaos: BTreeSet<Chaos>,
}

impl fmt::Display for BrokenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            machine,
            seed,
            event,
            at_ns,
            message,
            chaos,
        } = self;
        let ms = *at_ns as f64 / 1e6;
        write!(
            f,
            "seed {seed}, event {event}, {ms:.3} ms: {message} (on {machine}; with {chaos:?})"
        )
    }
}
