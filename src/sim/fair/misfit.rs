// SPDX-License-Identifier: GPL-2.0-only
//! Capacities, as the kernel's own scheduler knows of them (`kernel/sched/fair.c`): a thread that a slow
//! CPU is too small for is a misfit, and a faster CPU that idles takes it over while it runs.

/// Half of what a thread's utilization was is forgotten in so long, ns (`kernel/sched/pelt.c`).
const HALF_LIFE_NS: f64 = 32e6;

/// A thread fits a CPU if its utilization is below this part of the capacity (`fits_capacity()`).
const FITS: f64 = 1024.0 / 1280.0;

/// A CPU is faster than another if its capacity is so many times the other's (`capacity_greater()`).
const FASTER: f64 = 1078.0 / 1024.0;

/// What a thread used of the fastest CPU lately, in units of its capacity.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Utilization {
    of: f64,
    at: u64,
}

impl Utilization {
    /// A new thread counts as half of the CPU where it begins.
    pub(super) fn begin(&mut self, now: u64, capacity: f64) {
        self.of = capacity / 2.0;
        self.at = now;
    }

    /// Since it was last looked at it ran on a CPU of this capacity; or did not, with 0.
    pub(super) fn advance(&mut self, now: u64, capacity: f64) {
        let kept = (-((now - self.at) as f64) / HALF_LIFE_NS).exp2();
        self.of = capacity + (self.of - capacity) * kept;
        self.at = now;
    }

    /// Whether a CPU of this capacity is large enough.
    pub(super) fn fits(&self, capacity: f64) -> bool {
        self.of < FITS * capacity
    }

    /// In percent of a capacity.
    pub(super) fn percent(&self, capacity: f64) -> u32 {
        (100.0 * self.of / capacity).round() as u32
    }
}

/// Whether a CPU of capacity `a` is faster than one of `b`.
pub(super) fn is_faster(a: f64, b: f64) -> bool {
    a > FASTER * b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_always_runs_outgrows_a_slow_cpu_in_a_tenth_of_a_second() {
        let mut utilization = Utilization::default();
        utilization.begin(0, 446.0);
        assert!(utilization.fits(446.0));
        utilization.advance(100_000_000, 446.0);
        assert!(!utilization.fits(446.0) && utilization.fits(1024.0));
        assert_eq!(utilization.percent(446.0), 94);
    }

    #[test]
    fn one_that_sleeps_half_of_the_time_fits() {
        let mut utilization = Utilization::default();
        utilization.begin(0, 446.0);
        for ms in (0..1000).step_by(4) {
            utilization.advance((ms + 2) * 1_000_000, 446.0);
            utilization.advance((ms + 4) * 1_000_000, 0.0);
        }
        assert!(utilization.fits(446.0));
    }
}
