// SPDX-License-Identifier: GPL-2.0-or-later
//! How fast a thread is undisturbed, by core type and phase.
//!
//! What it did beside nothing that could be in its way is averaged. Where that was never seen, the best that was
//! seen stands in, for contention makes nothing faster; so a thread that was never undisturbed seems less slowed
//! down than it is. Where earlier runs of its program are known, what they did undisturbed stands in before that.

use super::company::Quietness;
use super::signs::SignRates;
use crate::knowledge::{Sure, UndisturbedProfile, UndisturbedRates, agrees};
use crate::slowdown::Phase;

/// Phases on core types that are remembered of a thread.
pub const ENTRIES: usize = 6;

/// Processes whose traffic is remembered with each.
pub const BESIDE: usize = 3;

/// A new sample counts for one in so many.
const AVERAGED: f64 = 8.0;

/// What was faster than undisturbed by so much shows that this was not.
const FASTER: f64 = 1.05;

/// What earlier runs did undisturbed is no measure of this one if it is less sure, of the logarithm: standard deviation.
const VAGUE: f64 = 0.12;

/// What a measured IPC errs by, of the logarithm: variance.
const UNTOLD: f64 = 0.02 * 0.02;

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
    /// It is of earlier runs.
    past: bool,
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
            past: false,
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
            // What is measured counts more than what earlier runs did; and where they differ much, so do its other phases.
            (true, true) if entry.past => {
                let expected = Sure {
                    value: entry.rates.ipc.ln(),
                    variance: UNTOLD,
                };
                *entry = fresh(beside());
                if !agrees(now.ipc, &expected) {
                    self.forget_the_past();
                }
                return;
            }
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

    /// Takes note of what earlier runs of its program did undisturbed, in the place of what it was told of them before. What
    /// was measured stays.
    pub fn remember(&mut self, known: &UndisturbedProfile) {
        self.forget_the_past();
        for of in known.iter().flatten() {
            let sigma = of.ipc.variance.sqrt();
            // Runs differ: what may be for that is not told.
            let ipc = (of.ipc.value - sigma).exp();
            let measured = self.find(of.core_type, &of.phase);
            let stays = measured.is_some_and(|of| of.quiet || of.rates.ipc > ipc * FASTER);
            if sigma > VAGUE || stays {
                continue;
            }
            let gone = measured.copied();
            self.uses = self.uses.wrapping_add(1);
            let fresh = UndisturbedEntry {
                core_type: of.core_type,
                phase: of.phase,
                rates: SignRates {
                    ipc,
                    llc_misses: of.llc_misses,
                    ..SignRates::default()
                },
                quiet: true,
                past: true,
                samples: 1,
                used: self.uses,
                beside: Default::default(),
            };
            match self
                .entries
                .iter_mut()
                .find(|of| gone.is_some() && **of == gone)
            {
                Some(place) => *place = Some(fresh),
                None => self.insert(fresh),
            }
        }
    }

    /// What earlier runs did is wrong.
    pub fn forget_the_past(&mut self) {
        for entry in &mut self.entries {
            *entry = entry.filter(|of| !of.past);
        }
    }

    /// What was measured of it undisturbed, for later runs.
    pub fn found(&self) -> UndisturbedProfile {
        let measured = self.entries.iter().flatten();
        let measured = measured.filter(|of| of.quiet && !of.past);
        let mut found = UndisturbedProfile::default();
        for (room, of) in found.iter_mut().zip(measured) {
            *room = Sure::of_factor(of.rates.ipc, UNTOLD).map(|ipc| UndisturbedRates {
                core_type: of.core_type,
                phase: of.phase,
                ipc,
                llc_misses: of.rates.llc_misses,
            });
        }
        found
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

    fn earlier(phases: &[(f64, f64, f64)]) -> UndisturbedProfile {
        let mut earlier = UndisturbedProfile::default();
        for (room, &(l1, ipc, sigma)) in earlier.iter_mut().zip(phases) {
            *room = Some(UndisturbedRates {
                core_type: 0,
                phase: phase(l1),
                ipc: Sure::of_factor(ipc, sigma * sigma).unwrap(),
                llc_misses: None,
            });
        }
        earlier
    }

    #[test]
    fn what_earlier_runs_did_stands_in_until_it_is_measured() {
        use Quietness::{Disturbed, Quiet};
        let none = || [(0, 0.0); BESIDE];
        let mut known = Undisturbed::default();
        let ipc = |known: &Undisturbed, l1: f64| {
            let found = known.find(0, &phase(l1));
            found.map(|of| (of.rates.ipc * 1e3).round() / 1e3)
        };
        // What it did until that was known is worth less, unless it was faster.
        known.learn(0, &phase(300.0), &rates(1.0), Disturbed, none);
        known.learn(0, &phase(400.0), &rates(3.0), Disturbed, none);
        known.remember(&earlier(&[
            (300.0, 2.0, 0.0),
            (400.0, 2.0, 0.0),
            (500.0, 2.0, 0.1),
            (600.0, 2.0, 0.2),
        ]));
        assert_eq!(ipc(&known, 300.0), Some(2.0));
        assert_eq!(ipc(&known, 400.0), Some(3.0));
        let less = ipc(&known, 500.0);
        assert_eq!(less, Some(1.81), "by a standard error");
        assert_eq!(ipc(&known, 600.0), None, "runs differ too much");
        assert_eq!(known.found(), UndisturbedProfile::default());
        known.learn(0, &phase(300.0), &rates(1.0), Disturbed, none);
        assert_eq!(ipc(&known, 300.0), Some(2.0));
        // The first that is measured counts alone.
        known.learn(0, &phase(300.0), &rates(1.8), Quiet, none);
        assert_eq!(ipc(&known, 300.0), Some(1.8));
        assert_eq!(ipc(&known, 500.0), less);
        let found = known.found()[0].unwrap();
        assert!((found.ipc.factor() - 1.8).abs() < 1e-9);
    }

    #[test]
    fn what_earlier_runs_did_is_forgotten_where_it_is_wrong() {
        use Quietness::{Disturbed, Quiet};
        let none = || [(0, 0.0); BESIDE];
        for (ipc, company, known_after) in [(1.0, Quiet, 0), (1.9, Quiet, 2), (2.5, Disturbed, 2)] {
            let mut known = Undisturbed::default();
            known.remember(&earlier(&[
                (300.0, 2.0, 0.0),
                (400.0, 1.0, 0.0),
                (500.0, 1.0, 0.0),
            ]));
            known.learn(0, &phase(300.0), &rates(ipc), company, none);
            let left = [400.0, 500.0].map(|l1| known.find(0, &phase(l1)).is_some());
            let left = left.iter().filter(|left| **left).count();
            assert_eq!(left, known_after, "{ipc}");
            let entry = known.find(0, &phase(300.0)).unwrap();
            assert_eq!((entry.rates.ipc, entry.past), (ipc, false));
            known.remember(&UndisturbedProfile::default());
            assert!(known.find(0, &phase(400.0)).is_none(), "another program");
            assert!(known.find(0, &phase(300.0)).is_some());
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
