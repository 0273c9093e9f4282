// SPDX-License-Identifier: GPL-2.0-or-later
//! What runs beside a thread.

use crate::slowdown::Thresholds;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadCompany {
    /// Part of the time in which the other threads of its core are busy, 0 to 1.
    pub sibling: f64,
    /// CPUs of other cores behind the same L2 that are busy.
    pub cluster: f64,
    /// What others in its contention domain transfer, bytes/s.
    pub btr: f64,
    /// What memory can transfer, bytes/s.
    pub bandwidth: f64,
}

impl ThreadCompany {
    /// No company, on a machine whose memory can transfer so many bytes/s.
    pub fn alone(bandwidth: f64) -> Self {
        Self {
            bandwidth,
            ..Self::default()
        }
    }

    /// What is in the way to memory, of traffic `near`, in the same contention domain, and `far`, in all others, of
    /// `domains` in all: memory is shared by all of them, if most of it is near on large machines; bytes/s.
    pub fn traffic(near: f64, far: f64, domains: usize) -> f64 {
        near + far / domains.saturating_sub(1).max(1) as f64
    }

    /// Whether a thread beside it is as good as alone: nothing else on its core, nor much behind its L2, and too
    /// little traffic to be in its way.
    pub fn is_quiet(&self, own_btr: f64) -> bool {
        let limits = Thresholds::from_bandwidth(self.bandwidth);
        self.sibling < 0.05
            && self.cluster < 0.1
            && crate::slowdown::contention::is_low(own_btr, self.btr, &limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_is_without_sibling_neighbours_and_traffic() {
        let quiet = ThreadCompany::alone(1e10);
        assert!(quiet.is_quiet(9e9), "its own traffic is not in its way");
        let busy = |change: fn(&mut ThreadCompany)| {
            let mut company = quiet;
            change(&mut company);
            company.is_quiet(2e9)
        };
        assert!(!busy(|of| of.sibling = 0.5));
        assert!(!busy(|of| of.cluster = 1.0));
        assert!(!busy(|of| of.btr = 2e9));
        assert!(busy(|of| of.btr = 2e8));
    }
}
