// SPDX-License-Identifier: GPL-2.0-only
//! Where antagonists are put, by what they share with the program that they disturb.

use serde::Deserialize;
use strum::IntoStaticStr;

use crate::topology::Topology;

/// See the module; from what shares least to what shares most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub(super) enum PairPlacement {
    /// Nothing runs beside it.
    Alone,
    /// Behind another last-level cache.
    Elsewhere,
    /// Behind the same last-level cache, and no other.
    Llc,
    /// On another core behind the same L2.
    Cluster,
    /// On the other thread of its core.
    Sibling,
    /// On the last CPU of the program, with one of its threads.
    Cpu,
}

impl PairPlacement {
    /// All in which the two do not share a CPU.
    pub(super) fn apart() -> Vec<Self> {
        vec![Self::Elsewhere, Self::Llc, Self::Cluster, Self::Sibling]
    }

    /// As the table has it.
    pub(super) fn name(self) -> &'static str {
        self.into()
    }
}

/// The CPUs of a program of so many threads on a core type: one a core, the first ones.
pub(super) fn own_cpus(topology: &Topology, core_type: usize, threads: usize) -> Vec<u32> {
    let cpus = topology.types[core_type].cpus.iter();
    let first = cpus.filter(|&&id| topology.cpu(id).is_some_and(|cpu| cpu.core == id));
    first.copied().take(threads).collect()
}

/// The CPUs on which `copies` of an antagonist are put beside a program on `own`, which are of one type; none
/// where this machine has no such place.
pub(super) fn beside(
    topology: &Topology,
    own: &[u32],
    place: PairPlacement,
    copies: usize,
) -> Vec<u32> {
    let Some(here) = own.first().and_then(|&id| topology.cpu(id)) else {
        return Vec::new();
    };
    if place == PairPlacement::Cpu {
        return own
            .last()
            .filter(|_| own.len() > 1)
            .copied()
            .into_iter()
            .collect();
    }
    let shares_l2 = topology.domains[here.domain].shares_l2;
    let cores: Vec<u32> = own
        .iter()
        .filter_map(|&id| Some(topology.cpu(id)?.core))
        .collect();
    let mut found: Vec<(bool, u32)> = topology
        .cpus
        .iter()
        .filter(|cpu| {
            let (same_core, in_cluster) = (cores.contains(&cpu.core), cpu.domain == here.domain);
            match place {
                PairPlacement::Alone | PairPlacement::Cpu => false,
                PairPlacement::Elsewhere => cpu.llc != here.llc && cpu.core == cpu.id,
                PairPlacement::Llc => {
                    let apart = !(same_core || (shares_l2 && in_cluster));
                    cpu.llc == here.llc && apart && cpu.core == cpu.id
                }
                PairPlacement::Cluster => {
                    shares_l2 && in_cluster && !same_core && cpu.core == cpu.id
                }
                PairPlacement::Sibling => cpu.core == here.core && !own.contains(&cpu.id),
            }
        })
        .map(|cpu| (cpu.core_type != here.core_type, cpu.id))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, id)| id).take(copies).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::testing::{machine, with_smt};

    #[test]
    fn places_share_what_they_are_named_after() {
        // Four fast threads on two cores, then a cluster of four; one last-level cache.
        let mut topology = with_smt(machine(&[4, 4]), 0);
        topology.domains[1].shares_l2 = true;
        topology.cpus.iter_mut().for_each(|cpu| cpu.llc = 0);
        let fast = own_cpus(&topology, 0, 1);
        assert_eq!(fast, [0]);
        let at = |own: &[u32], place, copies| beside(&topology, own, place, copies);
        assert_eq!(at(&fast, PairPlacement::Sibling, 1), [1]);
        assert_eq!(at(&fast, PairPlacement::Llc, 3), [2, 4, 5]);
        assert!(at(&fast, PairPlacement::Cluster, 1).is_empty());
        assert!(at(&fast, PairPlacement::Elsewhere, 1).is_empty());
        let slow = own_cpus(&topology, 1, 2);
        assert_eq!(slow, [4, 5]);
        assert_eq!(at(&slow, PairPlacement::Cluster, 9), [6, 7]);
        assert_eq!(at(&slow, PairPlacement::Llc, 1), [0]);
        assert_eq!(at(&slow, PairPlacement::Cpu, 1), [5]);
        assert!(at(&fast, PairPlacement::Cpu, 1).is_empty());
    }
}
