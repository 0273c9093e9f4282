// SPDX-License-Identifier: GPL-2.0-or-later
//! In which order CPUs are filled, and look for work. BPF searches idle CPUs in this order, and
//! policies count by it how many threads each core type should hold.

use crate::topology::{MAX_CORE_TYPES, Topology};

/// One step: the idle CPUs of a core type, either of whole idle cores or of
/// cores whose other thread is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Index into [`Topology::types`].
    pub core_type: usize,
    /// Take a CPU only if all threads of its core are idle.
    pub whole_core: bool,
    /// How many threads this step has room for.
    pub cpus: usize,
}

/// The order for a thread without a hint: whole cores from the fastest type
/// down, then second threads of busy cores, then cores on the low-power island,
/// which lack the last-level cache.
pub fn tiers(topology: &Topology) -> impl Iterator<Item = Tier> {
    let types = move || topology.types.iter().enumerate();
    let whole = move |on_island: bool| {
        let types = types().filter(move |(_, kind)| kind.low_power_island == on_island);
        types.map(move |(core_type, _)| Tier {
            core_type,
            whole_core: true,
            cpus: topology.cores_of(core_type),
        })
    };
    let second = types().map(move |(core_type, kind)| Tier {
        core_type,
        whole_core: false,
        cpus: kind.cpus.len() - topology.cores_of(core_type),
    });
    let second = second.filter(|tier| tier.cpus > 0);
    whole(false).chain(second).chain(whole(true))
}

/// The order for a thread whose hint is `hint`: that type first, then whole cores of faster types from
/// the nearest on, then of slower ones, then second threads and the low-power island as without. With
/// the slowest type as the hint it goes from the most efficient cores up, as saving energy wants it.
pub fn tiers_for(topology: &Topology, hint: usize) -> Vec<Tier> {
    let mut order: Vec<Tier> = tiers(topology).collect();
    order.sort_by_key(|tier| {
        let on_island = topology.types[tier.core_type].low_power_island;
        let stage = match (tier.core_type == hint, on_island) {
            (true, _) => 0,
            (false, false) => 1 + usize::from(!tier.whole_core),
            (false, true) => 3,
        };
        let slower = tier.core_type > hint;
        let distance = tier.core_type.abs_diff(hint);
        (stage, !tier.whole_core, slower, distance)
    });
    order
}

/// The core type to fill first while energy is saved: the slowest, which is a low-power island's where
/// there is one. What it has no room for goes on in the order of [`tiers_for`] it. `None` where all CPUs
/// are alike.
pub fn most_efficient(topology: &Topology) -> Option<usize> {
    let slowest = topology.types.len().checked_sub(1);
    slowest.filter(|&slowest| slowest > 0)
}

/// How many threads fit on more efficient CPUs than those of the fastest type.
pub fn efficient_room(topology: &Topology) -> usize {
    let types = topology.types.iter().skip(1);
    types.map(|kind| kind.cpus.len()).sum()
}

/// How many of `threads` busy threads each core type should hold: CPUs are
/// filled in the order of [`tiers`]; beyond one thread per CPU, in proportion
/// to the CPUs. The result is indexed by core type and sums to `threads`.
pub fn shares(topology: &Topology, threads: usize) -> [usize; MAX_CORE_TYPES] {
    let mut shares = [0; MAX_CORE_TYPES];
    let mut left = threads;
    for tier in tiers(topology) {
        let here = left.min(tier.cpus);
        shares[tier.core_type] += here;
        left -= here;
    }
    // Round by round, so that the share of every type stays proportional and
    // the odd threads of the last round go to the fastest type first.
    while left > 0 {
        for (share, kind) in shares.iter_mut().zip(&topology.types) {
            let here = left.min(kind.cpus.len());
            *share += here;
            left -= here;
        }
    }
    shares
}

/// Where a CPU of `domain` looks for work: at home, then in clusters of its own
/// core type, then in those of the next faster and slower types.
pub fn steal_order(topology: &Topology, domain: usize) -> Vec<usize> {
    let home = topology.domains[domain].core_type;
    let mut order: Vec<usize> = (0..topology.domains.len()).collect();
    order.sort_by_key(|&other| {
        let kind = topology.domains[other].core_type;
        (other != domain, kind.abs_diff(home), kind, other)
    });
    order
}
