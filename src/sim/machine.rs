// SPDX-License-Identifier: GPL-2.0-only
//! Machines: core types, clusters, caches and memory, read from TOML.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;
use toml::Spanned;

use super::counted;
use super::energy::{
    RawSimulatedCoreEnergy, RawSimulatedEnergy, SimulatedCoreEnergy, SimulatedEnergy,
};
use super::sourced::{SourceText, Sourced};
use crate::bpf::intf;
use crate::pmu::{Event, Pmu};
use crate::slowdown::Thresholds;
use crate::topology::{self, CoreType, Cpu, Domain, MAX_CORE_TYPES, Topology};

/// The most CPUs and domains (queues) that the BPF half is built for.
const MAX_CPUS: usize = intf::hetero_consts_MAX_CPUS as usize;
const MAX_DOMAINS: usize = intf::hetero_consts_MAX_DOMAINS as usize;

/// What a thread finds on one core type.
#[derive(Clone, Debug)]
pub struct Core {
    /// Clock, Hz.
    pub hz: f64,
    /// Instructions per cycle over those of the core that profiles speak of, while it computes; of
    /// the fastest type only.
    pub ipc: f64,
    /// SF of the fastest type over this one, of the program that gains least and of the one that
    /// gains most.
    pub sf: (f64, f64),
    /// Independent misses that it has in flight at a time.
    pub overlap: f64,
    /// Misses in sequence that it fetches ahead, at a time.
    pub prefetch: f64,
    /// What a page walk adds to a miss that was not foreseen, ns.
    pub walk_ns: f64,
    /// A cache of its own between the first level and the last, bytes.
    pub l2_bytes: f64,
    /// What two threads of a core compute together, 1 to 2 of what one computes alone.
    pub smt: f64,
    /// What counts on it.
    pub pmu: Pmu,
    /// What a model of the machine counts there.
    pub model_counts: Vec<Event>,
}

/// A last-level cache, and its way to memory.
#[derive(Clone, Debug)]
pub struct Llc {
    /// Size, bytes.
    pub bytes: f64,
    /// Bandwidth of its port, bytes/ns; infinite if only the memory limits.
    pub bandwidth: f64,
    /// Index into [`SimulatedMachine::memories`].
    pub memory: usize,
}

/// A memory controller and all behind it.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Latency beyond the last-level cache when no other asks, ns.
    pub latency_ns: f64,
    /// Bandwidth, bytes/ns.
    pub bandwidth: f64,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct SimulatedMachine {
    /// As `--machine` takes it.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Its CPUs, as policies see them.
    pub topology: Topology,
    /// By core type.
    pub cores: Vec<Core>,
    /// By [`Cpu::llc`].
    pub llcs: Vec<Llc>,
    /// The first so many of them are one module; others are alike.
    pub(super) llcs_in_module: usize,
    /// See [`Llc::memory`].
    pub memories: Vec<Memory>,
    /// Time between ticks, ns.
    pub tick_ns: u64,
    /// What a switch between two threads costs, ns.
    pub switch_ns: f64,
    /// What waking a thread up takes on the fastest core type, ns.
    wake_ns: f64,
    /// When contention is low, if somebody has measured it; for policies that ask.
    pub thresholds: Option<Thresholds>,
    /// By how much everything is slower than on hardware; see [`SimulatedMachine::as_testbed`].
    pub scale: Option<TestbedScale>,
    /// What it takes, where that is known.
    pub energy: Option<SimulatedEnergy>,
    /// `scx_hetero bench` starts the programs: what a thread of it takes for that on the slowest CPUs, ns.
    pub start_ns: Option<f64>,
}

/// From the moment that a thread of `scx_hetero bench` learns of a program's end until it has forked the next run: 2.6 to
/// 2.8 ms on an E core of the virtual `juno-r1` (docs/sim-agreement.md).
const START_NS: f64 = 2.7e6;

/// From one thread that is woken up at a barrier to the next: 8.5 µs on an A15 of the virtual `odroid-xu4`, 23 to 26 on an A7.
const WAKE_NS: f64 = 8.5e3;

