// SPDX-License-Identifier: GPL-2.0-or-later
//! Core types, clusters and SMT siblings: what they are and how they are found.
//!
//! # How core types are found
//!
//! Sources in order of trust; the first one that tells CPUs apart decides:
//!
//! 1. the user's list (`--core-types`);
//! 2. the hybrid PMUs: each names the CPUs it serves (`cpu_core`, `cpu_atom`, `cpu_lowpower`,
//!    `armv8_*`, ...), and kernel and firmware agree on these because counting depends on them;
//! 3. `cpu_capacity`; 4. CPPC `highest_perf`; 5. the maximum frequency.
//!
//! The last three are numbers per core. They make a border between core types only where
//! neighbouring values are at least 15 % apart ([`MIN_GAP_PERCENT`]): favoured cores of one type
//! differ by a few percent (4.7 and 4.6 GHz; AMD's preferred cores are ranked 166, 171, ... 231),
//! and such steps make no types however many they are, while known core types differ by more.
//! CPPC's ranks may fall with heat, so where the maximum frequency tells CPUs apart otherwise, that
//! decides, but on ARM.
//!
//! Whatever decided, cores without an L3 among slower cores with one become a type of their own:
//! the low-power island (LP-E), which Meteor Lake's PMUs do not tell from the E cores.
//!
//! Online CPUs the deciding source does not know go with their SMT siblings, else with the type
//! whose capacity, CPPC value or frequency is nearest, else with the slowest, and a note says so.
//! A source that sees it otherwise than the outcome is reported in [`Topology::disagreements`].
//!
//! # Capacities
//!
//! What `scx_hetero calibrate` has measured, else the first of the three numbers by which every
//! type is slower than the one before, but the one that told types apart before the others; else
//! 60 % of the one before.
//!
//! # Names
//!
//! Fastest first: `P`, `E`, `LP-E` (a low-power island; a second type of the same kind gets a
//! number, `E2`); on ARM `big`, `LITTLE`, or `big`, `mid`, `LITTLE`, or `prime`, `big`, `mid`,
//! `LITTLE`; `cpu` where there is one type only; or what the user's list says.

mod cpu_mask;
pub mod cpulist;
mod detect;
mod evidence;
mod identity;
mod layout;
mod render;
mod spec;
mod sysfs;

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use cpu_mask::CpuMask;
pub use evidence::MIN_GAP_PERCENT;
pub use identity::{Identity, TypeIdentity, cpu_name, cpu_name_below};
pub use spec::CoreTypesSpec;
pub use sysfs::{RawCpu, Sysfs, SysfsPmu, TopologyFacts};

/// The most core types told apart.
pub const MAX_CORE_TYPES: usize = 4;

/// Where knowledge about core types comes from.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The user's list.
    Override,
    /// The `cpus` files of the hybrid PMUs.
    Pmu,
    /// The hybrid PMUs, and the lack of an L3 where they do not tell LP-E from E.
    PmuAndL3,
    /// `cpu_capacity`.
    Capacity,
    /// `acpi_cppc/highest_perf`.
    Cppc,
    /// `cpufreq/cpuinfo_max_freq`.
    MaxFreq,
    /// Measured on this machine by `scx_hetero calibrate`: capacities only.
    Calibrated,
    /// None: there is one core type.
    AllSame,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Override => "--core-types",
            Self::Pmu => "the hybrid PMUs",
            Self::PmuAndL3 => "the hybrid PMUs and the lack of an L3",
            Self::Capacity => "cpu_capacity",
            Self::Cppc => "CPPC highest_perf",
            Self::MaxFreq => "the maximum frequency",
            Self::Calibrated => "scx_hetero calibrate",
            Self::AllSame => "no source tells them apart",
        })
    }
}

/// CPUs of one kind.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct CoreType {
    /// `P`, `E`, `LP-E`, `big`, `mid`, `LITTLE`, `cpu`, or as the user calls it.
    pub name: String,
    /// Its online CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Estimated throughput of one CPU in 1/1024 of a CPU of the fastest type; a static estimate
    /// from [`Topology::capacity_source`].
    pub capacity: u32,
    /// These CPUs have no L3 though a faster type has: LP-E cores, which live on their own island.
    pub low_power_island: bool,
    /// The PMU that counts on all of these CPUs, by the name of its sysfs device.
    pub pmu: Option<String>,
}

/// An online CPU.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Cpu {
    /// CPU id.
    pub id: u32,
    /// Index into [`Topology::types`]; 0 is the fastest.
    pub core_type: usize,
    /// Index into [`Topology::domains`].
    pub domain: usize,
    /// Its physical core: the lowest id among its online SMT siblings.
    pub core: u32,
    /// Online SMT siblings, itself included, ascending.
    pub siblings: Vec<u32>,
    /// Its contention domain: a number shared by the CPUs that share a last-level cache, whatever
    /// their core type. Counted from 0 in the order of the lowest CPU.
    pub llc: usize,
    /// Physical package (socket).
    pub package: u32,
    /// Maximum frequency, kHz.
    pub max_freq_khz: Option<u32>,
    /// `cpu_capacity` as the kernel gives it.
    pub capacity: Option<u32>,
    /// CPPC `highest_perf` as the firmware gives it.
    pub highest_perf: Option<u32>,
}

