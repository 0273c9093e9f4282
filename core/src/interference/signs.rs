// SPDX-License-Identifier: GPL-2.0-or-later
//! What tells classes of interference apart: a thread's rates now against undisturbed ones, and its company.
//!
//! Rates are per cycle that the same work took undisturbed, so that signs mean the same on fast and slow cores.

use super::company::ThreadCompany;
use crate::pmu::Meaning;
use crate::pmu::sample::{EventCounts, LINE_BYTES};

/// Names of the signs, in their order; columns of the table of pairs.
pub const SIGNS: [&str; 14] = [
    "slow",
    "clock",
    "misses-more",
    "misses",
    "l2-more",
    "l2",
    "stalled-more",
    "other-more",
    "sibling",
    "cluster",
    "bandwidth",
    "others",
    "asleep",
    "fast",
];

/// How many signs there are.
pub const NR_SIGNS: usize = SIGNS.len();

/// Places in [`SIGNS`].
pub mod at {
    /// Logarithm of the slowdown by run time.
    pub const SLOW: usize = 0;
    /// Of it, what the clock makes.
    pub const CLOCK: usize = 1;
    /// Misses of the last-level cache beyond those undisturbed, per 1,000 cycles undisturbed.
    pub const MISSES_MORE: usize = 2;
    /// All misses of the last-level cache, likewise.
    pub const MISSES: usize = 3;
    /// Misses of the L2 beyond those undisturbed, likewise.
    pub const L2_MORE: usize = 4;
    /// All misses of the L2, likewise.
    pub const L2: usize = 5;
    /// Cycles stalled for memory beyond those undisturbed, per cycle undisturbed.
    pub const STALLED_MORE: usize = 6;
    /// Other cycles beyond those undisturbed, likewise.
    pub const OTHER_MORE: usize = 7;
    /// Part of the time in which the other threads of its core are busy.
    pub const SIBLING: usize = 8;
    /// CPUs of other cores behind the same L2 that are busy.
    pub const CLUSTER: usize = 9;
    /// Part of the memory's bandwidth that its contention domain uses, itself included.
    pub const BANDWIDTH: usize = 10;
    /// Of it, what others use.
    pub const OTHERS: usize = 11;
    /// Logarithm of how many times longer it takes because it sleeps more than undisturbed.
    pub const ASLEEP: usize = 12;
    /// 1 on the fastest core type.
    pub const FAST: usize = 13;
}

/// How fast a thread was for a stretch on one core type, and what it did for that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SignRates {
    /// Instructions per cycle.
    pub ipc: f64,
    /// Mean clock while it ran, Hz.
    pub frequency: f64,
    /// Misses of the last-level cache in an instruction, where counted.
    pub llc_misses: Option<f64>,
    /// Misses of the L2 in an instruction, where counted.
    pub l2_misses: Option<f64>,
    /// Cycles of an instruction that are stalled for memory, where counted.
    pub stalled: Option<f64>,
    /// Part of the time in which it ran or waited for a CPU, where known.
    pub awake: Option<f64>,
}

impl SignRates {
    /// From counts of `run_ns` of run time; `None` without instructions and cycles.
    pub fn of(counts: &EventCounts, run_ns: u64) -> Option<Self> {
        let instructions = counts.get(Meaning::Instructions).filter(|&n| n > 0.0)?;
        let cycles = counts.get(Meaning::Cycles).filter(|&n| n > 0.0)?;
        let each = |meaning| Some(counts.get(meaning)? / instructions);
        (run_ns > 0).then(|| Self {
            ipc: instructions / cycles,
            frequency: cycles * 1e9 / run_ns as f64,
            llc_misses: each(Meaning::LlcMisses),
            l2_misses: each(Meaning::L2Misses).or_else(|| each(Meaning::LlcReferences)),
            stalled: each(Meaning::StalledMem),
            awake: None,
        })
    }

    /// Instructions per second of run time.
    pub fn ips(&self) -> f64 {
        self.ipc * self.frequency
    }