/// How the virtual machine of `testbed/` stretches time and shrinks caches.
#[derive(Clone, Copy, Debug)]
pub struct TestbedScale {
    /// A second there is the work of so many parts of a second.
    pub time: f64,
    /// Last-level caches are smaller by this.
    pub cache: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMachine {
    description: String,
    hz: Sourced,
    switch_us: Sourced,
    modules: Option<Spanned<u32>>,
    thresholds: Option<RawThresholds>,
    scale: Option<RawScale>,
    energy: Option<Spanned<RawSimulatedEnergy>>,
    memory: BTreeMap<String, RawMemory>,
    llc: BTreeMap<String, RawLlc>,
    core_type: Vec<RawCore>,
    cluster: Vec<RawCluster>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawThresholds {
    low_btr_mb_s: Sourced,
    high_btr_mb_s: Sourced,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScale {
    time: Sourced,
    cache: Sourced,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMemory {
    latency_ns: Sourced,
    bandwidth_mb_s: Sourced,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLlc {
    kib: Sourced,
    /// Absent: only the memory limits.
    bandwidth_mb_s: Option<Sourced>,
    memory: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCore {
    name: Spanned<String>,
    clock_mhz: Sourced,
    capacity: Sourced,
    ipc: Option<Sourced>,
    sf_least: Option<Sourced>,
    sf_most: Option<Sourced>,
    overlap: Sourced,
    prefetch: Sourced,
    walk_ns: Option<Sourced>,
    /// Absent: the second level is the last.
    l2_kib: Option<Sourced>,
    /// For cores of two threads: see [`Core::smt`].
    smt: Option<Sourced>,
    /// Microarchitecture whose counters it has; absent: those of [`counted::USUAL`].
    pmu: Option<Spanned<String>>,
    /// What a model of the machine counts there; absent: nothing.
    #[serde(default)]
    model_counts: Vec<Spanned<String>>,
    /// See [`CoreType::low_power_island`].
    #[serde(default)]
    island: bool,
    energy: Option<RawSimulatedCoreEnergy>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCluster {
    core_type: Spanned<String>,
    llc: Spanned<String>,
    cpus: Spanned<u32>,
    /// Of each core; its CPUs follow each other.
    #[serde(default = "one")]
    threads: Spanned<u32>,
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

impl SimulatedMachine {
    /// Reads a machine.
    ///
    /// # Errors
    /// Which line of `source` is wrong, and why.
    pub(super) fn parse(name: &str, source: &SourceText) -> Result<Self> {
        let raw: RawMachine = source.parse()?;
        let mb_s = |what, number: &Sourced| {
            Ok::<_, anyhow::Error>(source.check(what, number, 1.0..=1e7)? / 1e3)
        };
        let modules = raw.modules.as_ref().map_or(1, |modules| *modules.get_ref());
        let hz = source.check("hz", &raw.hz, 100.0..=1000.0)?;
        let switch_us = source.check("switch_us", &raw.switch_us, 0.0..=1000.0)?;
        let cores = cores(source, &raw)?;
        let (memories, llcs) = caches(source, &raw, modules, &mb_s)?;
        let thresholds = raw.thresholds.as_ref().map(|raw| {
            anyhow::Ok(Thresholds {
                low_btr: mb_s("low_btr_mb_s", &raw.low_btr_mb_s)? * 1e9,
                high_btr: mb_s("high_btr_mb_s", &raw.high_btr_mb_s)? * 1e9,
            })
        });
        let scale = raw.scale.as_ref().map(|raw| {
            anyhow::Ok(TestbedScale {
                time: source.check("time", &raw.time, 1.0..=1000.0)?,
                cache: source.check("cache", &raw.cache, 1.0..=1000.0)?,
            })
        });
        let topology = topology(source, &raw, modules)?;
        let mut machine = Self {
            name: name.to_string(),
            topology,
            cores,
            llcs_in_module: raw.llc.len(),
            llcs,
            memories,
            tick_ns: (1e9 / hz) as u64,
            switch_ns: switch_us * 1e3,
            wake_ns: 0.0,
            thresholds: thresholds.transpose()?,
            scale: scale.transpose()?,
            energy: energy(source, &raw)?,
            start_ns: None,
            description: raw.description,
        };
        machine.tell_sizes();
        Ok(machine)
    }

    /// The virtual machine of `testbed/` that stands for this one: slower, with smaller caches, and
    /// a kernel whose own work is not scaled.
    ///
    /// # Errors
    /// There is none.
    pub fn as_testbed(mut self) -> Result<Self> {
        let scale = self.scale.take().with_context(|| {
            format!(
                "machine {} has no [scale]: no virtual machine stands for it",
                self.name
            )
        })?;
        for core in &mut self.cores {
            core.hz /= scale.time;
            core.walk_ns *= scale.time;
            core.l2_bytes /= scale.cache;
        }
        for llc in &mut self.llcs {
            llc.bytes /= scale.cache;
            llc.bandwidth /= scale.time;
        }
        for memory in &mut self.memories {
            memory.latency_ns *= scale.time;
            memory.bandwidth /= scale.time;
        }
        if let Some(thresholds) = &mut self.thresholds {
            thresholds.low_btr /= scale.time;
            thresholds.high_btr /= scale.time;
        }
        if let Some(energy) = &mut self.energy {
            energy.stretch(scale.time);
        }
        self.switch_ns *= scale.time;
        self.start_ns = Some(START_NS);
        self.wake_ns = WAKE_NS;
        self.tell_sizes();
        Ok(self)
    }

    /// What waking a thread up takes a thread on a core type, ns: nothing but in what stands for a virtual machine,
    /// for on hardware it is a microsecond.
    pub(super) fn wake_ns(&self, core_type: usize) -> f64 {
        let capacity = |kind: usize| f64::from(self.topology.types[kind].capacity);
        self.wake_ns * capacity(0) / capacity(core_type)
    }

    /// The topology has the sizes of caches, too.
    fn tell_sizes(&mut self) {
        let bytes = self.llcs.iter().map(|llc| llc.bytes as u64);
        self.topology.llc_bytes = bytes.collect();
    }

    /// The last-level cache of a core type's first CPU.
    pub(super) fn llc_of(&self, core_type: usize) -> &Llc {
        let first = self.topology.types[core_type].cpus[0];
        &self.llcs[self.topology.cpus[first as usize].llc]
    }

    /// What lies behind that cache.
    pub(super) fn memory_of(&self, core_type: usize) -> &Memory {
        &self.memories[self.llc_of(core_type).memory]
    }

    /// How many CPUs it has.
    pub fn cpus(&self) -> usize {
        self.topology.cpus.len()
    }

    /// How many CPUs of each core type.
    pub fn cpus_by_type(&self) -> Vec<usize> {
        let types = self.topology.types.iter();
        types.map(|kind| kind.cpus.len()).collect()
    }
}

fn cores(source: &SourceText, raw: &RawMachine) -> Result<Vec<Core>> {
    let all = || raw.core_type.iter().zip(0..);
    if raw.core_type.is_empty() || raw.core_type.len() > MAX_CORE_TYPES {
        return source.wrong(
            0,
            &format!("a machine has 1 to {MAX_CORE_TYPES} core types"),
        );
    }
    let core = |(core, place): (&RawCore, usize)| {
        let at = core.name.span().start;
        let sf = match (&core.sf_least, &core.sf_most) {
            (None, None) if place == 0 => (1.0, 1.0),
            (Some(least), Some(most)) if place > 0 => (
                source.check("sf_least", least, 1.0..=100.0)?,
                source.check("sf_most", most, least.get()..=100.0)?,
            ),
            _ => {
                let message =
                    "every core type but the first, the fastest, has `sf_least` and `sf_most`";
                return source.wrong(at, message);
            }
        };
        let optional = |what, number: &Option<Sourced>, range, absent| match number {
            Some(number) => source.check(what, number, range),
            None => Ok(absent),
        };
        Ok(Core {
            hz: source.check("clock_mhz", &core.clock_mhz, 1.0..=1e4)? * 1e6,
            ipc: optional("ipc", &core.ipc, 0.1..=10.0, 1.0)?,
            sf,
            overlap: source.check("overlap", &core.overlap, 1.0..=1000.0)?,
            prefetch: source.check("prefetch", &core.prefetch, 1.0..=1000.0)?,
            walk_ns: optional("walk_ns", &core.walk_ns, 0.0..=1e4, 0.0)?,
            l2_bytes: optional("l2_kib", &core.l2_kib, 16.0..=1e6, 0.0)? * 1024.0,
            smt: optional("smt", &core.smt, 1.0..=2.0, 2.0)?,
            pmu: counted::pmu(source, core.pmu.as_ref())?,
            model_counts: counted::meanings(source, &core.model_counts)?,
        })
    };
    all().map(core).collect()
}

/// What the machine takes, if its file says so of all core types.
fn energy(source: &SourceText, raw: &RawMachine) -> Result<Option<SimulatedEnergy>> {
    let cores = raw.core_type.iter().filter_map(|core| core.energy.as_ref());
    let cores = cores.map(|core| SimulatedCoreEnergy::parse(source, core));
    let cores = cores.collect::<Result<Vec<_>>>()?;
    match &raw.energy {
        Some(package) if cores.len() == raw.core_type.len() => {
            SimulatedEnergy::parse(source, package.get_ref(), cores).map(Some)
        }
        None if cores.is_empty() => Ok(None),
        package => {
            let at = package.as_ref().map_or(0, |package| package.span().start);
            source.wrong(
                at,
                "[energy] and an `energy` of every core type: all or none",
            )
        }
    }
}

type Caches = (Vec<Memory>, Vec<Llc>);

fn caches(
    source: &SourceText,
    raw: &RawMachine,
    modules: u32,
    mb_s: &impl Fn(&'static str, &Sourced) -> Result<f64>,
) -> Result<Caches> {
    let (mut memories, mut llcs) = (Vec::new(), Vec::new());
    for module in 0..modules as usize {
        for memory in raw.memory.values() {
            memories.push(Memory {
                latency_ns: source.check("latency_ns", &memory.latency_ns, 1.0..=1e5)?,
                bandwidth: mb_s("bandwidth_mb_s", &memory.bandwidth_mb_s)?,
            });
        }
        for llc in raw.llc.values() {
            let bandwidth = llc.bandwidth_mb_s.as_ref();
            let bandwidth = bandwidth.map(|b| mb_s("bandwidth_mb_s", b));
            let place = place(source, "memory", &llc.memory, raw.memory.keys())?;
            llcs.push(Llc {
                bytes: source.check("kib", &llc.kib, 16.0..=1e7)? * 1024.0,
                bandwidth: bandwidth.transpose()?.unwrap_or(f64::INFINITY),
                memory: module * raw.memory.len() + place,
            });
        }
    }
    Ok((memories, llcs))
}

/// Which of `names` is meant.
fn place<'a>(
    source: &SourceText,
    what: &str,
    name: &Spanned<String>,
    mut names: impl Iterator<Item = &'a String>,
) -> Result<usize> {
    match names.position(|known| known == name.get_ref()) {
        Some(place) => Ok(place),
        None => source.wrong(
            name.span().start,
            &format!("there is no {what} {}", name.get_ref()),
        ),
    }
}

fn topology(source: &SourceText, raw: &RawMachine, modules: u32) -> Result<Topology> {
    let mut types: Vec<CoreType> = Vec::new();
    for core in &raw.core_type {
        types.push(CoreType {
            name: core.name.get_ref().clone(),
            cpus: Vec::new(),
            capacity: source.check("capacity", &core.capacity, 1.0..=1024.0)? as u32,
            low_power_island: core.island,
            pmu: None,
        });
    }
    let (mut cpus, mut domains) = (Vec::new(), Vec::new());
    for module in 0..modules as usize {
        for cluster in &raw.cluster {
            let names = || raw.core_type.iter().map(|core| core.name.get_ref());
            let core_type = place(source, "core type", &cluster.core_type, names())?;
            let llc = place(source, "llc", &cluster.llc, raw.llc.keys())?;
            let first = cpus.len() as u32;
            let count = *cluster.cpus.get_ref();
            if count == 0 || cpus.len() + count as usize > MAX_CPUS || domains.len() == MAX_DOMAINS
            {
                let message =
                    format!("at most {MAX_CPUS} CPUs in {MAX_DOMAINS} clusters, none empty");
                return source.wrong(cluster.cpus.span().start, &message);
            }
            let threads = *cluster.threads.get_ref();
            if !matches!(threads, 1 | 2) || count % threads != 0 {
                let message = "cores have 1 thread or 2, and a cluster has whole cores";
                return source.wrong(cluster.threads.span().start, message);
            }
            let core = |id: u32| id - (id - first) % threads;
            let ids: Vec<u32> = (first..first + count).collect();
            types[core_type].cpus.extend(&ids);
            cpus.extend(ids.iter().map(|&id| Cpu {
                id,
                core_type,
                domain: 0,
                core: core(id),
                siblings: (core(id)..core(id) + threads).collect(),
                llc: module * raw.llc.len() + llc,
                package: 0,
                max_freq_khz: Some((raw.core_type[core_type].clock_mhz.get() * 1e3) as u32),
                capacity: None,
                highest_perf: None,
            }));
            domains.push(Domain {
                core_type,
                cpus: ids,
                shares_l2: false,
            });
        }
    }
    if let Some(core) = types.iter().position(|kind| kind.cpus.is_empty()) {
        let at = raw.core_type[core].name.span().start;
        return source.wrong(at, "no cluster has CPUs of this core type");
    }
    domains.sort_by_key(|domain| (domain.core_type, domain.cpus[0]));
    for (index, domain) in domains.iter().enumerate() {
        for &cpu in &domain.cpus {
            cpus[cpu as usize].domain = index;
        }
    }
    Ok(Topology {
        types,
        domains,
        nr_cpu_ids: cpus.len() as u32,
        smt: cpus.iter().any(|cpu| cpu.siblings.len() > 1),
        cpus,
        llc_bytes: Vec::new(),
        source: topology::Source::Override,
        capacity_source: None,
        disagreements: Vec::new(),
        notes: Vec::new(),
    })
}
