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
    /// What it does on the fastest type beside busy siblings, see [`Self::beside_others`].
    disturbed: History,
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
    /// Likewise, of [`Self::beside_others`].
    beside: u8,
    /// Likewise, measured against what an earlier run had alone.
    against_past: u8,
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
            disturbed: History::new(entries),
            samples: 0,
            slowdown: [None; MAX_CORE_TYPES],
            average: 1.0,
            hits: 0,
            learned: 0,
            totals: (0, 0),
            expected: 0,
            beside: 0,
            against_past: 0,
        }
    }

    /// Takes over what an earlier run knew of a phase undisturbed on the fastest type: instructions per
    /// cycle, and the clock, Hz; `exact` as in [`super::history::Entry`].
    pub fn remember(&mut self, phase: &Phase, ipc: f64, frequency: f64, exact: bool) {
        self.history.remember(phase, ipc, frequency, exact);
    }

    /// Takes a slowdown on a core type for what it will be, until it is measured there.
    pub fn expect(&mut self, core_type: usize, slowdown: f64) {
        if core_type < MAX_CORE_TYPES && !self.is_known_otherwise(core_type) {
            self.slowdown[core_type] = Some(slowdown.clamp(1.0, MAX_SLOWDOWN));
            self.expected |= 1 << core_type;
            self.beside &= !(1 << core_type);
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
            if (self.expected | self.against_past) & 1 << core_type != 0 {
                *slowdown = None;
            }
        }
        (self.expected, self.against_past) = (0, 0);
    }

    /// Whether the slowdown on a core type was measured, and is not only expected.
    pub fn is_measured(&self, core_type: usize) -> bool {
        self.slowdown(core_type).is_some() && (self.expected | self.beside) & 1 << core_type == 0
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
            let past = match known {
                Some(entry) => entry.past,
                None => self.history.entries().iter().any(|entry| entry.past),
            };
            self.against_past |= u8::from(past) << reading.core_type;
        } else if let Some(slowdown) = self.beside_others(reading, frequency)
            && !self.is_known_otherwise(reading.core_type)
        {
            self.set(reading.core_type, slowdown);
            self.beside |= 1 << reading.core_type;
        }
        match (known, alone) {
            (Some(_), _) => ReadingOutcome::Hit,
            (None, Some(_)) => ReadingOutcome::Miss,
            (None, None) => ReadingOutcome::Unknown,
        }
    }

    /// The slowdown of a thread of which nothing is known undisturbed, and that runs beside busy siblings: as if what it does on the
    /// fastest type, but for what its sibling takes, were all that it can. So it is told apart by core types and siblings, and not by
    /// contention.
    fn beside_others(&mut self, reading: &Reading, frequency: Option<f64>) -> Option<f64> {
        if reading.core_type == BIG {
            let factor = reading.shared();
            if factor > 1.0 {
                let ipc = reading.ipc * factor;
                self.disturbed
                    .learn(&reading.phase, ipc, reading.frequency, false);
            }
            return (!self.disturbed.entries().is_empty()).then_some(factor);
        }
        let alone = match self.disturbed.find(&reading.phase) {
            Some(entry) => entry.ips(frequency),
            None => self.disturbed.mean_ips(frequency)?,
        };
        Some(alone / reading.ips)
    }

    fn is_known_otherwise(&self, core_type: usize) -> bool {
        self.slowdown(core_type).is_some() && self.beside & 1 << core_type == 0
    }

    fn set(&mut self, core_type: usize, slowdown: f64) {
        let slowdown = slowdown.clamp(1.0, MAX_SLOWDOWN);
        self.slowdown[core_type] = Some(slowdown);
        for marked in [&mut self.expected, &mut self.beside, &mut self.against_past] {
            *marked &= !(1 << core_type);
        }
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
mod tests;
