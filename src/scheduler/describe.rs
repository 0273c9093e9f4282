// SPDX-License-Identifier: GPL-2.0-only
//! Tells the BPF half, before it is loaded, what machine it runs on.

use std::time::Duration;

use anyhow::{Result, bail};
use log::info;
use scx_utils::compat;

use super::{NAME, Options};
use crate::bpf::{OpenBpfSkel, intf};
use crate::mechanism::{self, Mechanism};
use crate::placement::{self, Tier};
use crate::topology::Topology;

/// Tells the BPF half what machine it runs on.
pub(super) fn describe(
    skel: &mut OpenBpfSkel,
    topology: &Topology,
    options: &Options,
    slice: Duration,
) -> Result<()> {
    const MAX_CPUS: usize = intf::hetero_consts_MAX_CPUS as usize;
    const MAX_DOMAINS: usize = intf::hetero_consts_MAX_DOMAINS as usize;
    const MAX_CORE_TYPES: usize = intf::hetero_consts_MAX_CORE_TYPES as usize;

    let nr_cpu_ids = topology.nr_cpu_ids as usize;
    let nr_types = topology.types.len();
    let nr_domains = topology.domains.len();
    if nr_cpu_ids > MAX_CPUS || nr_domains > MAX_DOMAINS {
        bail!(
            "this machine has {nr_cpu_ids} possible CPUs in {nr_domains} clusters; {NAME} was \
             built for up to {MAX_CPUS} in {MAX_DOMAINS}"
        );
    }
    let Some(rodata) = skel.maps.rodata_data.as_mut() else {
        bail!("the BPF half has no read-only data");
    };
    rodata.nr_cpu_ids = topology.nr_cpu_ids;
    rodata.nr_types = nr_types as u32;
    rodata.nr_domains = nr_domains as u32;
    rodata.agent_tgid = std::process::id();
    rodata.without = mechanism::bits(&options.without);

    rodata.cpu_domain.fill(MAX_DOMAINS as u32);
    rodata.cpu_sibling.fill(-1);
    for cpu in &topology.cpus {
        let id = cpu.id as usize;
        rodata.cpu_domain[id] = cpu.domain as u32;
        rodata.cpu_type[id] = cpu.core_type as u8;
        // Cores with more than two threads are looked at in pairs.
        let sibling = cpu.siblings.iter().find(|&&sibling| sibling != cpu.id);
        rodata.cpu_sibling[id] = sibling.map_or(-1, |&sibling| sibling as i32);
        rodata.has_smt |= sibling.is_some();
    }
    rodata.nr_slots = options.slots;
    let big = topology.types.first().map_or(0, |kind| kind.cpus.len());
    rodata.nr_fast_cpus = big as u32;
    rodata.big_part = ((big << 16) / topology.cpus.len().max(1)) as u32;
    for (core_type, kind) in topology.types.iter().enumerate() {
        rodata.static_inv_slowdown[core_type] =
            kind.capacity * intf::hetero_consts_INV_SLOWDOWN_ONE / 1024;
    }
    for (index, domain) in topology.domains.iter().enumerate() {
        rodata.domain_type[index] = domain.core_type as u8;
        rodata.domain_nr_cpus[index] = domain.cpus.len() as u32;
        for (place, other) in placement::steal_order(topology, index)
            .into_iter()
            .enumerate()
        {
            rodata.steal_order[index][place] = other as u8;
        }
    }
    for hint in 0..=MAX_CORE_TYPES {
        let order = if hint < nr_types {
            placement::tiers_for(topology, hint)
        } else {
            placement::tiers(topology).collect()
        };
        for entry in &mut rodata.tiers[hint] {
            entry.core_type = intf::hetero_consts_NO_TYPE as u8;
        }
        for (
            entry,
            Tier {
                core_type,
                whole_core,
                ..
            },
        ) in rodata.tiers[hint].iter_mut().zip(order)
        {
            entry.core_type = core_type as u8;
            entry.whole_core = whole_core.into();
        }
    }

    let Some(data) = skel.maps.data_data.as_mut() else {
        bail!("the BPF half has no data");
    };
    data.slice_ns = slice.as_nanos() as u64;

    // Nobody asks it here.
    skel.progs.try_estimate.set_autoload(false);

    // Kernels without CONFIG_EXT_GROUP_SCHED know nothing of cgroups, and up to 6.16 none tells
    // of cpu.max.
    let has = |field| compat::struct_has_field("sched_ext_ops", field).unwrap_or(false);
    let ops = skel.struct_ops.hetero_ops_mut();
    if !has("cgroup_init") {
        ops.cgroup_init = std::ptr::null_mut();
        ops.cgroup_exit = std::ptr::null_mut();
        ops.cgroup_move = std::ptr::null_mut();
        ops.cgroup_set_weight = std::ptr::null_mut();
        info!("this kernel does not tell schedulers of cgroups: cpu.weight has no effect");
    }
    if !has("cgroup_set_bandwidth") {
        ops.cgroup_set_bandwidth = std::ptr::null_mut();
    }
    ops.exit_dump_len = options.exit_dump_len;
    if options.partial {
        ops.flags |= *compat::SCX_OPS_SWITCH_PARTIAL;
    }
    if options.without.contains(&Mechanism::Exiting) {
        ops.flags &= !*compat::SCX_OPS_ENQ_EXITING;
    }
    Ok(())
}
