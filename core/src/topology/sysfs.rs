// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads what sysfs says about CPUs into plain values. The only file here that does I/O, and it
//! judges nothing: a file that is absent is `None`, one that makes no sense is `None` and a note.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::cpulist;
use crate::files::read_trimmed;

/// A reader of the sysfs tree below some root directory.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

/// What sysfs says about a machine, uninterpreted.
#[derive(Clone, Debug, Default)]
pub struct TopologyFacts {
    /// Online CPUs, ascending by id.
    pub cpus: Vec<RawCpu>,
    /// CPUs that are plugged in, online or not, ascending.
    pub present: Vec<u32>,
    /// Highest possible CPU id + 1.
    pub nr_cpu_ids: u32,
    /// The CPU cores' own PMUs, by name.
    pub pmus: Vec<SysfsPmu>,
    /// An ARM machine.
    pub arm: bool,
    /// Files that made no sense and what was made of them.
    pub notes: Vec<String>,
}

/// A PMU that counts on CPU cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysfsPmu {
    /// Name of its sysfs device, such as `cpu_core`.
    pub name: String,
    /// Online CPUs it serves, ascending; `None` where it has no `cpus` file and serves all.
    pub cpus: Option<Vec<u32>>,
}

/// What sysfs says about one online CPU. CPU lists are ascending, online only, and hold the CPU.
#[derive(Clone, Debug, Default)]
pub struct RawCpu {
    /// CPU id.
    pub id: u32,
    /// `cpu_capacity`, in the kernel's unit: 1024 for the fastest CPU.
    pub capacity: Option<u32>,
    /// `acpi_cppc/highest_perf`, in the firmware's abstract unit.
    pub highest_perf: Option<u32>,
    /// `cpufreq/cpuinfo_max_freq`, kHz.
    pub max_freq_khz: Option<u32>,
    /// `topology/physical_package_id`, 0 where unknown.
    pub package: u32,
    /// SMT siblings.
    pub siblings: Vec<u32>,
    /// CPUs of its cluster, where the kernel knows of clusters.
    pub cluster: Option<Vec<u32>>,
    /// CPUs sharing its level 2 cache.
    pub l2: Option<Vec<u32>>,
    /// CPUs sharing its level 3 cache.
    pub l3: Option<Vec<u32>>,
    /// Size of its last level of cache, bytes.
    pub llc_bytes: Option<u64>,
}

impl TopologyFacts {
    /// Ids of the online CPUs, ascending.
    pub fn online(&self) -> Vec<u32> {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// The online CPU with this id.
    pub fn cpu(&self, id: u32) -> Option<&RawCpu> {
        let index = self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok()?;
        Some(&self.cpus[index])
    }
}

const CPU_DIR: &str = "sys/devices/system/cpu";
/// Where PMUs are found; the first holds links to all of them on any kernel of the last decade.
const PMU_DIRS: [&str; 2] = ["sys/bus/event_source/devices", "sys/devices"];

impl Sysfs {
    /// A reader that looks for `/sys` below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A reader of this machine's sysfs or, where `SCX_SYSFS_PREFIX` is set, of the one below that
    /// directory.
    pub fn from_env() -> Self {
        match std::env::var_os("SCX_SYSFS_PREFIX") {
            Some(prefix) if !prefix.is_empty() => Self::new(prefix),
            _ => Self::new("/"),
        }
    }

    /// Reads everything the detection wants to know.
    pub fn facts(&self) -> Result<TopologyFacts> {
        let path = self.root.join(CPU_DIR).join("online");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}: is sysfs mounted?", path.display()))?;
        let online =
            cpulist::parse(&text).with_context(|| format!("cannot use {}", path.display()))?;
        ensure!(!online.is_empty(), "{} names no CPU", path.display());

        let mut reader = Reader {
            root: &self.root,
            online: &online,
            notes: Vec::new(),
        };
        let present = reader.list(format!("{CPU_DIR}/present"));
        let possible = reader.list(format!("{CPU_DIR}/possible"));
        let present = present.unwrap_or_else(|| online.clone());
        let last = |cpus: &[u32]| cpus.last().copied().unwrap_or(0);
        let highest = last(&online)
            .max(last(&present))
            .max(last(possible.as_deref().unwrap_or_default()));
        if possible.is_none() {
            reader.notes.push(format!(
                "the possible CPUs are not known: taken to end with CPU {highest}"
            ));
        }
        let pmus = reader.pmus();
        let midr = format!("{CPU_DIR}/cpu{}/regs/identification/midr_el1", online[0]);
        Ok(TopologyFacts {
            cpus: online.iter().map(|&id| reader.cpu(id)).collect(),
            arm: pmus.iter().any(|pmu| pmu.name.starts_with("armv"))
                || self.root.join(midr).exists(),
            pmus,
            present,
            nr_cpu_ids: highest + 1,
            notes: reader.notes,
        })
    }
}

struct Reader<'a> {
    root: &'a Path,
    online: &'a [u32],
    notes: Vec<String>,
}

