// SPDX-License-Identifier: GPL-2.0-only
//! The detection on what was captured on real machines by others, against the answer that stands
//! beside each capture. They are no part of this project: see `fixtures::real_hardware`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cpuid::Dump;
use super::*;
use crate::fixtures::real_hardware;
use crate::tables::{Row, rows};

/// The folder of a captured machine, where there is one.
fn folder(machine: &str) -> Option<PathBuf> {
    Some(real_hardware(machine)?.join("topologies").join(machine))
}

fn answers(folder: &Path) -> Vec<Row> {
    rows(&folder.join("cpus.csv"))
}

/// The machine of a captured sysfs.
fn unpacked(folder: &Path) -> Machine {
    let machine = Machine::empty();
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(folder.join("sysfs.tar.gz"))
        .arg("-C")
        .arg(machine.root())
        .status()
        .unwrap();
    assert!(tar.success());
    machine
}

/// A machine of a CPUID dump, with the answer.
fn from_cpuid(name: &str) -> Option<(Machine, Vec<Row>)> {
    let folder = folder(name)?;
    let dump = Dump::read(&folder.join("cpuid.csv"));
    Some((dump.machine(), answers(&folder)))
}

/// What the detection calls a core type that is `kind` in the answers.
fn name_of(kind: &str) -> &str {
    match kind {
        "X925" => "big",
        "A725" => "LITTLE",
        "LPE" => "LP-E",
        same => same,
    }
}

/// Two CPUs must be of one set by `ours` exactly where they are by `theirs`.
#[track_caller]
fn assert_alike<A: PartialEq, B: PartialEq>(
    what: &str,
    topology: &Topology,
    ours: impl Fn(&Cpu) -> A,
    theirs: impl Fn(&Cpu) -> B,
) {
    for a in &topology.cpus {
        for b in &topology.cpus {
            let (same, right) = (ours(a) == ours(b), theirs(a) == theirs(b));
            assert_eq!(same, right, "{what} of CPUs {} and {}", a.id, b.id);
        }
    }
}

/// Core types and cores as in the answer; the E cores' clusters too, where modules are known.
#[track_caller]
fn assert_answer(topology: &Topology, answers: &[Row]) {
    assert_sound(topology);
    assert_eq!(topology.cpus.len(), answers.len());
    assert_eq!(topology.disagreements, [""; 0]);
    let of = |cpu: &Cpu, column: &str| answers[cpu.id as usize].get(column).cloned();
    for cpu in &topology.cpus {
        let kind = of(cpu, "core_type").unwrap();
        let found = &topology.types[cpu.core_type];
        assert_eq!(found.name, name_of(&kind), "CPU {}", cpu.id);
        assert_eq!(found.low_power_island, kind == "LPE", "CPU {}", cpu.id);
    }
    let core = |cpu: &Cpu| (of(cpu, "package"), of(cpu, "core"));
    assert_alike("the cores", topology, |cpu| cpu.core, core);
    let module = |cpu: &Cpu| of(cpu, "module").filter(|module| !module.is_empty());
    if module(&topology.cpus[0]).is_some() {
        // A P core is a module of its own, and P cores share no more than the LLC.
        let p_is_one = |cpu: &Cpu, set: String| match cpu.core_type {
            0 => String::new(),
            _ => set,
        };
        let ours = |cpu: &Cpu| p_is_one(cpu, cpu.domain.to_string());
        let theirs = |cpu: &Cpu| p_is_one(cpu, module(cpu).unwrap());
        assert_alike("the clusters", topology, ours, theirs);
    }
}

/// What was captured is read as it is: lists and numbers of each CPU.
#[track_caller]
fn assert_read(machine: &Machine, answers: &[Row]) {
    let facts = machine.sysfs().facts().unwrap();
    let list = |cpus: &Option<Vec<u32>>| cpulist::format(cpus.as_deref().unwrap());
    let number = |number: Option<u32>| number.map(|n| n.to_string()).unwrap_or_default();
    for (cpu, answer) in facts.cpus.iter().zip(answers) {
        for (column, value) in [
            ("cpu", cpu.id.to_string()),
            ("package", cpu.package.to_string()),
            ("smt_siblings", cpulist::format(&cpu.siblings)),
            ("l2_cpus", list(&cpu.l2)),
            ("l3_cpus", list(&cpu.l3)),
            ("max_khz", number(cpu.max_freq_khz)),
            ("capacity", number(cpu.capacity)),
            ("cppc_highest", number(cpu.highest_perf)),
        ] {
            assert_eq!(value, answer[column], "{column} of CPU {}", cpu.id);
        }
        let cluster = |id: u32| &answers[id as usize]["cluster"];
        let alike = facts.online().into_iter();
        let alike: Vec<u32> = alike.filter(|&i| cluster(i) == cluster(cpu.id)).collect();
        assert_eq!(cpu.cluster.as_ref(), Some(&alike), "CPU {}", cpu.id);
    }
}

