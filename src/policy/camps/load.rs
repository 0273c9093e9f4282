// SPDX-License-Identifier: GPL-2.0-only
//! What planned swaps do to contention (CAMPS 2018, Algorithm 1).

use super::swap::{Contention, Runner};
use crate::slowdown::{Load, Thresholds};
use crate::topology::Topology;

/// Summed BTR by contention domain, as it will be after the swaps planned so far.
pub struct Planned<'a> {
    pub topology: &'a Topology,
    pub load: &'a mut Load,
    pub limits: Thresholds,
}

impl Planned<'_> {
    /// Change of the BTR, bytes/s, in the domains of the two after a swap.
    fn changes(&self, ahead: &Runner, behind: &Runner) -> Option<[(usize, f64); 2]> {
        let here = self.topology.cpu(ahead.cpu)?.llc;
        let there = self.topology.cpu(behind.cpu)?.llc;
        let enters = behind.btr_on[ahead.place] - ahead.btr;
        let leaves = ahead.btr_on[behind.place] - behind.btr;
        Some([(here, enters), (there, leaves)])
    }
}

impl Contention for Planned<'_> {
    /// The summed BTR of the domain that `ahead` leaves falls below `high_btr`.
    fn is_low_after(&self, ahead: &Runner, behind: &Runner) -> bool {
        let Some([(here, enters), (there, leaves)]) = self.changes(ahead, behind) else {
            return false;
        };
        let same = if here == there { leaves } else { 0.0 };
        self.load.in_domain(here) + enters + same < self.limits.high_btr
    }

    fn note(&mut self, ahead: &Runner, behind: &Runner) {
        for (llc, change) in self.changes(ahead, behind).into_iter().flatten() {
            self.load.add(llc, change);
        }
    }
}
