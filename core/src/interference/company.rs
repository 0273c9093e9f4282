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
    /// Of it, what those behind the same last-level cache do.
    pub near_btr: f64,
    /// What memory can transfer, bytes/s: most likely, so that it is told how full memory is.
    pub bandwidth: f64,
    /// And at the least, so that nothing disturbed is taken for undisturbed.
    pub least_bandwidth: f64,
}

/// How far a thread is undisturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quietness {
    /// Something may be in its way.
    Disturbed,
    /// It needs too little, or all together do, for anything to be in its way.
    Quiet,
    /// Nothing else transfers anything worth mentioning.
    Alone,
}

impl ThreadCompany {
    /// No company, on a machine of which is known how many bytes/s memory can transfer.
    pub fn alone(bandwidth: f64) -> Self {
        Self {
            bandwidth,
            least_bandwidth: bandwidth,
            ..Self::default()
        }
    }

    /// What is in the way to memory, of traffic `near`, in the same contention domain, and `far`, in all others, of
    /// `domains` in all: memory is shared by all of them, if most of it is near on large machines; bytes/s.
    pub fn traffic(near: f64, far: f64, domains: usize) -> f64 {
        near + far / domains.saturating_sub(1).max(1) as f64
    }

    /// How far a thread beside it is undisturbed that transfers `own_btr`, bytes/s.
    pub fn quietness(&self, own_btr: f64) -> Quietness {
        match (self.is_quiet(own_btr), self.leaves_room(f64::INFINITY)) {
            (false, _) => Quietness::Disturbed,
            (true, false) => Quietness::Quiet,
            (true, true) => Quietness::Alone,
        }
    }

    /// Whether what others transfer leaves room for a thread that transfers `own_btr`, bytes/s: else it is undisturbed only in that it
    /// hardly needs memory itself.
    pub fn leaves_room(&self, own_btr: f64) -> bool {
        let limits = Thresholds::from_bandwidth(self.least_bandwidth);
        let needy = own_btr.max(limits.low_btr);
        crate::slowdown::contention::is_low(needy, self.btr, &limits)
    }

    /// Whether others behind its last-level cache transfer anything worth mentioning: else they take nothing of that.
    pub fn uses_the_cache(&self) -> bool {
        self.near_btr >= Thresholds::from_bandwidth(self.least_bandwidth).high_btr / 10.0
    }

    /// Whether a thread beside it is as good as alone: nothing else on its core, nor much behind its L2, and too
    /// little traffic to be in its way.
    pub fn is_quiet(&self, own_btr: f64) -> bool {
        let limits = Thresholds::from_bandwidth(self.least_bandwidth);
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
        // A tenth of three tenths is where others begin to count.
        let told = |btr: f64, own: f64| ThreadCompany { btr, ..quiet }.quietness(own);
        assert_eq!(told(2e8, 9e9), Quietness::Alone);
        assert_eq!(told(4e8, 1e9), Quietness::Quiet);
        assert_eq!(told(9e9, 1e6), Quietness::Quiet, "it needs nothing");
        assert_eq!(told(9e9, 1e9), Quietness::Disturbed);
        let unsure = ThreadCompany {
            btr: 2e9,
            bandwidth: 1e11,
            ..quiet
        };
        assert_eq!(unsure.quietness(2e9), Quietness::Disturbed);
        let room = |btr: f64, own: f64| ThreadCompany { btr, ..quiet }.leaves_room(own);
        assert!(room(1e9, 1e6) && !room(9e9, 1e6));
    }
}
