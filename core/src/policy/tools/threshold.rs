// SPDX-License-Identifier: GPL-2.0-or-later
//! `amp_threshold`: how far apart the progress of two threads must be before they change places
//! (CAMPS 2018, section 4.3). The paper chose it by hand for one migration per 400 ms; here it is
//! tuned while running, but no thread lags by more than half a second for that: on a large machine, and
//! where threads wait for each other, there are more migrations.

use std::time::Duration;

/// Bounds, ns of progress. Below a few ticks it would be noise that is swapped about. The upper one
/// is higher where rare migrations are asked for.
const LEAST_NS: f64 = 10e6;
const MOST_NS: f64 = 500e6;
const MOST_OF_ALL_NS: f64 = 4e9;

/// The rate of migrations is taken over so many that were due or done.
const MIGRATIONS: u32 = 8;

/// Between looks that are so far apart another decided, ns.
const GAP_NS: u64 = 1_000_000_000;

/// It changes by no more than this factor at once.
const MAX_STEP: f64 = 2.0;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Threshold {
    value_ns: f64,
    /// Wanted time between migrations, ns.
    target_ns: f64,
    most_ns: f64,
    /// Time in which threads competed for faster cores, since the last change, and migrations in it.
    contested_ns: f64,
    migrations: u32,
}

impl Threshold {
    /// For one migration (a swap of two threads) per `target` on the whole machine. It starts at
    /// a quarter of that.
    pub(crate) fn new(target: Duration) -> Self {
        let target_ns = (target.as_nanos() as f64).max(1e6);
        Self {
            value_ns: (target_ns / 4.0).clamp(LEAST_NS, MOST_OF_ALL_NS),
            target_ns,
            most_ns: target_ns.clamp(MOST_NS, MOST_OF_ALL_NS),
            contested_ns: 0.0,
            migrations: 0,
        }
    }

    /// Its present value, ns of progress.
    pub(crate) fn ns(&self) -> i64 {
        self.value_ns as i64
    }

    /// Notes `migrations` in the last `elapsed_ns`, in which threads competed for faster cores.
    /// Time in which they did not must not be noted: nothing is to be learned from it.
    pub(crate) fn note(&mut self, elapsed_ns: u64, migrations: u32) {
        if elapsed_ns > GAP_NS {
            return;
        }
        self.contested_ns += elapsed_ns as f64;
        self.migrations += migrations;
        let due = self.contested_ns / self.target_ns;
        if due < f64::from(MIGRATIONS) && self.migrations < MIGRATIONS {
            return;
        }
        // Threads drift apart steadily, so the rate is inverse to the threshold.
        let step = f64::from(self.migrations) / due.max(f64::MIN_POSITIVE);
        self.value_ns *= step.clamp(1.0 / MAX_STEP, MAX_STEP);
        self.value_ns = self.value_ns.clamp(LEAST_NS, self.most_ns);
        self.contested_ns = 0.0;
        self.migrations = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(400);

    #[test]
    fn it_settles_where_one_migration_in_400_ms_happens() {
        for speed in [0.05, 0.5, 1.2] {
            let mut threshold = Threshold::new(TARGET);
            let (mut apart, mut late) = (0.0, 0);
            for look in 0..40_000 {
                apart += 50e6 * speed;
                let swap = apart >= threshold.ns() as f64;
                if swap {
                    apart -= threshold.ns() as f64;
                }
                threshold.note(50_000_000, u32::from(swap));
                late += u32::from(swap && look >= 20_000);
            }
            let every_ms = 20_000.0 * 50.0 / f64::from(late);
            assert!((350.0..450.0).contains(&every_ms), "{speed}: {every_ms} ms");
        }
    }

    #[test]
    fn time_in_which_another_decided_says_nothing() {
        let mut threshold = Threshold::new(TARGET);
        let before = threshold.ns();
        threshold.note(3_600_000_000_000, 0);
        assert_eq!(threshold.ns(), before);
    }

    #[test]
    fn it_stays_within_bounds() {
        let mut threshold = Threshold::new(TARGET);
        for _ in 0..1000 {
            threshold.note(400_000_000, 0);
        }
        assert_eq!(threshold.ns(), LEAST_NS as i64);
        for _ in 0..1000 {
            threshold.note(0, 8);
        }
        assert_eq!(threshold.ns(), MOST_NS as i64);
        let mut threshold = Threshold::new(Duration::from_secs(2));
        for _ in 0..1000 {
            threshold.note(0, 8);
        }
        assert_eq!(threshold.ns(), 2_000_000_000);
    }
}
