// SPDX-License-Identifier: GPL-2.0-or-later
//! A thread's slowdown, sample by sample (CAMPS 2018, section 4.2 and Fig. 3).

use super::history::{History, THREAD_ENTRIES};
use super::phase::Phase;
use crate::topology::MAX_CORE_TYPES;

/// Of the samples of a thread's warm-up (section 4.3) the first so many are not used at all: cold caches.
pub const DISCARDED: u32 = 2;

/// Slowdowns are not believed beyond this: the paper's boards have speedup factors up to 5 and
/// contention up to 3.
pub const MAX_SLOWDOWN: f64 = 16.0;

/// A new estimate counts for one in so many in the average slowdown.
const AVERAGED: f64 = 8.0;

/// The fastest core type.
const BIG: usize = 0;

/// What a thread did in one monitoring interval.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Core type on which it ran, index.
    pub core_type: usize,
    /// Its phase.
    pub phase: Phase,
    /// Instructions per second of run time.
    pub ips: f64,
    /// Instructions per cycle.
    pub ipc: f64,
    /// Mean clock while it ran, Hz.
    pub frequency: f64,
    /// Clock that can be had on the fastest type at present, Hz.
    pub big_frequency: Option<f64>,
    /// No other was in its way in caches and memory.
    pub low_contention: bool,
    /// How many times slower the other thread of its core made it: 1 if that was idle, and what it is
    /// taken for ([`super::sibling`]) if it was busy. `None` if it came or left meanwhile.
    pub sibling: Option<f64>,
}

impl Reading {
    /// Whether it had its core to itself, and nothing was in its way.
    pub fn is_undisturbed(&self) -> bool {
        self.low_contention && self.sibling == Some(1.0)
    }

    /// The part of a slowdown that is by the other thread of its core.
    pub fn shared(&self) -> f64 {
        self.sibling.unwrap_or(1.0)
    }
}

/// What was made of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingOutcome {
    /// Nothing: too early in its life, or not a number to divide by.
    Discarded,
    /// It went into the history; `new` if the phase was not known.
    Learned {
        /// Neither the thread nor its application knew the phase.
        new: bool,
    },
    /// The phase was known: a phase hit.
    Hit,
    /// It was not, so the thread's mean speed stood in: a phase miss.
    Miss,
    /// A phase miss, and nothing stands in; what was known before still holds.
    Unknown,
}

/// Estimates the slowdown of one thread.
#[derive(Clone, Debug)]
pub struct Estimator {
    history: History,
    samples: u32,
    slowdown: [Option<f64>; MAX_CORE_TYPES],
    average: f64,
    /// A bit per interval since the discarded ones, the latest lowest: was it a phase hit?
    hits: u64,
    /// Likewise: did a sample go into the history?
    learned: u64,
    /// Both since the thread began.
    totals: (u32, u32),
    /// A bit for each core type whose slowdown is of an earlier run of the program.
    expected: u8,
}

impl Default for Estimator {
    fn default() -> Self {
        Self::new(THREAD_ENTRIES)
    }
}

impl Estimator {
    /// With so many entries in the thread's own table.
    pub fn new(entries: usize) -> Self {
        Self {
            history: History::new(entries),
            samples: 0,
            slowdown: [None; MAX_CORE_TYPES],
            average: 1.0,
            hits: 0,
            learned: 0,
            totals: (0, 0),
            expected: 0,
        }
    }

    /// Takes over what an earlier run knew of a phase undisturbed on the fastest type: instructions per
    /// cycle, and the clock, Hz; `exact` as in [`super::history::Entry`].
    pub fn remember(&mut self, phase: &Phase, ipc: f64, frequency: f64, exact: bool) {
        self.history.remember(phase, ipc, frequency, exact);
    }

    /// Takes a slowdown on a core type for what it will be, until it is measured there.
    pub fn expect(&mut self, core_type: usize, slowdown: f64) {
        if core_type < MAX_CORE_TYPES && self.slowdown[core_type].is_none() {
            self.slowdown[core_type] = Some(slowdown.clamp(1.0, MAX_SLOWDOWN));
            self.expected |= 1 << core_type;
        }
    }

    /// Whether nothing is known of a phase.
    pub fn lacks(&self, phase: &Phase) -> bool {
        let mut entries = self.history.entries().iter();
        !entries.any(|entry| entry.phase.is_same(phase))
    }