/// The machine of a captured sysfs, read and detected as its answer has it, and that answer.
#[track_caller]
fn from_sysfs(name: &str) -> Option<(Machine, Vec<Row>, Topology)> {
    let folder = folder(name)?;
    let (machine, answers) = (unpacked(&folder), answers(&folder));
    assert_read(&machine, &answers);
    let topology = machine.topology();
    assert_answer(&topology, &answers);
    Some((machine, answers, topology))
}

#[test]
fn favoured_p_cores_of_a_1370p_are_no_third_type() {
    let Some((machine, answers, topology)) = from_sysfs("intel-i7-1370p") else {
        return;
    };
    // No PMU was captured; each number alone is enough.
    assert_eq!(
        topology.summary(),
        "6P (12 threads) + 8E in 2 clusters, from CPPC highest_perf"
    );
    assert_eq!(domains(&topology), "P 0-11, E 12-15, E 16-19");
    assert_eq!(capacities(&topology), [1024, 1024 * 39 / 64]);
    machine.remove(&format!("{CPU}{{0-19}}/acpi_cppc/highest_perf"));
    let by_clock = machine.topology();
    assert_eq!(by_clock.source, Source::MaxFreq);
    assert_answer(&by_clock, &answers);
}

#[test]
fn the_clusters_of_a_gb10_hold_both_types() {
    let Some((machine, answers, topology)) = from_sysfs("nvidia-gb10") else {
        return;
    };
    // Five capacities, in two groups that are 36 % apart.
    assert_eq!(
        topology.summary(),
        "10 big in 2 clusters + 10 LITTLE in 2 clusters, from cpu_capacity"
    );
    assert_eq!(
        domains(&topology),
        "big 5-9, big 15-19, LITTLE 0-4, LITTLE 10-14"
    );
    assert_eq!(capacities(&topology), [1024, 1024 * 731 / 1017]);
    let llcs: Vec<usize> = topology.cpus.iter().map(|cpu| cpu.llc).collect();
    assert_eq!(llcs, [[0; 10], [1; 10]].concat());
    assert_eq!(topology.notes, [""; 0]);
    for file in ["cpu_capacity", "acpi_cppc/highest_perf"] {
        machine.remove(&format!("{CPU}{{0-19}}/{file}"));
        assert_answer(&machine.topology(), &answers);
    }
    assert_eq!(machine.topology().source, Source::MaxFreq);
}

/// Each file on CPUs' topology and caches that `one` has, `other` has with the same contents. How
/// many there are.
#[track_caller]
fn same_files(one: &Machine, other: &Machine) -> usize {
    let mut files = 0;
    for cpu in cpulist::parse(&read(one, "sys/devices/system/cpu/online")).unwrap() {
        let caches = (0..4).map(|index| format!("cache/index{index}"));
        for folder in caches.chain(["topology".to_string()]) {
            let folder = format!("{CPU}{cpu}/{folder}");
            let entries = fs::read_dir(one.root().join(&folder)).into_iter().flatten();
            for file in entries {
                let file = format!("{folder}/{}", file.unwrap().file_name().display());
                assert_eq!(read(one, &file), read(other, &file), "{file}");
                files += 1;
            }
        }
    }
    files
}