/// CPUs of one core type that share a cluster; each becomes a dispatch queue.
///
/// The cluster is the set that shares an L2 where that is more than one physical core, else the
/// set that shares the last-level cache.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Domain {
    /// Index into [`Topology::types`].
    pub core_type: usize,
    /// Its online CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Its cores share an L2 that is not their last level.
    #[serde(default)]
    pub shares_l2: bool,
}

/// The machine's online CPUs, by core type, cluster and core.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Topology {
    /// Core types, fastest first; at least one and at most [`MAX_CORE_TYPES`].
    pub types: Vec<CoreType>,
    /// Clusters, by core type, then by lowest CPU. Every online CPU is in exactly one.
    pub domains: Vec<Domain>,
    /// Online CPUs, by id.
    pub cpus: Vec<Cpu>,
    /// Size of the last-level cache of each contention domain, bytes, by [`Cpu::llc`]; 0 where it is not known.
    /// No recording has them.
    #[serde(skip)]
    pub llc_bytes: Vec<u64>,
    /// Highest possible CPU id + 1.
    pub nr_cpu_ids: u32,
    /// Some core has more than one thread online.
    pub smt: bool,
    /// What told the core types apart.
    pub source: Source,
    /// What the core types' capacities come from; `None` where nothing says and they are assumed.
    pub capacity_source: Option<Source>,
    /// Sources that see other core types than these, a sentence each.
    pub disagreements: Vec<String>,
    /// What was missing or made no sense and what was made of it, a sentence each.
    pub notes: Vec<String>,
}

impl Topology {
    /// Reads this machine's topology, or that below `SCX_SYSFS_PREFIX` where it is set.
    pub fn detect(override_: Option<&CoreTypesSpec>) -> Result<Self> {
        Self::read(&Sysfs::from_env(), override_)
    }

    /// Reads the topology `sysfs` shows.
    pub fn read(sysfs: &Sysfs, override_: Option<&CoreTypesSpec>) -> Result<Self> {
        Self::from_facts(sysfs.facts()?, override_)
    }

    /// Works the topology out of what sysfs says. Touches no file.
    pub fn from_facts(facts: TopologyFacts, override_: Option<&CoreTypesSpec>) -> Result<Self> {
        let found = detect::detect(&facts, override_)?;
        Ok(layout::build(facts, found))
    }

    /// Size of the largest last-level cache, bytes; 0 where it is not known.
    pub fn largest_llc(&self) -> f64 {
        self.llc_bytes.iter().copied().max().unwrap_or(0) as f64
    }

    /// Size of the last-level cache of a core type, bytes; the largest if there are several, 0 where it is not known.
    pub fn llc_of_type(&self, core_type: usize) -> f64 {
        let cpus = self.cpus.iter().filter(|cpu| cpu.core_type == core_type);
        let sizes = cpus.filter_map(|cpu| self.llc_bytes.get(cpu.llc));
        sizes.copied().max().unwrap_or(0) as f64
    }

    /// Whether cores of a type have several threads (SMT) online.
    pub fn has_siblings(&self, core_type: usize) -> bool {
        let mut cpus = self.cpus.iter();
        cpus.any(|cpu| cpu.core_type == core_type && cpu.siblings.len() > 1)
    }

    /// Whether slower CPUs share a last-level cache with any of the fastest type.
    pub fn fastest_share_a_cache(&self) -> bool {
        let with = |cpu: &Cpu| {
            self.cpus
                .iter()
                .any(|fast| fast.core_type == 0 && fast.llc == cpu.llc)
        };
        self.cpus.iter().any(|cpu| cpu.core_type != 0 && with(cpu))
    }

    /// Takes measured capacities, one for each core type. They go before all other sources: those
    /// are clocks and what firmware says of them, and this is work done. False, and nothing taken,
    /// if they do not fall from 1024 in the order of the types, which all else relies on.
    pub fn set_capacities(&mut self, measured: &[u32]) -> bool {
        let falls = measured.is_sorted_by(|faster, slower| faster > slower);
        let fits = measured.len() == self.types.len() && measured.first() == Some(&1024) && falls;
        if fits && self.types.len() > 1 {
            for (kind, &capacity) in self.types.iter_mut().zip(measured) {
                kind.capacity = capacity;
            }
            self.capacity_source = Some(Source::Calibrated);
        }
        fits
    }

    /// The online CPU with this id.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        // Where no CPU is missing its id is its index.
        let guess = self.cpus.get(id as usize);
        guess.filter(|cpu| cpu.id == id).or_else(|| {
            let index = self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok()?;
            Some(&self.cpus[index])
        })
    }

    /// How many physical cores a core type has.
    pub fn cores_of(&self, core_type: usize) -> usize {
        let firsts = self.cpus.iter().filter(|cpu| cpu.core == cpu.id);
        firsts.filter(|cpu| cpu.core_type == core_type).count()
    }

    /// How many physical cores these CPUs are.
    pub fn nr_cores(&self, cpus: &[u32]) -> usize {
        let cores = cpus.iter().filter_map(|&id| Some(self.cpu(id)?.core));
        cores.collect::<BTreeSet<_>>().len()
    }
}

/// "CPU 3" or "CPUs 3-5".
fn in_words(cpus: &[u32]) -> String {
    let plural = if cpus.len() == 1 { "" } else { "s" };
    format!("CPU{plural} {}", cpulist::format(cpus))
}

/// "CPU 3 is" or "CPUs 3-5 are".
fn are(cpus: &[u32]) -> String {
    let verb = if cpus.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", in_words(cpus))
}
