// SPDX-License-Identifier: GPL-2.0-only
//! Programs that the agent confines to few ways of last-level caches, in simulation: what resctrl does on a machine.
//!
//! The model of caches ([`super::contention`]) then has two where there was one. On a machine others may use those
//! few ways, too.

use hetero_core::cache::pool::GroupError;
use hetero_core::cache::{CacheLedger, CacheWays, Partition};

use super::kernel::SimulatedKernel;

/// As the thread that writes to resctrl, ns.
const STEP_NS: u64 = 1_000_000_000;

/// See the module; while a mix runs.
#[derive(Debug)]
pub(super) struct SimulatedPartition {
    partition: Partition,
    due_ns: u64,
}

/// The kernel, and which job is which process.
struct Ways<'k, J> {
    k: &'k mut SimulatedKernel,
    job_of: J,
}

impl<J: Fn(&SimulatedKernel, u32) -> Option<usize>> Ways<'_, J> {
    fn set(&mut self, pid: u32, confined: bool) -> Result<(), GroupError> {
        let job = (self.job_of)(self.k, pid).ok_or(GroupError::Ended)?;
        self.k.confine(job, confined);
        Ok(())
    }
}

impl<J: Fn(&SimulatedKernel, u32) -> Option<usize>> CacheWays for Ways<'_, J> {
    fn confine(&mut self, pid: u32) -> Result<(), GroupError> {
        self.set(pid, true)
    }

    fn release(&mut self, pid: u32) {
        let _ = self.set(pid, false);
    }
}

impl SimulatedPartition {
    /// With caches of `cache_bytes`.
    pub(super) fn new(cache_bytes: f64) -> Self {
        Self {
            partition: Partition::new(cache_bytes),
            due_ns: 0,
        }
    }

    /// The agent has looked; `job_of` says which program a process is.
    pub(super) fn look(
        &mut self,
        k: &mut SimulatedKernel,
        caches: &mut CacheLedger,
        job_of: impl Fn(&SimulatedKernel, u32) -> Option<usize>,
    ) {
        let Some(processes) = caches.processes.as_mut().filter(|_| k.now >= self.due_ns) else {
            return;
        };
        self.due_ns = k.now + STEP_NS;
        let mut misses: Vec<_> = processes.drain().map(|(_, misses)| misses).collect();
        misses.sort_unstable_by_key(|of| of.pid);
        let now_ns = k.now;
        self.partition
            .update(now_ns, &misses, &mut Ways { k, job_of });
    }
}