fn read(machine: &Machine, file: &str) -> String {
    let text = fs::read_to_string(machine.root().join(file));
    text.unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// So that what is found on the dumps says something of real machines: another i7-1370P's CPUID
/// makes the files that were captured on one.
#[test]
fn files_made_of_cpuid_are_those_that_a_kernel_showed() {
    let (Some((made, _)), Some(captured)) =
        (from_cpuid("cpuid-i7-1370p"), folder("intel-i7-1370p"))
    else {
        return;
    };
    assert_eq!(same_files(&made, &unpacked(&captured)), 20 * (5 + 4 * 5));
}

#[test]
fn the_fixture_of_a_285h_is_as_its_cpuid_says() {
    let Some((made, _)) = from_cpuid("cpuid-ultra-9-285h") else {
        return;
    };
    let fixture = Machine::new("ultra-9-285h");
    assert_eq!(same_files(&fixture, &made), 16 * (5 + 4) + 14 * 4);
    let pmus = |machine: &Machine| machine.sysfs().facts().unwrap().pmus;
    assert_eq!(pmus(&fixture), pmus(&made));
}

/// CPUID gives PMUs and caches, but no number that says how much faster a core is.
#[track_caller]
fn assert_intel(name: &str, summary: &str, expected_pmus: &[&str], expected_domains: &str) {
    let Some((machine, answers)) = from_cpuid(name) else {
        return;
    };
    let topology = machine.topology();
    assert_answer(&topology, &answers);
    assert_eq!(topology.summary(), summary);
    assert_eq!(pmus(&topology), expected_pmus);
    assert_eq!(domains(&topology), expected_domains);
    assert_eq!(topology.capacity_source, None);
    assert_noted(&topology, "no capacities known");
    // P and E share the L3, which the LP-E cores do not reach.
    let on_island = |cpu: &Cpu| topology.types[cpu.core_type].low_power_island;
    assert_alike("the LLC", &topology, |cpu| cpu.llc, on_island);
}

#[test]
fn cpuid_of_alder_and_raptor_lake() {
    assert_intel(
        "cpuid-i9-12900k",
        "8P (16 threads) + 8E in 2 clusters, from the hybrid PMUs",
        &["cpu_core", "cpu_atom"],
        "P 0-15, E 16-19, E 20-23",
    );
    assert_intel(
        "cpuid-i7-1370p",
        "6P (12 threads) + 8E in 2 clusters, from the hybrid PMUs",
        &["cpu_core", "cpu_atom"],
        "P 0-11, E 12-15, E 16-19",
    );
}

/// Leaf 1Ah and the PMU call the LP-E cores what they call the E cores.
#[test]
fn cpuid_of_meteor_lake_and_its_like() {
    assert_intel(
        "cpuid-ultra-7-155h",
        "6P (12 threads) + 8E in 2 clusters + 2 LP-E, from the hybrid PMUs and the lack of an L3",
        &["cpu_core", "cpu_atom", "cpu_atom"],
        "P 0-1,10-19, E 2-5, E 6-9, LP-E 20-21",
    );
    assert_intel(
        "cpuid-ultra-5-225u",
        "2P (4 threads) + 8E in 2 clusters + 2 LP-E, from the hybrid PMUs and the lack of an L3",
        &["cpu_core", "cpu_atom", "cpu_atom"],
        "P 0-3, E 4-7, E 8-11, LP-E 12-13",
    );
}

/// Here the kernel tells the LP-E cores by their native model.
#[test]
fn cpuid_of_arrow_lake() {
    assert_intel(
        "cpuid-ultra-9-285h",
        "6P + 8E in 2 clusters + 2 LP-E, from the hybrid PMUs",
        &["cpu_core", "cpu_atom", "cpu_lowpower"],
        "P 0-1,10-13, E 2-5, E 6-9, LP-E 14-15",
    );
    assert_intel(
        "cpuid-ultra-7-265k",
        "8P + 12E in 3 clusters, from the hybrid PMUs",
        &["cpu_core", "cpu_atom"],
        "P 0-1,6-9,18-19, E 2-5, E 10-13, E 14-17",
    );
}

/// Leaf 80000026h knows Zen 5c, but the kernel shows that in debugfs alone. What it makes of CPUID
/// elsewhere is one PMU and two L3s, which a CPU with twice the same cores has as well.
#[test]
fn cpuid_of_zen_5_and_5c_needs_a_clock() {
    let Some((machine, answers)) = from_cpuid("cpuid-ryzen-ai-9-hx-370") else {
        return;
    };
    let topology = machine.topology();
    assert_eq!(types(&topology), "cpu 0-23");
    assert_eq!(topology.source, Source::AllSame);
    assert_eq!(domains(&topology), "cpu 0-7, cpu 8-23");
    let size = |cpu: u32| read(&machine, &format!("{CPU}{cpu}/cache/index3/size"));
    assert_eq!((size(0), size(8)), ("16384K\n".into(), "8192K\n".into()));

    // AMD's published clocks, by hand: not in the capture.
    machine.set(&format!("{CPU}{{0-7}}/cpufreq/cpuinfo_max_freq"), "5100000");
    machine.set(
        &format!("{CPU}{{8-23}}/cpufreq/cpuinfo_max_freq"),
        "3300000",
    );
    let topology = machine.topology();
    assert_answer(&topology, &answers);
    assert_eq!(
        topology.summary(),
        "4P (8 threads) + 8E (16 threads), from the maximum frequency"
    );
}
