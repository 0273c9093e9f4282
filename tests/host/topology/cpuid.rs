// SPDX-License-Identifier: GPL-2.0-only
//! The sysfs files that the kernel makes of CPUID, from a dump of its leaves: topology and caches of
//! each CPU, and which PMUs there are. After Linux 7.3, `arch/x86/kernel/cpu/topology_ext.c`,
//! `topology_common.c` and `cacheinfo.c`, and `find_hybrid_pmu_for_cpu()` in `events/intel/core.c`.
//!
//! `cpufreq`, `acpi_cppc` and `cpu_capacity` come from firmware and drivers, not from CPUID, so that
//! such a machine has none.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::fixtures::{CPU, Machine};
use scx_hetero::topology::cpulist;

/// What the kernel says of a cluster where the vendor's code sets no L2 id, as AMD's.
const BAD_APICID: u32 = 0xffff;
/// The only CPUs with a PMU for low-power cores: those that have two kinds of Atom.
const ARROWLAKE_H: u32 = 0xc5;
/// Native model ids of leaf 1Ah by which the kernel tells those two kinds.
const CRESTMONT: u32 = 2;

/// eax, ebx, ecx, edx by leaf and subleaf.
type Leaves = BTreeMap<(u32, u32), [u32; 4]>;

/// All CPUs of a machine, by number.
pub(super) struct Dump {
    amd: bool,
    cpus: Vec<Leaves>,
}

/// A cache as a leaf describes it.
struct Cache {
    kind: u32,
    level: u32,
    threads: u32,
    bytes: u32,
}

/// How far an APIC id is shifted for a number of which CPUs sharing among `threads` have the same.
fn order(threads: u32) -> u32 {
    threads.next_power_of_two().trailing_zeros()
}

impl Dump {
    /// Reads `cpu,leaf,subleaf,eax,ebx,ecx,edx`, all but the CPU in hexadecimal.
    pub(super) fn read(path: &Path) -> Self {
        let mut cpus: Vec<Leaves> = Vec::new();
        for line in fs::read_to_string(path).unwrap().lines().skip(1) {
            let (cpu, rest) = line.split_once(',').unwrap();
            let cpu: usize = cpu.parse().unwrap();
            let hex = |field| u32::from_str_radix(field, 16).unwrap();
            let fields: Vec<u32> = rest.split(',').map(hex).collect();
            let [leaf, subleaf, registers @ ..] = &fields[..] else {
                panic!("{line}");
            };
            cpus.resize_with(cpus.len().max(cpu + 1), Leaves::new);
            cpus[cpu].insert((*leaf, *subleaf), registers.try_into().unwrap());
        }
        let amd = cpus[0][&(0, 0)][1] == u32::from_le_bytes(*b"Auth");
        Self { amd, cpus }
    }

    fn ids(&self) -> std::ops::Range<u32> {
        0..self.cpus.len() as u32
    }

    fn leaf(&self, cpu: u32, leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
        self.cpus[cpu as usize].get(&(leaf, subleaf)).copied()
    }

    /// The levels of the topology leaf that the kernel takes: type and shift of each.
    fn levels(&self) -> (u32, Vec<(u32, u32)>) {
        let preferred = if self.amd { 0x8000_0026 } else { 0x1f };
        let level = |leaf, subleaf| {
            let [eax, ebx, ecx, _] = self.leaf(0, leaf, subleaf)?;
            let (kind, shift) = (ecx >> 8 & 0xff, eax & 0x1f);
            (ebx & 0xffff != 0 && kind != 0).then_some((kind, shift))
        };
        let of_leaf = |leaf| -> Vec<(u32, u32)> { (0..).map_while(|n| level(leaf, n)).collect() };
        [preferred, 0xb]
            .into_iter()
            .map(|leaf| (leaf, of_leaf(leaf)))
            .find(|(_, levels)| !levels.is_empty())
            .expect("a topology leaf")
    }

    /// The caches of a CPU, by `index` in sysfs.
    fn caches(&self, cpu: u32) -> Vec<Cache> {
        let leaf = if self.amd { 0x8000_001d } else { 4 };
        let cache = |index| {
            let [eax, ebx, ecx, _] = self.leaf(cpu, leaf, index)?;
            let (ways, parts, line) = (ebx >> 22, ebx >> 12 & 0x3ff, ebx & 0xfff);
            (eax & 0x1f != 0).then_some(Cache {
                kind: eax & 0x1f,
                level: eax >> 5 & 7,
                threads: 1 + (eax >> 14 & 0xfff),
                bytes: (ecx + 1) * (line + 1) * (parts + 1) * (ways + 1),
            })
        };
        (0..).map_while(cache).collect()
    }