    /// Whether its next sample is one of those that are discarded.
    pub fn is_starting(&self) -> bool {
        self.samples < DISCARDED
    }

    /// Forgets what earlier runs knew.
    pub fn forget_the_past(&mut self) {
        self.history.forget_the_past();
        for (core_type, slowdown) in self.slowdown.iter_mut().enumerate() {
            if self.expected & 1 << core_type != 0 {
                *slowdown = None;
            }
        }
        self.expected = 0;
    }

    /// Whether the slowdown on a core type was measured, and is not only expected.
    pub fn is_measured(&self, core_type: usize) -> bool {
        self.slowdown(core_type).is_some() && self.expected & 1 << core_type == 0
    }
}

impl Estimator {
    /// The most intervals that [`Estimator::hit_rate`] looks back.
    pub const MAX_INTERVALS: u32 = u64::BITS;

    /// Takes a reading in. `shared` is the application's table (L2, section 4.5): a phase that is
    /// new goes there as well, and one that is unknown here is looked for there and copied.
    pub fn observe(&mut self, reading: &Reading, shared: Option<&mut History>) -> ReadingOutcome {
        let mut shared = shared;
        let sound = reading.ips > 0.0 && reading.ipc > 0.0 && reading.frequency > 0.0;
        if !sound || reading.core_type >= MAX_CORE_TYPES {
            return ReadingOutcome::Discarded;
        }
        self.samples = self.samples.saturating_add(1);
        if self.samples <= DISCARDED {
            return ReadingOutcome::Discarded;
        }
        let mut known = self.history.find(&reading.phase);
        if known.is_none()
            && let Some(shared) = shared.as_deref_mut()
        {
            known = shared.find(&reading.phase);
            if let Some(entry) = known {
                self.history.insert(entry);
            }
        }
        let on_big = reading.core_type == BIG;
        // What is known exactly is not mixed with what is worked out.
        let exact = reading.is_undisturbed();
        let adds = exact || !known.is_some_and(|entry| entry.exact);
        let learns = on_big && reading.low_contention && reading.sibling.is_some() && adds;
        self.hits = self.hits << 1 | u64::from(known.is_some());
        self.learned = self.learned << 1 | u64::from(learns);
        self.totals.0 = self.totals.0.saturating_add(known.is_some().into());
        self.totals.1 = self.totals.1.saturating_add(learns.into());

        // On the fastest type the clock is that which the thread had itself.
        let frequency = if on_big {
            Some(reading.frequency)
        } else {
            reading.big_frequency
        };
        if learns {
            let learn = |table: &mut History| {
                let ipc = reading.ipc * reading.shared();
                table.learn(&reading.phase, ipc, reading.frequency, exact);
            };
            learn(&mut self.history);
            if known.is_none()
                && let Some(shared) = shared
            {
                learn(shared);
            }
            self.set(BIG, reading.shared());
            let new = known.is_none();
            return ReadingOutcome::Learned { new };
        }
        let alone = match known {
            Some(entry) => Some(entry.ips(frequency)),
            None => self.history.mean_ips(frequency),
        };
        if let Some(alone) = alone {
            self.set(reading.core_type, alone / reading.ips);
        }
        match (known, alone) {
            (Some(_), _) => ReadingOutcome::Hit,
            (None, Some(_)) => ReadingOutcome::Miss,
            (None, None) => ReadingOutcome::Unknown,
        }
    }

    fn set(&mut self, core_type: usize, slowdown: f64) {
        let slowdown = slowdown.clamp(1.0, MAX_SLOWDOWN);
        self.slowdown[core_type] = Some(slowdown);
        self.expected &= !(1 << core_type);
        self.average += (slowdown - self.average) / AVERAGED;
    }

    /// The latest slowdown on a core type, 1 to [`MAX_SLOWDOWN`]; `None` if it is not known.
    pub fn slowdown(&self, core_type: usize) -> Option<f64> {
        self.slowdown.get(core_type).copied().flatten()
    }

    /// Mean slowdown of late, over all core types.
    pub fn average(&self) -> f64 {
        self.average
    }

    /// Intervals so far, without those discarded.
    pub fn intervals(&self) -> u32 {
        self.samples.saturating_sub(DISCARDED)
    }

