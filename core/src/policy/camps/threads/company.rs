// SPDX-License-Identifier: GPL-2.0-or-later
//! Which threads slow others down: those that use memory most are told where others suffer more, or less, beside them than they
//! were taken to ([`super::super::aggressiveness`]).

use super::{Thread, runs};
use crate::policy::Snapshot;
use crate::slowdown::MemoryLoad;
use crate::table::TaskId;
use rustc_hash::FxHashMap;

/// So many threads that share a last-level cache are told.
const USERS: usize = 4;

/// A thread that is to be slowed down by less is no witness of what others do.
const FORESEEN: f64 = 0.05;

/// How a thread was slowed down, and how it was foreseen to be, both beyond 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness {
    pub(super) found: f64,
    pub(super) foreseen: f64,
    /// What others transferred, bytes/s.
    pub(super) others: f64,
}

/// By contention domain: those that use memory most, and what they transfer, bytes/s.
#[derive(Debug, Default)]
pub(super) struct Company {
    users: Vec<[Option<(TaskId, f64)>; USERS]>,
}

impl Company {
    /// Notes which use memory most.
    pub(super) fn look(
        &mut self,
        snapshot: &Snapshot,
        threads: &FxHashMap<TaskId, Thread>,
        load: &MemoryLoad,
    ) {
        let topology = snapshot.topology;
        let domains = topology.cpus.iter().map(|cpu| cpu.llc + 1).max();
        self.users.clear();
        self.users.resize(domains.unwrap_or(0), [None; USERS]);
        for task in snapshot.tasks {
            let cpu = runs(threads, task).and_then(|(cpu, _)| topology.cpu(cpu));
            let Some((cpu, btr)) = cpu.and_then(|cpu| Some((cpu, load.on(cpu.id)?))) else {
                continue;
            };
            let mut next = Some((task.id, btr));
            for user in &mut self.users[cpu.llc] {
                if next.map_or(0.0, |of| of.1) > user.map_or(0.0, |of| of.1) {
                    std::mem::swap(user, &mut next);
                }
            }
        }
    }

    /// Tells those beside `victim`, below the last-level cache `llc`.
    pub(super) fn tell(
        &self,
        threads: &mut FxHashMap<TaskId, Thread>,
        victim: TaskId,
        llc: usize,
        witness: Witness,
    ) {
        let Witness {
            found,
            foreseen,
            others,
        } = witness;
        if foreseen < FORESEEN || others <= 0.0 {
            return;
        }
        let times = found.max(0.1 * FORESEEN) / foreseen;
        let users = self.users.get(llc).into_iter().flatten().flatten();
        for &(user, btr) in users.filter(|&&(user, _)| user != victim) {
            if let Some(user) = threads.get_mut(&user) {
                user.aggressiveness.take(times, (btr / others).min(1.0));
            }
        }
    }
}