impl Reader<'_> {
    fn cpu(&mut self, id: u32) -> RawCpu {
        let dir = format!("{CPU_DIR}/cpu{id}");
        // The first name is the current one; kernels before 5.3 have only the second.
        let siblings = self
            .shared(id, format!("{dir}/topology/core_cpus_list"))
            .or_else(|| self.shared(id, format!("{dir}/topology/thread_siblings_list")));
        // The kernel says 65535 or -1 where it knows of no clusters.
        let cluster = match self.text(&format!("{dir}/topology/cluster_id")).as_deref() {
            None | Some("-1" | "65535") => None,
            Some(_) => self.shared(id, format!("{dir}/topology/cluster_cpus_list")),
        };
        RawCpu {
            id,
            capacity: self.number(format!("{dir}/cpu_capacity")),
            highest_perf: self.number(format!("{dir}/acpi_cppc/highest_perf")),
            max_freq_khz: self.number(format!("{dir}/cpufreq/cpuinfo_max_freq")),
            package: self
                .text(&format!("{dir}/topology/physical_package_id"))
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            siblings: siblings.unwrap_or_else(|| vec![id]),
            cluster,
            l2: self.cache(id, &dir, "2"),
            l3: self.cache(id, &dir, "3"),
            llc_bytes: self.llc_bytes(&dir),
        }
    }

    /// CPUs sharing the cache of `level`, whichever of the CPU's `index*` directories it is. A
    /// cache that is there but does not say what shares it is the CPU's own.
    fn cache(&mut self, id: u32, dir: &str, level: &str) -> Option<Vec<u32>> {
        let index = (0..10)
            .map(|n| format!("{dir}/cache/index{n}"))
            .find(|index| self.text(&format!("{index}/level")).as_deref() == Some(level))?;
        let shared = self.shared(id, format!("{index}/shared_cpu_list"));
        Some(shared.unwrap_or_else(|| vec![id]))
    }

    /// Size of the last level, such as `30720K`, in bytes.
    fn llc_bytes(&self, dir: &str) -> Option<u64> {
        let of_index = |n: u32| {
            let text = |file| self.text(&format!("{dir}/cache/index{n}/{file}"));
            let level: u32 = text("level")?.parse().ok()?;
            let kib: u64 = text("size")?.strip_suffix('K')?.parse().ok()?;
            Some((level, kib.checked_mul(1024)?))
        };
        (0..10).filter_map(of_index).max().map(|(_, bytes)| bytes)
    }

    /// PMUs of CPU cores, by name. perf tells them by a `cpus` file, or by the name `cpu`; those
    /// of other units have a `cpumask` file instead.
    fn pmus(&mut self) -> Vec<SysfsPmu> {
        let (mut pmus, mut seen) = (Vec::new(), BTreeSet::new());
        for dir in PMU_DIRS {
            let entries = fs::read_dir(self.root.join(dir)).into_iter().flatten();
            let names = entries.flatten().map(|entry| entry.file_name());
            for name in names.filter_map(|name| name.into_string().ok()) {
                let device = self.root.join(dir).join(&name);
                if device.join("cpus").is_file() {
                    if !seen.insert(name.clone()) {
                        continue;
                    }
                    let cpus = self.list(format!("{dir}/{name}/cpus")).unwrap_or_default();
                    let cpus = self.only_online(cpus);
                    if !cpus.is_empty() {
                        let cpus = Some(cpus);
                        pmus.push(SysfsPmu { name, cpus });
                    }
                } else if name == "cpu"
                    && device.join("type").is_file()
                    && seen.insert(name.clone())
                {
                    pmus.push(SysfsPmu { name, cpus: None });
                }
            }
        }
        pmus.sort_by(|a: &SysfsPmu, b| a.name.cmp(&b.name));
        pmus
    }

    fn text(&self, path: &str) -> Option<String> {
        read_trimmed(self.root.join(path))
    }

    /// A positive number; 0 is how several drivers say that they do not know.
    fn number(&mut self, path: String) -> Option<u32> {
        let text = self.text(&path)?;
        match text.parse() {
            Ok(0) => None,
            Ok(number) => Some(number),
            Err(_) => {
                self.notes
                    .push(format!("/{path} holds '{text}', not a number: ignored"));
                None
            }
        }
    }

    fn list(&mut self, path: String) -> Option<Vec<u32>> {
        match cpulist::parse(&self.text(&path)?) {
            Ok(cpus) => Some(cpus),
            Err(error) => {
                self.notes.push(format!("/{path}: {error}: ignored"));
                None
            }
        }
    }

    /// A list of CPUs that share something with CPU `id`: online ones, and itself in any case.
    fn shared(&mut self, id: u32, path: String) -> Option<Vec<u32>> {
        let mut cpus = self.list(path)?;
        cpus.push(id);
        cpus.sort_unstable();
        cpus.dedup();
        Some(self.only_online(cpus))
    }

    fn only_online(&self, mut cpus: Vec<u32>) -> Vec<u32> {
        cpus.retain(|cpu| self.online.binary_search(cpu).is_ok());
        cpus
    }
}