    /// Phase hits among the last `k` intervals, 0 to 1; 1 before there are any.
    pub fn hit_rate(&self, k: u32) -> f64 {
        let k = k.min(self.intervals()).min(Self::MAX_INTERVALS);
        if k == 0 {
            return 1.0;
        }
        f64::from((self.hits & last(k)).count_ones()) / f64::from(k)
    }

    /// Samples that went into the history within the last `k` intervals.
    pub fn learned(&self, k: u32) -> u32 {
        (self.learned & last(k.min(Self::MAX_INTERVALS))).count_ones()
    }

    /// Phase hits, and samples that went into the history, since the thread began.
    pub fn totals(&self) -> (u32, u32) {
        self.totals
    }

    /// The thread's own table.
    pub fn history(&self) -> &History {
        &self.history
    }
}

/// The lowest `k` bits.
fn last(k: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - k).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::phase;

    const SMALL: usize = 1;

    /// At 1 GHz, all types alike.
    fn reading(core_type: usize, l1: f64, ipc: f64, low_contention: bool) -> Reading {
        Reading {
            core_type,
            phase: phase(l1),
            ips: ipc * 1e9,
            ipc,
            frequency: 1e9,
            big_frequency: Some(1e9),
            low_contention,
            sibling: Some(1.0),
        }
    }

    fn warm() -> Estimator {
        let mut estimator = Estimator::default();
        for _ in 0..DISCARDED {
            let outcome = estimator.observe(&reading(BIG, 100.0, 9.0, true), None);
            assert_eq!(outcome, ReadingOutcome::Discarded);
        }
        estimator
    }

    #[test]
    fn the_first_two_samples_are_discarded() {
        let mut estimator = warm();
        assert!(estimator.history().entries().is_empty());
        estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
        assert_eq!(estimator.history().entries()[0].ipc, 2.0);
    }

    #[test]
    fn slowdown_is_one_on_a_big_core_without_contention() {
        let mut estimator = warm();
        assert_eq!(estimator.slowdown(BIG), None);
        let outcome = estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
        assert_eq!(outcome, ReadingOutcome::Learned { new: true });
        let outcome = estimator.observe(&reading(BIG, 100.0, 1.5, true), None);
        assert_eq!(outcome, ReadingOutcome::Learned { new: false });
        assert_eq!(estimator.slowdown(BIG), Some(1.0));
    }

    #[test]
    fn a_phase_hit_gives_the_ratio_to_that_phase_and_a_miss_that_to_the_mean() {
        let mut estimator = warm();
        estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
        estimator.observe(&reading(BIG, 300.0, 1.0, true), None);
        let outcome = estimator.observe(&reading(SMALL, 100.0, 0.5, false), None);
        assert_eq!(outcome, ReadingOutcome::Hit);
        assert_eq!(estimator.slowdown(SMALL), Some(4.0));
        let outcome = estimator.observe(&reading(SMALL, 500.0, 0.5, false), None);
        assert_eq!(outcome, ReadingOutcome::Miss);
        assert_eq!(estimator.slowdown(SMALL), Some(3.0));
        let outcome = estimator.observe(&reading(BIG, 300.0, 0.5, false), None);
        assert_eq!(outcome, ReadingOutcome::Hit);
        assert_eq!(estimator.slowdown(BIG), Some(2.0));
        assert_eq!(estimator.slowdown(SMALL), Some(3.0), "kept by core type");
    }

    #[test]
    fn nothing_is_estimated_before_something_is_known() {
        let mut estimator = warm();
        let outcome = estimator.observe(&reading(SMALL, 100.0, 1.0, true), None);
        assert_eq!(outcome, ReadingOutcome::Unknown);
        let outcome = estimator.observe(&reading(BIG, 100.0, 1.0, false), None);
        assert_eq!(outcome, ReadingOutcome::Unknown);
        assert_eq!(estimator.slowdown(SMALL), None);
        assert_eq!(estimator.hit_rate(10), 0.0);
    }

    #[test]
    fn slowdowns_stay_between_one_and_the_greatest_believed() {
        let mut estimator = warm();
        estimator.observe(&reading(BIG, 100.0, 1.0, true), None);
        estimator.observe(&reading(SMALL, 100.0, 2.0, false), None);
        assert_eq!(estimator.slowdown(SMALL), Some(1.0));
        estimator.observe(&reading(SMALL, 100.0, 1e-6, false), None);
        assert_eq!(estimator.slowdown(SMALL), Some(MAX_SLOWDOWN));
        estimator.observe(&reading(SMALL, 100.0, 0.0, false), None);
        assert_eq!(
            estimator.slowdown(SMALL),
            Some(MAX_SLOWDOWN),
            "no division by zero"
        );
    }

    #[test]
    fn halved_clocks_are_no_slowdown() {
        let mut estimator = warm();
        estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
        let slow = |core_type, ipc| Reading {
            ips: ipc * 5e8,
            frequency: 5e8,
            big_frequency: Some(5e8),
            ..reading(core_type, 100.0, ipc, false)
        };
        estimator.observe(&slow(BIG, 2.0), None);
        assert_eq!(estimator.slowdown(BIG), Some(1.0));
        estimator.observe(&slow(SMALL, 0.5), None);
        assert_eq!(estimator.slowdown(SMALL), Some(4.0));
    }

    #[test]
    fn beside_a_busy_sibling_it_learns_what_it_would_do_without_until_that_is_known() {
        let mut estimator = warm();
        let beside = |l1, ipc, factor| Reading {
            sibling: factor,
            ..reading(BIG, l1, ipc, true)
        };
        let outcome = estimator.observe(&beside(100.0, 1.0, None), None);
        assert_eq!(outcome, ReadingOutcome::Unknown);
        let outcome = estimator.observe(&beside(100.0, 1.0, Some(1.5)), None);
        assert_eq!(outcome, ReadingOutcome::Learned { new: true });
        assert_eq!(estimator.history().entries()[0].ipc, 1.5);
        assert_eq!(estimator.slowdown(BIG), Some(1.5));
        estimator.observe(&reading(SMALL, 100.0, 0.5, true), None);
        assert_eq!(estimator.slowdown(SMALL), Some(3.0));
        // Alone it is even faster, and that is what counts from now on.
        estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
        let outcome = estimator.observe(&beside(100.0, 1.0, Some(1.5)), None);
        assert_eq!(outcome, ReadingOutcome::Hit);
        assert_eq!(estimator.history().entries()[0].ipc, 2.0);
        assert_eq!(estimator.slowdown(BIG), Some(2.0));
    }

    #[test]
    fn siblings_learn_from_the_applications_table_and_copy_what_they_find() {
        let mut shared = History::new(4);
        let mut first = warm();
        first.observe(&reading(BIG, 100.0, 2.0, true), Some(&mut shared));
        assert_eq!(shared.entries().len(), 1, "a new entry goes there too");

        let mut second = warm();
        let outcome = second.observe(&reading(SMALL, 100.0, 1.0, false), Some(&mut shared));
        assert_eq!(outcome, ReadingOutcome::Hit);
        assert_eq!(second.slowdown(SMALL), Some(2.0));
        let outcome = second.observe(&reading(SMALL, 100.0, 1.0, false), None);
        assert_eq!(outcome, ReadingOutcome::Hit, "copied");
        second.observe(&reading(BIG, 100.0, 4.0, true), Some(&mut shared));
        assert_eq!(shared.entries()[0].ipc, 2.0, "only new entries are written");
        assert_eq!(second.history().entries()[0].ipc, 3.0);
    }

    #[test]
    fn hits_and_inserted_samples_are_counted_over_the_last_k_intervals() {
        let mut estimator = warm();
        estimator.observe(&reading(BIG, 100.0, 2.0, true), None);
        for _ in 0..3 {
            estimator.observe(&reading(SMALL, 100.0, 1.0, false), None);
        }
        estimator.observe(&reading(SMALL, 500.0, 1.0, false), None);
        assert_eq!(estimator.hit_rate(4), 0.75);
        assert_eq!(estimator.hit_rate(50), 0.6);
        assert_eq!((estimator.learned(4), estimator.learned(5)), (0, 1));
        assert_eq!(estimator.totals(), (3, 1));
        for _ in 0..200 {
            estimator.observe(&reading(SMALL, 100.0, 1.0, false), None);
        }
        assert_eq!(estimator.hit_rate(200), 1.0);
        assert!(estimator.average() > 1.9);
    }
}
