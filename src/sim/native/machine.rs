// SPDX-License-Identifier: GPL-2.0-only
//! The machine and the kernel that a BPF half is loaded into.

use anyhow::Result;

use super::ffi;
use super::half::NativeHalf;
use crate::bpf::intf;
use crate::described::Described;
use crate::mechanism::{self, Mechanism};
use crate::ml::estimates::FORESTS;
use crate::topology::{self, CoreType, Cpu, Domain, Topology};

const MAX_EVENTS: u32 = intf::hetero_consts_MAX_EVENTS;
const MAX_SETS: usize = intf::hetero_consts_MAX_SETS as usize;

/// The agent's own process, in every simulated machine.
pub const AGENT_TGID: i32 = 1;

/// What a kernel version does differently, see `kernel.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

/// The machine, what its kernel can do, and the options that concern the BPF half.
#[derive(Clone, Debug)]
pub struct NativeMachine {
    /// Its CPUs.
    pub topology: Topology,
    /// Which kernel is modelled: 6.16 to 7.3.
    pub version: Version,
    /// Can programs call `scx_bpf_kick_cpu()`? (Not on Debian's 7.1 and 7.2.)
    pub can_kick: bool,
    /// Can programs iterate over queues? (Not on Debian's 7.1.)
    pub can_iterate: bool,
    /// Is there `scx_bpf_cpuperf_set()`?
    pub can_set_perf: bool,
    /// Does the kernel tell of cgroups?
    pub cgroups: bool,
    /// Ticks per second.
    pub hz: u32,
    /// The default is the BPF half's.
    pub slice_ns: Option<u64>,
    /// Run time of a sample; 0: nothing is counted.
    pub sample_ns: u64,
    /// How many events each set has, by core type.
    pub set_events: Vec<Vec<u8>>,
    /// How many tasks get a slot.
    pub slots: u32,
    /// Parts that are left out.
    pub without: Vec<Mechanism>,
}

impl NativeMachine {
    /// A machine of so many CPUs of each type, fastest first, on a kernel that lacks nothing.
    pub fn of(cpus_by_type: &[u32]) -> Self {
        let clusters: Vec<_> = cpus_by_type.iter().copied().enumerate().collect();
        Self::on(topology(&clusters, &[]))
    }

    /// A machine with these CPUs, on a kernel that lacks nothing.
    pub fn on(topology: Topology) -> Self {
        let types = topology.types.len();
        Self {
            topology,
            version: Version(6, 18),
            can_kick: true,
            can_iterate: true,
            can_set_perf: true,
            cgroups: true,
            hz: 1000,
            slice_ns: None,
            sample_ns: 0,
            set_events: vec![vec![2]; types],
            slots: intf::hetero_consts_MAX_SLOTS,
            without: Vec::new(),
        }
    }

    /// The same, where tasks are sampled.
    #[must_use]
    pub fn sampling(mut self, sample_ns: u64) -> Self {
        self.sample_ns = sample_ns;
        self
    }

    /// This CPU has come online since the BPF half was loaded, which knows nothing of it: for as long as the
    /// kernel takes to end the scheduler.
    pub(super) fn forget(&mut self, cpu: u32) {
        let topology = &mut self.topology;
        topology.cpus.retain(|of| of.id != cpu);
        for of in &mut topology.cpus {
            of.siblings.retain(|&sibling| sibling != cpu);
        }
        for domain in &mut topology.domains {
            domain.cpus.retain(|&of| of != cpu);
        }
        for kind in &mut topology.types {
            kind.cpus.retain(|&of| of != cpu);
        }
    }

    /// In a few words.
    pub fn in_short(&self) -> String {
        let domains = self.topology.domains.iter();
        let domains: Vec<_> = domains
            .map(|domain| (domain.core_type, &domain.cpus))
            .collect();
        let Version(major, minor) = self.version;
        let lack = |can, what| if can { "" } else { what };
        format!(
            "Linux {major}.{minor}{}{}, HZ {}, {}CPUs by type {domains:?}",
            lack(self.can_kick, " without kick"),
            lack(self.can_iterate, " and iterators"),
            self.hz,
            if self.topology.smt { "SMT, " } else { "" },
        )
    }

    /// How many CPUs it has.
    pub fn nr_cpus(&self) -> u32 {
        self.topology.nr_cpu_ids
    }

    /// The core type of a CPU.
    pub fn type_of(&self, cpu: u32) -> usize {
        self.topology.cpu(cpu).map_or(0, |cpu| cpu.core_type)
    }

