// SPDX-License-Identifier: GPL-2.0-only
//! Tells the BPF half, before it is loaded, what machine it runs on.

use std::time::Duration;

use anyhow::{Result, bail};
use log::info;
use scx_utils::compat;

use super::Options;
use crate::bpf::OpenBpfSkel;
use crate::described::Described;
use crate::mechanism::{self, Mechanism};
use crate::topology::Topology;

/// Tells the BPF half what machine it runs on.
pub(super) fn describe(
    skel: &mut OpenBpfSkel,
    topology: &Topology,
    options: &Options,
    slice: Duration,
) -> Result<()> {
    let told = Described::of(topology)?;
    let Some(rodata) = skel.maps.rodata_data.as_mut() else {
        bail!("the BPF half has no read-only data");
    };
    rodata.nr_cpu_ids = told.nr_cpu_ids;
    rodata.nr_present = told.nr_present;
    rodata.nr_types = told.nr_types;
    rodata.nr_domains = told.nr_domains;
    rodata.nr_fast_cpus = told.nr_fast_cpus;
    rodata.big_part = told.big_part;
    rodata.has_smt = told.has_smt;
    rodata.cpu_domain = told.cpu_domain;
    rodata.cpu_sibling = told.cpu_sibling;
    rodata.cpu_type = told.cpu_type;
    rodata.domain_type = told.domain_type;
    rodata.domain_nr_cpus = told.domain_nr_cpus;
    rodata.steal_order = told.steal_order;
    rodata.static_inv_slowdown = told.static_inv_slowdown;
    rodata.tiers = told.tiers;
    rodata.agent_tgid = std::process::id();
    rodata.without = mechanism::bits(&options.without);
    rodata.nr_slots = options.slots;

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