    /// The machine as a kernel on it shows it.
    pub(super) fn machine(&self) -> Machine {
        let machine = Machine::empty();
        let all = cpulist::format(&self.ids().collect::<Vec<u32>>());
        for file in ["online", "present", "possible"] {
            machine.set(&format!("sys/devices/system/cpu/{file}"), &all);
        }
        self.topology(&machine);
        self.cache(&machine);
        self.pmus(&machine);
        machine
    }

    fn apic_id(&self, cpu: u32) -> u32 {
        let (leaf, _) = self.levels();
        self.leaf(cpu, leaf, 0).expect("every CPU has it")[3]
    }

    /// CPUs of which `key` is the same as of this one.
    fn alike<K: PartialEq>(&self, cpu: u32, key: impl Fn(u32) -> K) -> String {
        let alike: Vec<u32> = self.ids().filter(|&i| key(i) == key(cpu)).collect();
        cpulist::format(&alike)
    }

    fn topology(&self, machine: &Machine) {
        let (_, levels) = self.levels();
        let thread = levels.iter().find(|level| level.0 == 1).expect("SMT").1;
        let package = levels.last().expect("not empty").1;
        let package_id = |cpu| self.apic_id(cpu) >> package;
        let core_id = |cpu| (self.apic_id(cpu) & ((1 << package) - 1)) >> thread;
        let core = |cpu| (package_id(cpu), core_id(cpu));
        for cpu in self.ids() {
            let set = |file: &str, value: &str| {
                machine.set(&format!("{CPU}{cpu}/topology/{file}"), value);
            };
            let siblings = self.alike(cpu, core);
            set("core_id", &core_id(cpu).to_string());
            set("physical_package_id", &package_id(cpu).to_string());
            set("core_cpus_list", &siblings);
            let l2 = |cpu| {
                let l2 = self.caches(cpu).into_iter().find(|c| c.level == 2);
                let low_bits = (1 << order(l2.expect("an L2").threads)) - 1;
                self.apic_id(cpu) & !low_bits
            };
            let (id, cpus) = match self.amd {
                true => (BAD_APICID, siblings),
                false => (l2(cpu), self.alike(cpu, l2)),
            };
            set("cluster_id", &id.to_string());
            set("cluster_cpus_list", &cpus);
        }
    }

    fn cache(&self, machine: &Machine) {
        let caches: Vec<Vec<Cache>> = self.ids().map(|cpu| self.caches(cpu)).collect();
        // Whether CPU `other` is among those that `cpu` finds to share its cache.
        let found = |cpu: u32, other: u32, index: usize| {
            let (Some(own), Some(_)) = (
                caches[cpu as usize].get(index),
                caches[other as usize].get(index),
            ) else {
                return false;
            };
            let (a, b) = (self.apic_id(cpu), self.apic_id(other));
            match self.amd && index < 3 {
                true => a / own.threads == b / own.threads,
                false => a >> order(own.threads) == b >> order(own.threads),
            }
        };
        for cpu in self.ids() {
            for (index, cache) in caches[cpu as usize].iter().enumerate() {
                let set = |file: &str, value: &str| {
                    machine.set(&format!("{CPU}{cpu}/cache/index{index}/{file}"), value);
                };
                let kind = ["Data", "Instruction", "Unified"][cache.kind as usize - 1];
                // Each of two that share enters the other, so that one that says so is enough.
                let mut shared: Vec<u32> = self.ids().collect();
                shared.retain(|&i| found(cpu, i, index) || found(i, cpu, index));
                set("level", &cache.level.to_string());
                set("type", kind);
                set("size", &format!("{}K", cache.bytes / 1024));
                set(
                    "id",
                    &(self.apic_id(cpu) >> order(cache.threads)).to_string(),
                );
                set("shared_cpu_list", &cpulist::format(&shared));
            }
        }
    }

    fn pmus(&self, machine: &Machine) {
        let [version, ..] = self.leaf(0, 1, 0).expect("leaf 1");
        let model = version >> 12 & 0xf0 | version >> 4 & 0xf;
        let mut pmus: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for cpu in self.ids() {
            let hybrid = self
                .leaf(cpu, 7, 0)
                .is_some_and(|[.., edx]| edx >> 15 & 1 == 1);
            let [kind, ..] = self.leaf(cpu, 0x1a, 0).unwrap_or_default();
            let name = match (hybrid && !self.amd, kind >> 24, kind & 0xff_ffff) {
                (false, ..) => "cpu",
                (true, 0x20, CRESTMONT) if model == ARROWLAKE_H => "cpu_lowpower",
                (true, 0x20, _) => "cpu_atom",
                (true, ..) => "cpu_core",
            };
            pmus.entry(name).or_default().push(cpu);
        }
        for (number, (name, cpus)) in (8..).zip(pmus) {
            let device = format!("sys/bus/event_source/devices/{name}");
            machine.set(&format!("{device}/type"), &number.to_string());
            if name != "cpu" {
                machine.set(&format!("{device}/cpus"), &cpulist::format(&cpus));
            }
        }
    }
}
