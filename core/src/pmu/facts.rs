// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads what sysfs, `/proc` and CPUID say about PMUs into plain values, and judges nothing: a
//! file that is absent or makes no sense is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::format::Field;
use super::identify::{self, CpuIdentity};
use super::tables::Counters;
use crate::files::read_trimmed;
use crate::kernel;
use crate::topology::cpulist;

/// What a machine says about its PMUs, uninterpreted.
#[derive(Clone, Debug, Default)]
pub struct MachineFacts {
    /// The PMUs of CPU cores, by name.
    pub pmus: Vec<PmuFacts>,
    /// Counters by CPUID; on hybrids those that all core types have.
    pub counters: Option<Counters>,
    /// CPUID tells the kernel each core type's own (leaf 23H), which virtual machines often lack.
    pub counters_by_type: bool,
    /// The NMI watchdog counts cycles on every CPU.
    pub nmi_watchdog: bool,
}

/// What a machine says about one PMU.
#[derive(Clone, Debug, Default)]
pub struct PmuFacts {
    /// Name of its sysfs device, such as `cpu_core`.
    pub name: String,
    /// `perf_event_attr.type`.
    pub type_id: u32,
    /// Online CPUs it serves, ascending.
    pub cpus: Vec<u32>,
    /// What these CPUs say they are, if all say the same.
    pub cpu: Option<CpuIdentity>,
    /// `format/`: where the terms of a raw event go.
    pub formats: BTreeMap<String, Field>,
    /// `events/`: events the kernel names.
    pub events: BTreeMap<String, String>,
}

const DEVICES: &str = "sys/bus/event_source/devices";
const CPUS: &str = "sys/devices/system/cpu";

/// Reads below `root`, which is `/` for this machine.
pub(super) fn read(root: &Path) -> MachineFacts {
    let reader = Reader {
        root,
        online: Vec::new(),
        cpuinfo: String::new(),
    };
    let online = reader.list(&format!("{CPUS}/online")).unwrap_or_default();
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let reader = Reader {
        root,
        online,
        cpuinfo,
    };
    let watchdog = reader.text("proc/sys/kernel/nmi_watchdog");
    MachineFacts {
        pmus: reader.pmus(),
        counters: (root == Path::new("/")).then(counters).flatten(),
        counters_by_type: root != Path::new("/") || tells_by_type(),
        nmi_watchdog: watchdog.as_deref() == Some("1") && !neighbours_watch(root),
    }
}

/// The kernel's watchdog has CPUs watch each other by timers, as on ARM, and counts nothing; the
/// switch is the same.
fn neighbours_watch(root: &Path) -> bool {
    let config = kernel::config(root);
    config.is_some_and(|config| kernel::is_set(&config, "CONFIG_HARDLOCKUP_DETECTOR_BUDDY"))
}

/// The root directory that `SCX_SYSFS_PREFIX` names, else `/`.
pub fn root_from_env() -> PathBuf {
    let prefix = std::env::var_os("SCX_SYSFS_PREFIX").filter(|prefix| !prefix.is_empty());
    prefix.map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

struct Reader<'a> {
    root: &'a Path,
    online: Vec<u32>,
    cpuinfo: String,
}

impl Reader<'_> {
    /// PMUs of CPU cores: those with a `cpus` file, and the one named `cpu`.
    fn pmus(&self) -> Vec<PmuFacts> {
        let names = self.names(DEVICES).into_iter();
        names.filter_map(|name| self.pmu(name)).collect()
    }

    fn pmu(&self, name: String) -> Option<PmuFacts> {
        let dir = format!("{DEVICES}/{name}");
        let mut cpus = match self.list(&format!("{dir}/cpus")) {
            Some(cpus) => cpus,
            None if name == "cpu" => self.online.clone(),
            None => return None,
        };
        cpus.retain(|cpu| self.online.contains(cpu));
        let files = |part: &str| {
            let dir = format!("{dir}/{part}");
            let names = self.names(&dir).into_iter();
            let texts = names.filter_map(|name| Some((self.text(&format!("{dir}/{name}"))?, name)));
            texts.map(|(text, name)| (name, text)).collect::<Vec<_>>()
        };
        let formats = files("format").into_iter();
        // NAME.scale and NAME.unit say how to show an event, and are none.
        let events = files("events")
            .into_iter()
            .filter(|(name, _)| !name.contains('.'));
        let known = |cpus: &[u32]| {
            let first = self.cpu(*cpus.first()?)?;
            cpus.iter()
                .all(|&cpu| self.cpu(cpu) == Some(first))
                .then_some(first)
        };
        (!cpus.is_empty()).then_some(())?;
        Some(PmuFacts {
            type_id: self.text(&format!("{dir}/type"))?.parse().ok()?,
            cpu: known(&cpus),
            formats: formats
                .filter_map(|(name, text)| Some((name, Field::parse(&text)?)))
                .collect(),
            events: events.collect(),
            cpus,
            name,
        })
    }

    fn cpu(&self, id: u32) -> Option<CpuIdentity> {
        let midr = self.text(&format!("{CPUS}/cpu{id}/regs/identification/midr_el1"));
        match midr {
            Some(text) => {
                let hex = text.strip_prefix("0x")?;
                Some(identify::from_midr(u64::from_str_radix(hex, 16).ok()?))
            }
            None => identify::from_cpuinfo(&self.cpuinfo, id),
        }
    }

    fn text(&self, path: &str) -> Option<String> {
        read_trimmed(self.root.join(path))
    }

    fn list(&self, path: &str) -> Option<Vec<u32>> {
        cpulist::parse(&self.text(path)?).ok()
    }

    /// What lies in a directory, sorted.
    fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(dir)).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
        names.sort_unstable();
        names
    }
}

// Newer compilers know that it is safe.
#[allow(unused_unsafe, reason = "Rust 1.91 calls it unsafe")]
#[cfg(target_arch = "x86_64")]
fn cpuid(leaf: u32, subleaf: u32) -> std::arch::x86_64::CpuidResult {
    // SAFETY: every x86-64 CPU has the instruction, and it touches no memory.
    unsafe { std::arch::x86_64::__cpuid_count(leaf, subleaf) }
}

/// See [`MachineFacts::counters_by_type`].
#[cfg(target_arch = "x86_64")]
fn tells_by_type() -> bool {
    const FEATURES: u32 = 7;
    const BY_TYPE: u32 = 0x23;
    cpuid(0, 0).eax >= BY_TYPE && cpuid(FEATURES, 1).eax >> 8 & 1 != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn tells_by_type() -> bool {
    false
}

/// How many counters CPUID says that each CPU has.
#[cfg(target_arch = "x86_64")]
fn counters() -> Option<Counters> {
    const ARCHITECTURAL: u32 = 0xa;
    const AMD_EXTENDED: u32 = 0x8000_0022;
    let vendor = cpuid(0, 0);
    match &vendor.ebx.to_le_bytes() {
        b"Genu" if vendor.eax >= ARCHITECTURAL => {
            let leaf = cpuid(ARCHITECTURAL, 0);
            let version = leaf.eax & 0xff;
            (version >= 2).then_some(Counters {
                general: leaf.eax >> 8 & 0xff,
                fixed: leaf.edx & 0x1f,
            })
        }
        b"Auth" if cpuid(0x8000_0000, 0).eax >= AMD_EXTENDED => {
            let leaf = cpuid(AMD_EXTENDED, 0);
            (leaf.eax & 1 != 0).then_some(Counters {
                general: leaf.ebx & 0xf,
                fixed: 0,
            })
        }
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn counters() -> Option<Counters> {
    None
}