    /// What it moves over the bus, bytes per second of run time.
    pub fn btr(&self) -> f64 {
        self.llc_misses.unwrap_or(0.0) * self.ips() * LINE_BYTES
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InterferenceSigns {
    /// In the order of [`SIGNS`]; zero where it was not counted.
    pub values: [f64; NR_SIGNS],
    /// A bit for each that is known.
    pub known: u32,
}

impl InterferenceSigns {
    /// Of a thread whose rates are `now` and were `alone` undisturbed, on the same core type (the fastest if
    /// `fast`); `None` if these are nothing to compare with.
    pub fn of(
        now: &SignRates,
        alone: &SignRates,
        company: &ThreadCompany,
        fast: bool,
    ) -> Option<Self> {
        let sound = |rates: &SignRates| rates.ipc > 0.0 && rates.frequency > 0.0;
        if !sound(now) || !sound(alone) {
            return None;
        }
        let mut signs = Self {
            values: [0.0; NR_SIGNS],
            known: 0,
        };
        // Cycles that an instruction took undisturbed.
        let cycles = 1.0 / alone.ipc;
        let more = |now: Option<f64>, alone: Option<f64>, unit: f64| {
            let (now, alone) = now.zip(alone)?;
            Some(((now - alone) * unit / cycles, now * unit / cycles))
        };
        signs.set(at::SLOW, (alone.ips() / now.ips()).ln());
        signs.set(at::CLOCK, (alone.frequency / now.frequency).ln());
        if let Some((added, all)) = more(now.llc_misses, alone.llc_misses, 1e3) {
            signs.set(at::MISSES_MORE, added);
            signs.set(at::MISSES, all);
        }
        if let Some((added, all)) = more(now.l2_misses, alone.l2_misses, 1e3) {
            signs.set(at::L2_MORE, added);
            signs.set(at::L2, all);
        }
        if let Some((added, _)) = more(now.stalled, alone.stalled, 1.0) {
            signs.set(at::STALLED_MORE, added);
            signs.set(at::OTHER_MORE, alone.ipc / now.ipc - 1.0 - added);
        }
        signs.set(at::SIBLING, company.sibling);
        signs.set(at::CLUSTER, company.cluster);
        let bandwidth = company.bandwidth.max(f64::MIN_POSITIVE);
        let awake = now.awake.unwrap_or(1.0);
        if now.llc_misses.is_some() {
            let own = now.btr() * awake;
            signs.set(at::BANDWIDTH, (own + company.btr) / bandwidth);
            signs.set(at::OTHERS, company.btr / bandwidth);
        }
        if let Some((now, alone)) = now.awake.zip(alone.awake) {
            let longer = (alone.max(1e-3) / now.max(1e-3)).ln();
            signs.set(at::ASLEEP, longer.clamp(0.0, 4.0));
        }
        signs.set(at::FAST, f64::from(u8::from(fast)));
        Some(signs)
    }

    /// As a table has them.
    pub fn from_values(values: [Option<f64>; NR_SIGNS]) -> Self {
        let mut signs = Self {
            values: [0.0; NR_SIGNS],
            known: 0,
        };
        for (at, value) in values.into_iter().enumerate() {
            if let Some(value) = value {
                signs.set(at, value);
            }
        }
        signs
    }

    fn set(&mut self, at: usize, value: f64) {
        if value.is_finite() {
            self.values[at] = value;
            self.known |= 1 << at;
        }
    }

    /// One of them, where it is known.
    pub fn get(&self, at: usize) -> Option<f64> {
        (self.known & 1 << at != 0).then(|| self.values[at])
    }

    /// How many times longer than undisturbed the thread takes, sleep included.
    pub fn slowdown(&self) -> f64 {
        (self.values[at::SLOW].max(0.0) + self.values[at::ASLEEP].max(0.0)).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(ipc: f64, misses: f64) -> SignRates {
        SignRates {
            ipc,
            frequency: 1e9,
            llc_misses: Some(misses),
            ..SignRates::default()
        }
    }

    #[test]
    fn rates_are_of_what_was_counted() {
        let counts = [
            (Meaning::Instructions, 2e6),
            (Meaning::Cycles, 4e6),
            (Meaning::LlcReferences, 4e4),
            (Meaning::LlcMisses, 1e4),
        ];
        let counts: EventCounts = counts.into_iter().collect();
        let rates = SignRates::of(&counts, 20_000_000).unwrap();
        assert_eq!((rates.ipc, rates.frequency), (0.5, 2e8));
        assert_eq!((rates.l2_misses, rates.stalled), (Some(0.02), None));
        assert_eq!(rates.btr(), 1e4 * 64.0 / 0.02);
        assert_eq!(SignRates::of(&EventCounts::default(), 1), None);
    }

    #[test]
    fn signs_are_against_undisturbed_cycles() {
        let company = ThreadCompany {
            btr: 2e9,
            bandwidth: 8e9,
            ..ThreadCompany::default()
        };
        let (now, alone) = (rates(1.0, 0.010), rates(2.0, 0.002));
        let signs = InterferenceSigns::of(&now, &alone, &company, true).unwrap();
        assert!((signs.slowdown() - 2.0).abs() < 1e-12);
        // 8 misses more in 1,000 instructions, which took 500 cycles.
        assert!((signs.values[at::MISSES_MORE] - 16.0).abs() < 1e-9);
        assert_eq!(signs.get(at::OTHERS), Some(0.25));
        assert_eq!(signs.get(at::L2), None);
        assert_eq!(signs.get(at::ASLEEP), None);
        let nothing = SignRates::default();
        assert_eq!(
            InterferenceSigns::of(&nothing, &alone, &company, true),
            None
        );
    }

    #[test]
    fn a_thread_that_sleeps_more_takes_longer() {
        let (mut now, mut alone) = (rates(2.0, 0.0), rates(2.0, 0.0));
        (now.awake, alone.awake) = (Some(0.4), Some(0.8));
        let signs = InterferenceSigns::of(&now, &alone, &ThreadCompany::default(), false).unwrap();
        assert!((signs.slowdown() - 2.0).abs() < 1e-12);
    }
}
