// SPDX-License-Identifier: GPL-2.0-or-later
//! How fast a thread is undisturbed, by core type and phase.
//!
//! What it did beside nothing that could be in its way is averaged. Where that was never seen, the best that was
//! seen stands in, for contention makes nothing faster; so a thread that was never undisturbed seems less slowed
//! down than it is.

use super::signs::SignRates;
use crate::slowdown::Phase;

/// Phases on core types that are remembered of a thread.
pub const ENTRIES: usize = 6;

/// Processes whose traffic is remembered with each.
pub const BESIDE: usize = 3;

/// A new sample counts for one in so many.
const AVERAGED: f64 = 8.0;

/// What was faster than undisturbed by so much shows that this was not.
const FASTER: f64 = 1.05;

/// What a phase was like on a core type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UndisturbedEntry {
    /// Index.
    pub core_type: usize,
    /// Which phase.
    pub phase: Phase,
    /// Its rates.
    pub rates: SignRates,
    /// Nothing was in its way.
    pub quiet: bool,
    /// Samples, no more than it takes to average.
    samples: u32,
    /// When it was last used, by count.
    used: u32,
    /// The processes that transferred most beside it, and how much, bytes/s.
    pub beside: [(u32, f64); BESIDE],
}

/// See the module; of fixed size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undisturbed {
    entries: [Option<UndisturbedEntry>; ENTRIES],
    uses: u32,
}

impl Undisturbed {
    /// What is known of a phase on a core type.
    pub fn find(&self, core_type: usize, phase: &Phase) -> Option<&UndisturbedEntry> {
        let entries = self.entries.iter().flatten();
        let here = entries.filter(|entry| entry.core_type == core_type);
        let apart = |of: &&UndisturbedEntry| of.phase.distance(phase);
        let nearest = here.min_by(|a, b| apart(a).total_cmp(&apart(b)))?;
        nearest.phase.is_same(phase).then_some(nearest)
    }

    /// Takes in what a phase did: `quiet` if nothing was in its way. `beside` finds the processes that transferred most beside it, where
    /// that is to be kept.
    pub fn learn(
        &mut self,
        core_type: usize,
        phase: &Phase,
        now: &SignRates,
        quiet: bool,
        beside: impl FnOnce() -> [(u32, f64); BESIDE],
    ) {
        self.uses = self.uses.wrapping_add(1);
        let used = self.uses;
        let fresh = |beside| UndisturbedEntry {
            core_type,
            phase: *phase,
            rates: *now,
            quiet,
            samples: 1,
            used,
            beside,
        };
        let known = self.find(core_type, phase).map(|entry| entry.phase);
        let entry = self.entries.iter_mut().flatten().find(|entry| {
            known.is_some_and(|phase| entry.phase == phase && entry.core_type == core_type)
        });
        let Some(entry) = entry else {
            self.insert(fresh(beside()));
            return;
        };
        entry.used = self.uses;
        let faster = now.ipc / entry.rates.ipc.max(f64::MIN_POSITIVE);
        let takes = match (quiet, entry.quiet) {
            // What it is undisturbed is worth more than any number of others.
            (true, false) => return *entry = fresh(beside()),
            (true, true) => true,
            (false, true) => faster > FASTER,
            (false, false) => faster > 1.0,
        };
        if takes {
            entry.samples += u32::from(f64::from(entry.samples) < AVERAGED);
            let weight = 1.0 / f64::from(entry.samples);
            approach(&mut entry.rates, now, weight);
            entry.phase.approach(phase, weight);
            if !quiet {
                entry.beside = beside();
            }
        }
    }

    /// In the place of the one that was not used for longest.
    fn insert(&mut self, fresh: UndisturbedEntry) {
        let age = |entry: &Option<UndisturbedEntry>| entry.map_or(0, |entry| entry.used);
        if let Some(place) = self.entries.iter_mut().min_by_key(|entry| age(entry)) {
            *place = Some(fresh);
        }
    }
}

fn approach(rates: &mut SignRates, now: &SignRates, weight: f64) {
    let mean = |of: &mut f64, now: f64| *of += (now - *of) * weight;
    mean(&mut rates.ipc, now.ipc);
    // The clock that can be had: a thread that ran while others heated the package is no measure.
    rates.frequency = rates.frequency.max(now.frequency);
    for (of, now) in [
        (&mut rates.llc_misses, now.llc_misses),
        (&mut rates.l2_misses, now.l2_misses),
        (&mut rates.stalled, now.stalled),
    ] {
        match (of, now) {
            (Some(of), Some(now)) => mean(of, now),
            (of, now) => *of = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::phase;

    fn rates(ipc: f64) -> SignRates {
        SignRates {
            ipc,
            frequency: 1e9,
            ..SignRates::default()
        }
    }

    #[test]
    fn quiet_samples_are_averaged_and_outdo_the_best_of_others() {
        let mut known = Undisturbed::default();
        let none = [(0, 0.0); BESIDE];
        let mut learn = |ipc: f64, quiet: bool| {
            known.learn(0, &phase(300.0), &rates(ipc), quiet, || none);
            known.find(0, &phase(300.0)).unwrap().rates.ipc
        };
        assert_eq!(learn(1.0, false), 1.0);
        assert_eq!(learn(0.5, false), 1.0, "the best");
        assert_eq!(learn(2.0, true), 2.0);
        assert_eq!(learn(1.0, false), 2.0);
        assert_eq!(learn(1.0, true), 1.5);
        assert!(learn(3.0, false) > 1.9, "it was not undisturbed");
        assert_eq!(known.find(1, &phase(300.0)), None);
        assert_eq!(known.find(0, &phase(500.0)), None);
    }

    #[test]
    fn the_phase_not_seen_for_longest_gives_way() {
        let mut known = Undisturbed::default();
        for n in 0..=ENTRIES {
            let phase = phase(100.0 * n as f64);
            known.learn(0, &phase, &rates(1.0), true, || [(0, 0.0); BESIDE]);
        }
        assert_eq!(known.find(0, &phase(0.0)), None);
        assert!(known.find(0, &phase(100.0)).is_some());
        assert!(known.find(0, &phase(600.0)).is_some());
    }
}
