// SPDX-License-Identifier: GPL-2.0-or-later
//! History tables: how fast a thread is on the fastest core type without contention, by phase
//! (CAMPS 2018, section 4.2; the application's table, L2, in section 4.5).
//!
//! Entries keep instructions per cycle and the clock apart. A laptop's clock falls with load and
//! heat; IPS alone is what the IPC gives at the clock that can be had *now*, so that heat does not
//! look like contention.

use super::phase::Phase;

/// Entries of a thread's table, L1: the paper's choice (section 4.2).
pub const THREAD_ENTRIES: usize = 22;

/// Entries of an application's table, L2, for each of a thread's table.
pub const APPLICATION_ENTRIES: usize = 4;

/// A running average weighs a new sample by one in so many at least, so that it follows a thread
/// that changes slowly.
const AVERAGED: u32 = 16;

/// So many samples, and nothing is left of what earlier runs of the program knew.
const OWN: u32 = 8;

/// What is known of one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Mean of the phases that were counted to it.
    pub phase: Phase,
    /// Mean instructions per cycle.
    pub ipc: f64,
    /// Mean clock, Hz.
    pub frequency: f64,
    /// Samples in the averages; no more than their window.
    pub samples: u32,
    /// Nothing was in the thread's way; else it is worked out from what another thread of the core left
    /// of it ([`super::sibling`]).
    pub exact: bool,
    /// It is of an earlier run of the program; if there is more than one sample, in part.
    pub past: bool,
    /// When it was last found or updated, by the table's own count.
    used: u64,
}

impl Entry {
    /// Of one sample.
    fn new(phase: &Phase, ipc: f64, frequency: f64, exact: bool) -> Self {
        Self {
            phase: *phase,
            ipc,
            frequency,
            samples: 1,
            exact,
            past: false,
            used: 0,
        }
    }

    /// Instructions per second at a clock of `frequency` Hz, or if that is not known at the clock
    /// at which they were measured.
    pub fn ips(&self, frequency: Option<f64>) -> f64 {
        self.ipc * frequency.unwrap_or(self.frequency)
    }
}

/// Running averages by phase. When full, the entry that was not found or updated for longest gives
/// way; between equals the one with fewer samples, then the older one.
#[derive(Clone, Debug)]
pub struct History {
    entries: Vec<Entry>,
    capacity: usize,
    /// Counts uses.
    uses: u64,
}

impl History {
    /// An empty table.
    pub fn new(capacity: usize) -> Self {
        Self {
            // Most threads have a phase or two, and there may be thousands.
            entries: Vec::new(),
            capacity,
            uses: 0,
        }
    }

    /// What it holds.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Which entry was found or updated last, by its place in [`History::entries`].
    pub fn latest(&self) -> Option<usize> {
        let entries = self.entries.iter().enumerate();
        Some(entries.max_by_key(|(_, entry)| entry.used)?.0)
    }

    /// The entry nearest to `phase`, if that is the same phase: a phase hit.
    pub fn find(&mut self, phase: &Phase) -> Option<Entry> {
        let index = self.index(phase)?;
        Some(*self.touch(index))
    }

    /// The entry nearest to `phase`, if that is the same phase; it does not count as used.
    pub fn peek(&self, phase: &Phase) -> Option<&Entry> {
        self.index(phase).map(|index| &self.entries[index])
    }

    /// Adds a sample to the running average of its phase, in the place of what is not exact if this is; `true` if
    /// the phase is a new one.
    pub fn learn(&mut self, phase: &Phase, ipc: f64, frequency: f64, exact: bool) -> bool {
        let Some(index) = self.index(phase) else {
            self.insert(Entry::new(phase, ipc, frequency, exact));
            return true;
        };
        let entry = self.touch(index);
        if exact && !entry.exact {
            (entry.samples, entry.exact, entry.past) = (0, true, false);
        }
        entry.samples = (entry.samples + 1).min(AVERAGED);
        entry.past &= entry.samples < OWN;
        let weight = 1.0 / f64::from(entry.samples);
        entry.ipc += (ipc - entry.ipc) * weight;
        entry.frequency += (frequency - entry.frequency) * weight;
        entry.phase.approach(phase, weight);
        false
    }

