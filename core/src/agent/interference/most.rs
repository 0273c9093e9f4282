// SPDX-License-Identifier: GPL-2.0-or-later
//! The most that memory was seen to transfer, which shows what was assumed of it to be too little.

use crate::interference::company::ThreadCompany;

/// What samples tell is added up for so long, ns: one at either end, of 50 ms, is of other times in part.
const WINDOW_NS: u64 = 1_000_000_000;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct MostTraffic {
    /// Of each contention domain since [`Self::since_ns`], bytes.
    bytes: Vec<f64>,
    since_ns: u64,
    most: f64,
}

impl MostTraffic {
    /// Takes in what a sample transferred in a contention domain, bytes.
    pub(super) fn take(&mut self, domain: usize, bytes: f64) {
        if self.bytes.len() <= domain {
            self.bytes.resize(domain + 1, 0.0);
        }
        self.bytes[domain] += bytes;
    }

    /// Ends a window, where it is time. One that is much longer is of a machine that was idle, or suspended.
    pub(super) fn look(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        if passed_ns < WINDOW_NS {
            return;
        }
        let all: f64 = self.bytes.iter().sum();
        for &near in &self.bytes {
            let bytes = ThreadCompany::traffic(near, all - near, self.bytes.len());
            self.most = self.most.max(bytes * 1e9 / passed_ns as f64);
        }
        self.bytes.fill(0.0);
        self.since_ns = now_ns;
    }

    /// The most so far, bytes/s.
    pub(super) fn bytes_per_second(&self) -> f64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_whole_seconds_and_only_rises() {
        let mut most = MostTraffic::default();
        let mut run = |second: u64, bytes: [f64; 2]| {
            for look in 1..=20 {
                (0..2).for_each(|domain| most.take(domain, bytes[domain] / 20.0));
                most.look((20 * second + look) * WINDOW_NS / 20);
            }
            most.bytes_per_second().round()
        };
        assert_eq!(run(0, [1e9, 0.0]), 1e9);
        assert_eq!(run(1, [1e9, 2e9]), 3e9, "one memory");
        assert_eq!(run(2, [5e8, 0.0]), 3e9);
    }

    #[test]
    fn a_moment_does_not_count_for_a_second() {
        let mut most = MostTraffic::default();
        most.look(WINDOW_NS);
        most.take(0, 1e9);
        most.look(WINDOW_NS * 11 / 10);
        assert_eq!(most.bytes_per_second(), 0.0);
        most.look(3 * WINDOW_NS);
        assert_eq!(most.bytes_per_second(), 5e8);
    }
}
