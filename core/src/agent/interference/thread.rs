// SPDX-License-Identifier: GPL-2.0-or-later
//! What is known of a thread, and what slows it down.

use crate::agent::disturbed::SURE;
use crate::interference::company::{Quietness, ThreadCompany};
use crate::interference::rules::{besides, best, classify};
use crate::interference::signs::{InterferenceSigns, SignRates, at};
use crate::interference::undisturbed::{BESIDE, Undisturbed};
use crate::interference::{CLASSES, DISTURBED, Interference, InterferenceClass};
use crate::knowledge::{ThreadLoss, ThreadLosses};
use crate::slowdown::Phase;
use crate::table::TaskId;

/// A thread that has moved to another core type finds cold caches there: so many samples say nothing.
pub(super) const COLD: u32 = 1;

/// Samples after which something is told.
pub(super) const ENOUGH: u32 = 3;

/// Looks over which sleep is averaged.
const SLEEP: f64 = 32.0;

/// It sleeps more than it ever did by so many standard deviations of that average, for the least of many is low by chance.
const BY_CHANCE: f64 = 5.0;

/// A new sample counts for one in so many in what is told.
const AVERAGED: f64 = 4.0;

/// A sample of a thread with nothing in its way, as far as was known then.
#[derive(Clone, Copy, Debug)]
struct PendingSample {
    core_type: usize,
    phase: Phase,
    rates: SignRates,
    /// What transferred most beside it.
    beside: [(u32, f64); BESIDE],
    quietness: Quietness,
    /// The one before was such, too, of the same phase.
    follows: bool,
}

/// A thread of which there are samples.
#[derive(Clone, Debug, Default)]
pub(super) struct DisturbedThread {
    pub(super) generation: u32,
    pub(super) undisturbed: Undisturbed,
    /// Its last sample, if that was quiet.
    pending: Option<PendingSample>,
    pub(super) core_type: usize,
    /// On this core type.
    pub(super) samples: u32,
    /// Logarithm of the slowdown by run time.
    pub(super) slow: f64,
    /// How likely each class was.
    pub(super) likely: [f64; CLASSES],
    /// What transferred most beside it when its phase was fastest.
    pub(super) before: [(u32, f64); BESIDE],
    /// Part of the looks at which it slept, how many there were, and the least such part.
    pub(super) sleep: f64,
    looks: u32,
    least_sleep: f64,
    /// Logarithm of how many times longer it takes for a late thread of its process, and what keeps that.
    pub(super) waits: f64,
    pub(super) late: Option<(u32, f64)>,
    pub(super) culprit: Option<(u32, f64)>,
    /// What it lost to others and was not kept yet.
    pub(super) losses: ThreadLosses,
}

impl DisturbedThread {
    pub(super) fn new(id: TaskId) -> Self {
        Self {
            generation: id.generation,
            core_type: usize::MAX,
            least_sleep: 1.0,
            ..Self::default()
        }
    }

    /// Takes in its rates beside this company; `clock` is the highest of its core type, Hz.
    pub(super) fn take(
        &mut self,
        now: &SignRates,
        phase: &Phase,
        company: ThreadCompany,
        beside: impl FnOnce() -> [(u32, f64); BESIDE],
        clock: f64,
    ) {
        self.learn(now, phase, &company, beside);
        let Some(entry) = self.undisturbed.find(self.core_type, phase) else {
            return;
        };
        self.before = entry.beside;
        let alone = SignRates {
            frequency: entry.rates.frequency.max(clock),
            ..entry.rates
        };
        let fast = self.core_type == 0;
        let Some(signs) = InterferenceSigns::of(now, &alone, &company, fast) else {
            return;
        };
        let mut likely = classify(&signs);
        let is_explained = match best(&likely).0 {
            InterferenceClass::None => false,
            InterferenceClass::Llc => company.uses_the_cache(),
            _ => true,
        };
        // Memory may be fuller than is likely, unless it was measured.
        if !is_explained && company.least_bandwidth < company.bandwidth {
            let fuller = ThreadCompany {
                bandwidth: company.least_bandwidth,
                ..company
            };
            let signs = InterferenceSigns::of(now, &alone, &fuller, fast);
            likely = signs.map_or(likely, |signs| classify(&signs));
        }
        // The first ones count for more.
        let weight = 1.0 / f64::from(self.samples.saturating_sub(COLD).max(1)).min(AVERAGED);
        self.slow += (signs.values[at::SLOW].max(0.0) - self.slow) * weight;
        for (of, likely) in self.likely.iter_mut().zip(likely) {
            *of += (likely - *of) * weight;
        }
    }

