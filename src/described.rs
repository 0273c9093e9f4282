// SPDX-License-Identifier: GPL-2.0-only
//! A machine as the BPF half reads it: the read-only variables of `src/bpf/state.bpf.h` and
//! `heartbeat.bpf.h` that follow from the topology. The agent writes them before it loads the BPF half,
//! the simulator into each native copy.

use anyhow::{Result, ensure};

use crate::bpf::{intf, types};
use crate::placement;
use crate::topology::{MAX_CORE_TYPES, Topology};

const MAX_CPUS: usize = intf::hetero_consts_MAX_CPUS as usize;
const MAX_DOMAINS: usize = intf::hetero_consts_MAX_DOMAINS as usize;
const MAX_TIERS: usize = intf::hetero_consts_MAX_TIERS as usize;

/// See the module; the names are those of the BPF half.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub nr_cpu_ids: u32,
    pub nr_present: u32,
    pub nr_types: u32,
    pub nr_domains: u32,
    pub nr_fast_cpus: u32,
    pub big_part: u32,
    pub has_smt: bool,
    pub cpu_domain: [u32; MAX_CPUS],
    pub cpu_sibling: [i32; MAX_CPUS],
    pub cpu_type: [u8; MAX_CPUS],
    pub domain_type: [u8; MAX_DOMAINS],
    pub domain_nr_cpus: [u32; MAX_DOMAINS],
    pub steal_order: [[u8; MAX_DOMAINS]; MAX_DOMAINS],
    pub static_inv_slowdown: [u32; MAX_CORE_TYPES],
    pub tiers: [[types::tier; MAX_TIERS]; MAX_CORE_TYPES + 1],
}

impl Described {
    /// What a topology is to the BPF half.
    ///
    /// # Errors
    /// It has more CPUs or clusters than the BPF half was built for.
    pub(crate) fn of(topology: &Topology) -> Result<Box<Self>> {
        let (nr_types, nr_domains) = (topology.types.len(), topology.domains.len());
        ensure!(
            topology.nr_cpu_ids as usize <= MAX_CPUS
                && nr_domains <= MAX_DOMAINS
                && nr_types <= MAX_CORE_TYPES,
            "this machine has {} possible CPUs in {nr_domains} clusters of {nr_types} core types; \
             scx_hetero was built for up to {MAX_CPUS} in {MAX_DOMAINS} of {MAX_CORE_TYPES}",
            topology.nr_cpu_ids
        );
        let big = topology.types.first().map_or(0, |kind| kind.cpus.len());
        let mut told = Box::new(Self {
            nr_cpu_ids: topology.nr_cpu_ids,
            nr_present: topology.cpus.len() as u32,
            nr_types: nr_types as u32,
            nr_domains: nr_domains as u32,
            nr_fast_cpus: big as u32,
            big_part: ((big << 16) / topology.cpus.len().max(1)) as u32,
            has_smt: false,
            cpu_domain: [MAX_DOMAINS as u32; _],
            cpu_sibling: [-1; _],
            cpu_type: [0; _],
            domain_type: [0; _],
            domain_nr_cpus: [0; _],
            steal_order: [[0; _]; _],
            static_inv_slowdown: [0; _],
            tiers: Default::default(),
        });
        for cpu in &topology.cpus {
            let id = cpu.id as usize;
            told.cpu_domain[id] = cpu.domain as u32;
            told.cpu_type[id] = cpu.core_type as u8;
            // Cores with more than two threads are looked at in pairs.
            let sibling = cpu.siblings.iter().find(|&&sibling| sibling != cpu.id);
            told.cpu_sibling[id] = sibling.map_or(-1, |&sibling| sibling as i32);
            told.has_smt |= sibling.is_some();
        }
        for (core_type, kind) in topology.types.iter().enumerate() {
            told.static_inv_slowdown[core_type] =
                kind.capacity * intf::hetero_consts_INV_SLOWDOWN_ONE / 1024;
        }
        for (index, domain) in topology.domains.iter().enumerate() {
            told.domain_type[index] = domain.core_type as u8;
            told.domain_nr_cpus[index] = domain.cpus.len() as u32;
            let order = placement::steal_order(topology, index);
            for (entry, other) in told.steal_order[index].iter_mut().zip(order) {
                *entry = other as u8;
            }
        }
        for (hint, tiers) in told.tiers.iter_mut().enumerate() {
            let order = if hint < nr_types {
                placement::tiers_for(topology, hint)
            } else {
                placement::tiers(topology).collect()
            };
            for entry in tiers.iter_mut() {
                entry.core_type = intf::hetero_consts_NO_TYPE as u8;
            }
            for (entry, tier) in tiers.iter_mut().zip(order) {
                entry.core_type = tier.core_type as u8;
                entry.whole_core = tier.whole_core.into();
            }
        }
        Ok(told)
    }
}
