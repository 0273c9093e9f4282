// SPDX-License-Identifier: GPL-2.0-or-later
//! How fast a thread is undisturbed, by core type and phase.
//!
//! What it did beside nothing that could be in its way is averaged. Where that was never seen, the best that was
//! seen stands in, for contention makes nothing faster; so a thread that was never undisturbed seems less slowed
//! down than it is.

use super::company::Quietness;
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

/// So many more misses for an instruction are not chance.
const MORE_MISSES: f64 = 1.1;

impl UndisturbedEntry {
    /// Whether these rates are slower, and for misses that it did not have.
    fn is_less(&self, now: &SignRates) -> bool {
        let misses = now.llc_misses.zip(self.rates.llc_misses);
        now.ipc * FASTER < self.rates.ipc
            && misses.is_some_and(|(now, known)| now > MORE_MISSES * known)
    }
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

    /// Whether a phase was seen on a core type with nothing in its way.
    pub fn is_quiet(&self, core_type: usize, phase: &Phase) -> bool {
        self.find(core_type, phase).is_some_and(|entry| entry.quiet)
    }

    /// Takes in what a phase did beside this company. `beside` finds the processes that transferred most beside it, where that is
    /// to be kept.
    pub fn learn(
        &mut self,
        core_type: usize,
        phase: &Phase,
        now: &SignRates,
        company: Quietness,
        beside: impl FnOnce() -> [(u32, f64); BESIDE],
    ) {
        let (quiet, is_alone) = (company != Quietness::Disturbed, company == Quietness::Alone);
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
            (true, true) => is_alone || !entry.is_less(now),
            // It was not undisturbed after all: the next that is quiet stands in its place, with its company.
            (false, true) if faster > FASTER => return *entry = fresh(beside()),
            (false, true) => false,
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
        use Quietness::{Disturbed, Quiet};
        let mut learn = |ipc: f64, company: Quietness| {
            known.learn(0, &phase(300.0), &rates(ipc), company, || none);
            known.find(0, &phase(300.0)).unwrap().rates.ipc
        };
        assert_eq!(learn(1.0, Disturbed), 1.0);
        assert_eq!(learn(0.5, Disturbed), 1.0, "the best");
        assert_eq!(learn(2.0, Quiet), 2.0);
        assert_eq!(learn(1.0, Disturbed), 2.0);
        assert_eq!(learn(1.0, Quiet), 1.5);
        assert_eq!(learn(3.0, Disturbed), 3.0, "it was not undisturbed");
        assert_eq!(known.find(1, &phase(300.0)), None);
        assert_eq!(known.find(0, &phase(500.0)), None);
    }

    #[test]
    fn what_was_not_undisturbed_gives_way_to_the_next_that_is_with_its_company() {
        let mut known = Undisturbed::default();
        let beside = |btr: f64| [(7, btr), (0, 0.0), (0, 0.0)];
        let mut learn = |ipc: f64, company: Quietness, btr: f64| {
            known.learn(0, &phase(300.0), &rates(ipc), company, || beside(btr));
            *known.find(0, &phase(300.0)).unwrap()
        };
        // It seemed quiet, and was low beside the one that disturbs it.
        learn(1.0, Quietness::Quiet, 0.0);
        let entry = learn(1.1, Quietness::Disturbed, 5e9);
        assert_eq!((entry.quiet, entry.beside), (false, beside(5e9)));
        let entry = learn(1.5, Quietness::Quiet, 1e6);
        assert_eq!((entry.quiet, entry.beside), (true, beside(1e6)));
        assert_eq!(entry.rates.ipc, 1.5);
        let entry = learn(1.52, Quietness::Disturbed, 5e9);
        assert_eq!((entry.rates.ipc, entry.beside), (1.5, beside(1e6)));
    }

    #[test]
    fn new_misses_beside_others_are_not_what_it_is_undisturbed() {
        let with = |ipc: f64, misses: f64| SignRates {
            llc_misses: Some(misses),
            ..rates(ipc)
        };
        let none = [(0, 0.0); BESIDE];
        for (company, now, learnt) in [
            (Quietness::Quiet, with(1.0, 0.002), 2.0),
            (Quietness::Alone, with(1.0, 0.002), 1.5),
            // Slower without more misses, or by chance.
            (Quietness::Quiet, with(1.0, 0.001), 1.5),
            (Quietness::Quiet, with(1.95, 0.002), 1.975),
        ] {
            let mut known = Undisturbed::default();
            let mut learn = |now: &SignRates, company| {
                known.learn(0, &phase(300.0), now, company, || none);
            };
            learn(&with(2.0, 0.001), Quietness::Alone);
            learn(&now, company);
            let entry = known.find(0, &phase(300.0)).unwrap();
            assert!((entry.rates.ipc - learnt).abs() < 1e-9, "{company:?}");
        }
    }

    #[test]
    fn the_phase_not_seen_for_longest_gives_way() {
        let mut known = Undisturbed::default();
        for n in 0..=ENTRIES {
            let phase = phase(100.0 * n as f64);
            known.learn(0, &phase, &rates(1.0), Quietness::Quiet, || {
                [(0, 0.0); BESIDE]
            });
        }
        assert_eq!(known.find(0, &phase(0.0)), None);
        assert!(known.find(0, &phase(100.0)).is_some());
        assert!(known.find(0, &phase(600.0)).is_some());
    }
}