    /// Learns what it does. A look may be late to tell what is beside it, so a sample is undisturbed only between two that are quiet,
    /// too, of the same phase.
    fn learn(
        &mut self,
        now: &SignRates,
        phase: &Phase,
        company: &ThreadCompany,
        beside: impl FnOnce() -> [(u32, f64); BESIDE],
    ) {
        let core_type = self.core_type;
        let quietness = company.quietness(now.btr());
        let before = self.pending.take();
        if quietness == Quietness::Disturbed {
            self.undisturbed
                .learn(core_type, phase, now, quietness, beside);
            return;
        }
        // What transfers hardly anything is not slower for what others do.
        let beside = match company.leaves_room(now.btr()) {
            true => beside(),
            false => Default::default(),
        };
        let before = before.filter(|of| of.core_type == core_type && of.phase.is_same(phase));
        self.pending = Some(PendingSample {
            core_type,
            phase: *phase,
            rates: *now,
            beside,
            quietness,
            follows: before.is_some(),
        });
        if let Some(of) = before.filter(|of| of.follows) {
            let known = || of.beside;
            self.undisturbed
                .learn(core_type, &of.phase, &of.rates, of.quietness, known);
        }
        if !self.undisturbed.is_quiet(core_type, phase) {
            self.undisturbed
                .learn(core_type, phase, now, Quietness::Disturbed, || beside);
        }
    }

    /// A look at the tasks finds it asleep, or not.
    pub(super) fn look(&mut self, asleep: bool) {
        self.looks = self.looks.saturating_add(1);
        let asleep = f64::from(u8::from(asleep));
        let weight = 1.0 / f64::from(self.looks).min(SLEEP);
        self.sleep += (asleep - self.sleep) * weight;
        if f64::from(self.looks) >= SLEEP {
            // What was long ago may be another part of the program.
            self.least_sleep = (self.least_sleep * 1.001 + 1e-6).min(self.sleep);
        } else {
            self.least_sleep = 1.0;
        }
    }

    /// It has run for so long as it is told to be disturbed now, s.
    pub(super) fn lose(&mut self, ran_s: f64) {
        let told = self.told();
        let sure = self.samples >= ENOUGH && told.confidence >= SURE && told.slowdown >= DISTURBED;
        if let Some(loss) = ThreadLoss::of(&told, ran_s).filter(|_| sure) {
            loss.add_to(&mut self.losses);
        }
    }

    /// How many times longer it takes for it sleeps more than it did, as a logarithm.
    pub(super) fn sleeps_longer(&self) -> Option<f64> {
        let awake = |asleep: f64| (1.0 - asleep).max(1e-3);
        let longer = (awake(self.least_sleep) / awake(self.sleep)).ln();
        let mean = (self.sleep + self.least_sleep) / 2.0;
        let deviation = (mean * (1.0 - mean) / (2.0 * SLEEP)).sqrt();
        let is_more = self.sleep - self.least_sleep >= BY_CHANCE * deviation;
        let enough = f64::from(self.looks) >= 2.0 * SLEEP && longer >= DISTURBED.ln();
        (enough && is_more).then_some(longer)
    }

    /// The class by its samples alone, and how sure that is.
    pub(super) fn suspected(&self) -> (InterferenceClass, f64) {
        let (class, confidence) = best(&self.likely);
        match self.slow.exp() < DISTURBED {
            true => (
                InterferenceClass::None,
                self.likely[InterferenceClass::None as usize],
            ),
            false => (class, confidence),
        }
    }

