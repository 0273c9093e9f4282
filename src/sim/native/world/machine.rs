// SPDX-License-Identifier: GPL-2.0-only
//! A random machine.

use super::super::dice::Dice;
use super::super::machine::{NativeMachine, Version, topology};
use super::MS;
use crate::bpf::intf;
use crate::mechanism::Mechanism;
use crate::topology::Topology;

/// A machine that this seed makes.
pub(super) fn random_machine(dice: &mut Dice, without: &[Mechanism]) -> NativeMachine {
    let types = dice.of(&[1, 2, 2, 2, 3, 3, 4]);
    let mut clusters = Vec::new();
    for core_type in 0..types {
        for _ in 0..dice.of(&[1, 1, 1, 2, 3]) {
            clusters.push((core_type, dice.of(&[1, 1, 2, 2, 3, 4, 4, 6, 8])));
        }
    }
    // CPUs of a type need not follow each other.
    if dice.one_in(4) {
        clusters.rotate_left(1);
    }
    let smt: Vec<usize> = (0..types).filter(|_| dice.one_in(4)).collect();
    if dice.one_in(64) {
        clusters.push((0, dice.of(&[64, 120, 900])));
    }
    let mut machine = NativeMachine::on(topology(&clusters, &smt));
    machine.version = dice.of(&[
        Version(6, 16),
        Version(6, 17),
        Version(6, 18),
        Version(6, 19),
        Version(7, 0),
        Version(7, 1),
        Version(7, 2),
        Version(7, 3),
    ]);
    // Debian's kernels of these versions, see src/bpf/idle.bpf.h.
    let debian = dice.one_in(2);
    machine.can_kick = !(debian && [Version(7, 1), Version(7, 2)].contains(&machine.version));
    machine.can_iterate = !(debian && machine.version == Version(7, 1));
    machine.hz = dice.of(&[100, 250, 1000]);
    machine.sample_ns = dice.of(&[0, 20 * MS, 100 * MS]);
    machine.set_events = vec![dice.of(&[&[2][..], &[4, 3], &[2, 2, 12]]).to_vec(); types];
    machine.slots = dice.of(&[intf::hetero_consts_MAX_SLOTS, 4]);
    machine.without = without.to_vec();
    machine
}

/// One CPU is [unknown](NativeMachine::forget), if others share its domain.
pub(super) fn forget_a_cpu(machine: &mut NativeMachine, dice: &mut Dice) {
    let topology = &machine.topology;
    let cpu = dice.below(topology.nr_cpu_ids.into()) as u32;
    let alone = |cpus: &[u32]| cpus == [cpu];
    if !topology.domains.iter().any(|domain| alone(&domain.cpus)) {
        machine.forget(cpu);
    }
}

/// The same without these CPUs: domains and core types that have no others are gone.
pub(super) fn without_cpus(whole: &Topology, offline: &[u32]) -> Topology {
    let mut topology = whole.clone();
    let keep = |cpus: &mut Vec<u32>| cpus.retain(|cpu| !offline.contains(cpu));
    topology.cpus.retain(|of| !offline.contains(&of.id));
    for of in &mut topology.cpus {
        keep(&mut of.siblings);
    }
    topology.smt = topology.cpus.iter().any(|of| of.siblings.len() > 1);
    for kind in &mut topology.types {
        keep(&mut kind.cpus);
    }
    for domain in &mut topology.domains {
        keep(&mut domain.cpus);
    }
    let left: Vec<bool> = topology
        .types
        .iter()
        .map(|of| !of.cpus.is_empty())
        .collect();
    let rank = |core_type: usize| left[..core_type].iter().filter(|&&left| left).count();
    topology.types.retain(|of| !of.cpus.is_empty());
    topology.domains.retain(|of| !of.cpus.is_empty());
    for domain in &mut topology.domains {
        domain.core_type = rank(domain.core_type);
    }
    for of in &mut topology.cpus {
        let mut domains = topology.domains.iter();
        let domain = domains.position(|domain| domain.cpus.contains(&of.id));
        of.domain = domain.expect("each CPU is in a domain");
        of.core_type = rank(of.core_type);
    }
    topology
}