    pub(super) fn ksyms(&self) -> ffi::native_ksyms {
        ffi::native_ksyms {
            scx_bpf_kick_cpu___optional: self.can_kick,
            bpf_iter_scx_dsq_new: self.can_iterate,
            // 6.19: "sched_ext: Add scx_bpf_dsq_peek()".
            scx_bpf_dsq_peek: self.version >= Version(6, 19),
            // From 6.19 on tasks are handed to enqueue anew later, not from within the caller.
            scx_bpf_reenqueue_local___v1: self.version < Version(6, 19),
            scx_bpf_cpuperf_set___optional: self.can_set_perf,
        }
    }

    /// Writes what the agent writes before loading.
    pub(super) fn describe(&self, half: &mut NativeHalf) -> Result<()> {
        let told = Described::of(&self.topology)?;
        half.set("nr_cpu_ids", told.nr_cpu_ids);
        half.set("nr_present", told.nr_present);
        half.set("nr_types", told.nr_types);
        half.set("nr_domains", told.nr_domains);
        half.set("nr_fast_cpus", told.nr_fast_cpus);
        half.set("big_part", told.big_part);
        half.set("has_smt", told.has_smt);
        half.set("cpu_domain", told.cpu_domain);
        half.set("cpu_sibling", told.cpu_sibling);
        half.set("cpu_type", told.cpu_type);
        half.set("domain_type", told.domain_type);
        half.set("domain_nr_cpus", told.domain_nr_cpus);
        half.set("steal_order", told.steal_order);
        half.set("static_inv_slowdown", told.static_inv_slowdown);
        half.set("tiers", told.tiers);
        half.set("agent_tgid", AGENT_TGID);
        half.set("without", mechanism::bits(&self.without));
        half.set("nr_slots", self.slots);
        if self.without.contains(&Mechanism::Exiting) {
            let flags = half.ops().flags & !ffi::OPS_ENQ_EXITING;
            let index = std::mem::offset_of!(ffi::sched_ext_ops, flags) / size_of::<u64>();
            half.set_at("hetero_ops", index, flags);
        }
        half.set("sample_ns", self.sample_ns);
        for (core_type, sets) in self.set_events.iter().enumerate() {
            for (set, &events) in sets.iter().enumerate() {
                half.set_at("set_events", core_type * MAX_SETS + set, events);
            }
        }
        half.resize("events", MAX_SETS as u32 * MAX_EVENTS * told.nr_cpu_ids);
        half.resize("forests", FORESTS as u32);
        if let Some(slice) = self.slice_ns {
            half.set("slice_ns", slice);
        }
        Ok(())
    }
}

/// CPUs by cluster: `(core type, how many)`, in the order of their ids; the core types in `smt` have
/// two threads per core, which follow each other.
pub fn topology(clusters: &[(usize, u32)], smt: &[usize]) -> Topology {
    let types = clusters.iter().map(|cluster| cluster.0).max().unwrap_or(0) + 1;
    let names = [
        ["cpu"; 4],
        ["P", "E", "", ""],
        ["P", "E", "LP-E", ""],
        ["P", "E", "LP-E", "X"],
    ];
    let mut kinds: Vec<_> = (0..types)
        .map(|core_type| CoreType {
            name: names[types - 1][core_type].to_string(),
            cpus: Vec::new(),
            capacity: 1024 >> core_type,
            low_power_island: false,
            pmu: None,
        })
        .collect();
    let (mut cpus, mut domains) = (Vec::<Cpu>::new(), Vec::new());
    for (llc, &(core_type, count)) in clusters.iter().enumerate() {
        let first = cpus.len() as u32;
        let ids: Vec<u32> = (first..first + count).collect();
        kinds[core_type].cpus.extend(&ids);
        for &id in &ids {
            let core = if smt.contains(&core_type) {
                first + (id - first) / 2 * 2
            } else {
                id
            };
            let siblings = if smt.contains(&core_type) {
                (core..first + count).take(2).collect()
            } else {
                vec![id]
            };
            cpus.push(Cpu {
                id,
                core_type,
                domain: 0,
                core,
                siblings,
                llc,
                package: 0,
                max_freq_khz: None,
                capacity: None,
                highest_perf: None,
            });
        }
        domains.push(Domain {
            core_type,
            cpus: ids,
            shares_l2: false,
        });
    }
    domains.sort_by_key(|domain| (domain.core_type, domain.cpus[0]));
    for (index, domain) in domains.iter().enumerate() {
        for &cpu in &domain.cpus {
            cpus[cpu as usize].domain = index;
        }
    }
    Topology {
        types: kinds,
        domains,
        nr_cpu_ids: cpus.len() as u32,
        smt: cpus.iter().any(|cpu| cpu.siblings.len() > 1),
        cpus,
        llc_bytes: Vec::new(),
        source: topology::Source::Override,
        capacity_source: None,
        disagreements: Vec::new(),
        notes: Vec::new(),
    }
}