    /// Takes over an entry of another table. It counts as one sample here, so that what this
    /// thread measures itself soon prevails.
    pub fn insert(&mut self, entry: Entry) {
        let entry = Entry {
            samples: 1,
            ..entry
        };
        let index = if self.entries.len() < self.capacity {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            let ages = self.entries.iter().enumerate();
            let Some((oldest, _)) = ages.min_by_key(|(_, entry)| (entry.used, entry.samples))
            else {
                return; // a table without room
            };
            self.entries[oldest] = entry;
            oldest
        };
        self.touch(index);
    }

    /// Takes over what an earlier run of the program knew of a phase, see [`History::insert`].
    pub fn remember(&mut self, phase: &Phase, ipc: f64, frequency: f64, exact: bool) {
        self.insert(Entry {
            past: true,
            ..Entry::new(phase, ipc, frequency, exact)
        });
    }

    /// Forgets what earlier runs knew, even in part.
    pub fn forget_the_past(&mut self) {
        self.entries.retain(|entry| !entry.past);
    }

    /// Mean IPS of all samples that the averages hold, as of [`Entry::ips`].
    pub fn mean_ips(&self, frequency: Option<f64>) -> Option<f64> {
        let samples: u32 = self.entries.iter().map(|entry| entry.samples).sum();
        let ips = |entry: &Entry| entry.ips(frequency) * f64::from(entry.samples);
        let sum: f64 = self.entries.iter().map(ips).sum();
        (samples > 0).then(|| sum / f64::from(samples))
    }

    fn index(&self, phase: &Phase) -> Option<usize> {
        let distances = self.entries.iter().map(|entry| entry.phase.distance(phase));
        let nearest = distances
            .enumerate()
            .min_by(|(_, a), (_, b)| a.total_cmp(b));
        let (index, _) = nearest?;
        self.entries[index].phase.is_same(phase).then_some(index)
    }

    fn touch(&mut self, index: usize) -> &mut Entry {
        self.uses += 1;
        let entry = &mut self.entries[index];
        entry.used = self.uses;
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::phase;

    #[test]
    fn a_phase_that_is_known_is_averaged_and_a_new_one_gets_an_entry() {
        let mut table = History::new(THREAD_ENTRIES);
        assert!(table.learn(&phase(100.0), 1.0, 1e9, true));
        assert!(!table.learn(&phase(110.0), 2.0, 2e9, true));
        assert!(table.learn(&phase(300.0), 0.5, 1e9, true));
        let first = table.entries()[0];
        assert_eq!((first.ipc, first.frequency), (1.5, 1.5e9));
        assert_eq!(first.phase.l1_per_kilo, Some(105.0));
        assert_eq!(table.find(&phase(200.0)), None);
        assert_eq!(table.find(&phase(310.0)).unwrap().ipc, 0.5);
    }

    #[test]
    fn averages_follow_a_thread_that_changes() {
        let mut table = History::new(THREAD_ENTRIES);
        for _ in 0..1000 {
            table.learn(&phase(100.0), 1.0, 1e9, true);
        }
        for _ in 0..100 {
            table.learn(&phase(100.0), 2.0, 1e9, true);
        }
        assert!(table.entries()[0].ipc > 1.99);
    }

    #[test]
    fn the_entry_not_used_for_longest_gives_way() {
        let mut table = History::new(3);
        for l1 in [100.0, 200.0, 300.0] {
            table.learn(&phase(l1), l1, 1e9, true);
        }
        table.find(&phase(100.0));
        table.learn(&phase(400.0), 400.0, 1e9, true);
        assert_eq!(table.find(&phase(200.0)), None);
        assert!(table.find(&phase(100.0)).is_some());
        assert_eq!(table.entries().len(), 3);
    }

    #[test]
    fn ips_is_that_at_the_clock_asked_for() {
        let mut table = History::new(2);
        assert_eq!(table.mean_ips(None), None);
        table.learn(&phase(100.0), 2.0, 1e9, true);
        table.learn(&phase(200.0), 1.0, 1e9, true);
        table.learn(&phase(200.0), 1.0, 1e9, true);
        assert_eq!(table.mean_ips(Some(3e9)), Some(4e9));
        assert_eq!(table.entries()[0].ips(None), 2e9);
        assert_eq!(table.entries()[0].ips(Some(5e8)), 1e9);
    }
}