    pub(super) fn told(&self) -> Interference {
        if self.waits > self.slow.max(DISTURBED.ln()) {
            return Interference {
                slowdown: (self.slow + self.waits).exp(),
                class: InterferenceClass::Wait,
                also: None,
                confidence: self.waits / (self.slow + self.waits),
                culprit: self.late,
            };
        }
        let (class, confidence) = self.suspected();
        // Where nothing disturbs it, it is slower by its own doing: cold caches, or other data.
        let class = self.culprit.map_or(InterferenceClass::None, |_| class);
        let besides = besides(class, &self.likely);
        Interference {
            slowdown: self.slow.exp(),
            class,
            also: besides.map(|(also, _)| also),
            confidence: confidence + besides.map_or(0.0, |(_, likely)| likely),
            culprit: self.culprit,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::Rng;

    use super::*;
    use crate::testing::phase;

    const QUIET: f64 = 0.0;
    const LOUD: f64 = 9e9;

    fn thread() -> DisturbedThread {
        DisturbedThread {
            core_type: 0,
            ..DisturbedThread::new(TaskId {
                slot: 0,
                generation: 1,
            })
        }
    }

    /// A sample with this IPC, beside others that transfer so much as far as is known, and are these.
    fn take(thread: &mut DisturbedThread, ipc: f64, others: f64, beside: [(u32, f64); BESIDE]) {
        let now = SignRates {
            ipc,
            frequency: 1e9,
            llc_misses: Some(0.01),
            ..SignRates::default()
        };
        let company = ThreadCompany {
            btr: others,
            ..ThreadCompany::alone(10e9)
        };
        thread.samples += 1;
        thread.take(&now, &phase(300.0), company, || beside, 1e9);
    }

    #[test]
    fn a_sample_is_undisturbed_only_between_two_that_are_quiet_too() {
        assert!(
            size_of::<DisturbedThread>() <= 1664,
            "as docs/interference.md says"
        );
        let mut thread = thread();
        let (silent, loud) = (
            [(7, 0.0), (0, 0.0), (0, 0.0)],
            [(7, LOUD), (0, 0.0), (0, 0.0)],
        );
        let is_quiet = |thread: &DisturbedThread| thread.undisturbed.is_quiet(0, &phase(300.0));
        // The look before did not know yet of what began with this sample.
        take(&mut thread, 1.0, QUIET, loud);
        take(&mut thread, 1.0, LOUD, loud);
        take(&mut thread, 1.0, LOUD, loud);
        assert!(!is_quiet(&thread));
        for (nth, quiet) in [false, false, true, true].into_iter().enumerate() {
            take(&mut thread, 2.0, QUIET, silent);
            assert_eq!(is_quiet(&thread), quiet, "{nth}");
        }
        let entry = *thread.undisturbed.find(0, &phase(300.0)).unwrap();
        assert_eq!((entry.rates.ipc, entry.beside), (2.0, silent));
        // It begins again, and ends: the samples at either end change nothing.
        take(&mut thread, 1.0, QUIET, loud);
        take(&mut thread, 1.0, LOUD, loud);
        take(&mut thread, 1.0, QUIET, loud);
        take(&mut thread, 2.0, QUIET, silent);
        let after = thread.undisturbed.find(0, &phase(300.0)).unwrap();
        assert_eq!((after.rates.ipc, after.beside), (2.0, silent));
        assert!(thread.slow > 0.1, "{}", thread.slow);
    }

    #[test]
    fn what_needs_no_memory_says_nothing_of_what_others_transfer() {
        let mut thread = thread();
        let loud = [(7, LOUD), (0, 0.0), (0, 0.0)];
        for _ in 0..3 {
            let now = SignRates {
                ipc: 1.0,
                frequency: 1e9,
                llc_misses: Some(1e-6),
                ..SignRates::default()
            };
            let company = ThreadCompany {
                btr: LOUD,
                ..ThreadCompany::alone(10e9)
            };
            thread.samples += 1;
            thread.take(&now, &phase(300.0), company, || loud, 1e9);
        }
        let entry = thread.undisturbed.find(0, &phase(300.0)).unwrap();
        assert!(entry.quiet);
        assert_eq!(entry.beside, [(0, 0.0); BESIDE]);
    }

    #[test]
    fn sleep_that_comes_and_goes_by_chance_is_no_wait() {
        let mut chance = Pcg64Mcg::new(1);
        let mut looks = |thread: &mut DisturbedThread, part: f64, number: u32| {
            (0..number).fold(0, |told, _| {
                thread.look((chance.next_u64() as f64) < part * u64::MAX as f64);
                told + u32::from(thread.sleeps_longer().is_some())
            })
        };
        for part in [0.1, 0.5, 0.75, 0.9] {
            let mut thread = thread();
            let told = looks(&mut thread, part, 5000);
            assert_eq!(told, 0, "{part}");
        }
        // Awake for half of that time, or less.
        for (part, more) in [(0.0, 0.5), (0.1, 0.55), (0.5, 0.85)] {
            let mut thread = thread();
            looks(&mut thread, part, 500);
            looks(&mut thread, more, 96);
            let longer = thread.sleeps_longer().map(f64::exp);
            assert!(longer.is_some_and(|of| of > 1.4), "{part}: {longer:?}");
        }
    }

    #[test]
    fn time_lost_is_told_once() {
        let mut thread = thread();
        for _ in 0..10 {
            take(&mut thread, 2.0, QUIET, [(0, 0.0); BESIDE]);
        }
        for _ in 0..20 {
            take(&mut thread, 1.0, LOUD, [(0, 0.0); BESIDE]);
        }
        thread.lose(1.0);
        assert_eq!(
            thread.losses,
            ThreadLosses::default(),
            "it is not known by which"
        );
        thread.culprit = Some((7, 1.0));
        thread.lose(1.0);
        thread.lose(1.0);
        let loss = thread.losses[0].unwrap();
        assert_eq!((loss.by, loss.class), (7, InterferenceClass::Bandwidth));
        assert!((loss.lost_s - 1.0).abs() < 0.1, "{loss:?}");
        assert!((loss.lost_s + loss.alone_s - 2.0).abs() < 1e-9, "{loss:?}");
    }
}
