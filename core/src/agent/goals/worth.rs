// SPDX-License-Identifier: GPL-2.0-or-later
//! What a CPU of each core type is worth to threads with goals, in fast cores: what they do there. Were slow cores counted for
//! more, allotments would be of work that no CPU does, and the heaviest session would lack it; for less, CPUs would idle.

use crate::topology::{CoreType, MAX_CORE_TYPES};

/// Of what was seen at a look so much still counts at the next.
const KEEPS: f64 = 0.9;

/// Threads that ran for less on a core type, ns, say nothing of it.
const LEAST_NS: f64 = 20e6;

/// By core type, of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CoreWorth {
    ran_ns: [f64; MAX_CORE_TYPES],
    /// As the fastest type would have taken for it.
    work_ns: [f64; MAX_CORE_TYPES],
}

impl CoreWorth {
    /// A look begins.
    pub(super) fn fade(&mut self) {
        let all = self.ran_ns.iter_mut().chain(&mut self.work_ns);
        all.for_each(|ns| *ns *= KEEPS);
    }

    /// A thread has run on each core type so much longer than at the look before. `speeds` are its own there.
    pub(super) fn ran(&mut self, longer_ns: [u64; MAX_CORE_TYPES], speeds: &[f64; MAX_CORE_TYPES]) {
        for (kind, ns) in longer_ns.into_iter().enumerate() {
            self.ran_ns[kind] += ns as f64;
            self.work_ns[kind] += ns as f64 * speeds[kind];
        }
    }

    /// A CPU of that type, by its capacity where no thread with a goal has run of late.
    pub(super) fn of(&self, of: usize, kind: &CoreType) -> f64 {
        match self.ran_ns.get(of) {
            Some(&ran_ns) if ran_ns >= LEAST_NS => self.work_ns[of] / ran_ns,
            _ => f64::from(kind.capacity) / 1024.0,
        }
    }
}
