// SPDX-License-Identifier: GPL-2.0-only
//! What each kind of machine can count, from its sysfs and `/proc`.

use crate::fixtures::Machine as Tree;
use scx_hetero::pmu::{Counters, Event, MachinePmus, Meaning, Pmu, Space, availability, plan};

const DEVICES: &str = "sys/bus/event_source/devices";

fn cpuinfo(vendor: &str, family: u32, model: u32) -> String {
    let block = |cpu| {
        format!(
            "processor\t: {cpu}\nvendor_id\t: {vendor}\ncpu family\t: {family}\n\
             model\t\t: {model}\nmodel name\t: some CPU\nflags\t\t: fpu hypervisor\n\n"
        )
    };
    (0..64).map(block).collect()
}

/// Gives a PMU the files that Linux gives those of x86.
fn x86_files(tree: &Tree, pmu: &str, event_bits: &str) {
    let files = [
        ("format/event", event_bits),
        ("format/umask", "config:8-15"),
        ("format/inv", "config:23"),
        ("format/cmask", "config:24-31"),
        ("format/ldlat", "config1:0-15"),
        ("events/instructions", "event=0xc0"),
        ("events/cpu-cycles", "event=0x3c"),
        ("events/ref-cycles", "event=0x00,umask=0x03"),
        ("events/cache-references", "event=0x2e,umask=0x4f"),
        ("events/cache-misses", "event=0x2e,umask=0x41"),
        ("events/branch-instructions", "event=0xc4"),
        ("events/branch-misses", "event=0xc5"),
        ("events/mem-loads.scale", "1"),
    ];
    for (file, contents) in files {
        tree.set(&format!("{DEVICES}/{pmu}/{file}"), contents);
    }
}

fn read(tree: &Tree) -> MachinePmus {
    MachinePmus::read(tree.root())
}

fn hybrid(name: &str, model: u32) -> (Tree, MachinePmus) {
    let tree = Tree::new(name);
    tree.set("proc/cpuinfo", &cpuinfo("GenuineIntel", 6, model));
    for pmu in ["cpu_core", "cpu_atom"] {
        x86_files(&tree, pmu, "config:0-7");
    }
    let machine = read(&tree);
    (tree, machine)
}

fn what(machine: &MachinePmus) -> Vec<(&str, &str, usize)> {
    let pmus = machine.pmus.iter();
    pmus.map(|pmu| (pmu.name.as_str(), pmu.microarchitecture(), pmu.cpus.len()))
        .collect()
}

fn code(pmu: &Pmu, event: &str) -> Result<(u64, String), String> {
    let encoding = pmu.encode(&event.parse().unwrap());
    let encoding = encoding.map_err(|error| format!("{error:#}"))?;
    Ok((encoding.config, encoding.name.to_string()))
}

#[test]
fn intel_hybrids_have_a_table_for_each_pmu() {
    let (_tree, machine) = hybrid("i7-1260p", 0x9a);
    assert_eq!(
        what(&machine),
        [("cpu_atom", "gracemont", 8), ("cpu_core", "golden-cove", 8)]
    );
    assert_eq!(machine.pmu_of(0).unwrap().name, "cpu_core");
    assert_eq!(machine.pmu_of(15).unwrap().name, "cpu_atom");
    let (p, e) = (
        machine.pmu("cpu_core").unwrap(),
        machine.pmu("cpu_atom").unwrap(),
    );
    assert_eq!((p.type_id, e.type_id), (4, 10));
    assert_eq!(
        p.counters,
        Counters {
            general: 8,
            fixed: 4
        }
    );
    assert_eq!(
        e.counters,
        Counters {
            general: 6,
            fixed: 3
        }
    );
    // The same meaning, another event.
    let p_misses = p.meaning(Meaning::L1Misses).unwrap();
    let e_misses = e.meaning(Meaning::L1Misses).unwrap();
    assert_eq!((p_misses.config, e_misses.config), (0x151, 0x8d1));

    // The LP-E cores of Meteor Lake are E cores to its PMUs.
    let (_tree, machine) = hybrid("ultra-7-155h", 0xaa);
    assert_eq!(
        what(&machine),
        [
            ("cpu_atom", "crestmont", 10),
            ("cpu_core", "redwood-cove", 12)
        ]
    );
}

#[test]
fn raw_events_in_every_spelling() {
    let (_tree, machine) = hybrid("i7-1260p", 0x9a);
    let p = machine.pmu("cpu_core").unwrap();
    let misses = |text: &str| Ok((0x412e, text.to_string()));
    for text in [
        "r412e",
        "0x412e",
        "cache-misses",
        "event=0x2e,umask=0x41",
        "cpu_core/event=0x2e,umask=0x41/",
        "cpu_core/cache-misses/",
    ] {
        assert_eq!(code(p, text), misses(text));
    }
    assert_eq!(
        code(p, "longest_lat_cache.miss"),
        misses("LONGEST_LAT_CACHE.MISS")
    );
    let inverted = code(p, "event=0x9c,umask=1,cmask=6,inv").unwrap();
    assert_eq!(inverted.0, 0x680019c);
    // The raw code of a table's row has its constraints.
    let loads = p.encode(&"r81d0".parse().unwrap()).unwrap();
    assert_eq!(loads.general, 0xf);

    assert_eq!(
        code(p, "cpu_atom/event=0x2e/").unwrap_err(),
        "'cpu_atom/event=0x2e/' is no event of cpu_core: it is one of cpu_atom"
    );
    let error = code(p, "umask=0x123").unwrap_err();
    assert!(error.contains("'umask' has 8 bits"), "{error}");
    let error = code(p, "cache-mises").unwrap_err();
    assert!(error.contains("/cpu_core/events"), "{error}");
    let error = code(machine.pmu("cpu_atom").unwrap(), "fp-ops").unwrap_err();
    assert_eq!(error, "cpu_atom (gracemont) cannot count fp-ops");
}

#[test]
fn amd_generations_are_told_by_model() {
    for (name, family, model, expected) in [
        ("ryzen-7950x", 0x19, 0x61, "zen4"),
        ("epyc-9354p", 0x19, 0x11, "zen4"),
        ("ryzen-ai-9-hx-370", 0x1a, 0x24, "zen5"),
    ] {
        let tree = Tree::new(name);
        tree.set("proc/cpuinfo", &cpuinfo("AuthenticAMD", family, model));
        tree.set("proc/sys/kernel/nmi_watchdog", "1");
        x86_files(&tree, "cpu", "config:0-7,32-35");
        let machine = read(&tree);
        let cpu = machine.pmu("cpu").unwrap();
        assert_eq!(cpu.microarchitecture(), expected);
        assert_eq!(cpu.cpus.len(), tree.topology().cpus.len());
        assert_eq!(
            cpu.counters,
            Counters {
                general: 6,
                fixed: 0
            }
        );
        assert!(cpu.watchdog);
        assert_eq!(code(cpu, "event=0x120,umask=1").unwrap().0, 0x1_0000_0120);
        // Five are left: instructions, cycles and three more at once.
        let wished = ["l1-misses", "l2-misses", "llc-misses", "branch-misses"];
        let wished: Vec<Event> = wished.map(|name| name.parse().unwrap()).into();
        assert_eq!(plan(&wished, cpu).sets.len(), 2);
        assert_eq!(plan(&wished[..3], cpu).sets.len(), 1);

        // A kernel whose CPUs watch each other takes no counter.
        tree.set("proc/sys/kernel/osrelease", "6.18.15");
        tree.set(
            "boot/config-6.18.15",
            "CONFIG_HARDLOCKUP_DETECTOR_BUDDY=y\n",
        );
        let machine = read(&tree);
        let cpu = machine.pmu("cpu").unwrap();
        assert!(!cpu.watchdog);
        assert_eq!(plan(&wished, cpu).sets.len(), 1);
    }
}

#[test]
fn arm_pmus_are_told_by_name_or_by_the_cores_registers() {
    let machine = read(&Tree::new("odroid-xu4"));
    assert_eq!(
        what(&machine),
        [
            ("armv7_cortex_a15", "cortex-a15", 4),
            ("armv7_cortex_a7", "cortex-a7", 4)
        ]
    );
    let little = machine.pmu("armv7_cortex_a7").unwrap();
    assert_eq!(
        little.counters,
        Counters {
            general: 4,
            fixed: 1
        }
    );
    assert_eq!(little.meaning(Meaning::Cycles).unwrap().config, 0xff);
    assert_eq!(little.meaning(Meaning::FpOps), None);

    let tree = Tree::new("phone-4-2-2");
    tree.remove(&format!("{DEVICES}/armv8_pmuv3/cpus"));
    for (name, cpus, midr) in [
        ("armv8_pmuv3_0", "0-3", "0x00000000411fd050"),
        ("armv8_pmuv3_1", "4-5", "0x00000000411fd410"),
        ("armv8_pmuv3_2", "6-7", "0x00000000411fd440"),
    ] {
        tree.set(&format!("{DEVICES}/{name}/cpus"), cpus);
        tree.set(&format!("{DEVICES}/{name}/type"), "9");
        let path = format!(
            "{}{{{cpus}}}/regs/identification/midr_el1",
            crate::fixtures::CPU
        );
        tree.set(&path, midr);
    }
    assert_eq!(
        what(&read(&tree)),
        [
            ("armv8_pmuv3_0", "cortex-a55", 4),
            ("armv8_pmuv3_1", "cortex-a78", 2),
            ("armv8_pmuv3_2", "cortex-x1", 2)
        ]
    );
    // The chip was built without what this event of the architecture counts.
    tree.set(
        &format!("{DEVICES}/armv8_pmuv3_1/events/inst_retired"),
        "event=0x008",
    );
    tree.set(
        &format!("{DEVICES}/armv8_pmuv3_1/events/cpu_cycles"),
        "event=0x011",
    );
    let machine = read(&tree);
    let mid = machine.pmu("armv8_pmuv3_1").unwrap();
    assert_eq!(mid.meaning(Meaning::LlcMisses), None);
    assert!(mid.meaning(Meaning::Instructions).is_some());
    assert!(mid.meaning(Meaning::FpOps).is_some());
}

#[test]
fn an_unknown_microarchitecture_gets_what_the_kernel_maps() {
    let (tree, machine) = hybrid("i7-1260p", 0xfe);
    let e = machine.pmu("cpu_atom").unwrap();
    assert_eq!(e.microarchitecture(), "unknown");
    // What sysfs lists,
    assert_eq!(
        code(e, "llc-misses"),
        Ok((0x412e, "cache-misses".to_string()))
    );
    assert_eq!(code(e, "ref-cycles"), Ok((0x300, "ref-cycles".to_string())));
    // the kernel's own events, on this PMU,
    let misses = e.meaning(Meaning::L1Misses).unwrap();
    assert_eq!(misses.space, Space::Cache);
    assert_eq!(
        (misses.config, misses.name.as_ref()),
        (0xa_0001_0000, "L1-dcache-load-misses")
    );
    // and nothing else.
    assert_eq!(e.meaning(Meaning::FpOps), None);
    assert_eq!(
        code(e, "divider").unwrap_err(),
        "cpu_atom (unknown) cannot count divider"
    );
    // With one PMU the kernel's events carry none.
    tree.remove(&format!("{DEVICES}/cpu_core/cpus"));
    let machine = read(&tree);
    let only = machine.pmu("cpu_atom").unwrap();
    assert_eq!(only.meaning(Meaning::L1Misses).unwrap().config, 0x1_0000);
    // Four general counters are taken for granted.
    let wished: Vec<Event> = ["branches", "branch-misses", "llc-misses"]
        .map(|name| name.parse().unwrap())
        .into();
    assert_eq!(plan(&wished[..2], only).sets.len(), 1);
    assert_eq!(plan(&wished, only).sets.len(), 2);
}

#[test]
fn a_virtual_machine_without_a_pmu_has_nothing_and_says_so() {
    let tree = Tree::empty();
    tree.set("sys/devices/system/cpu/online", "0-3");
    tree.set("proc/cpuinfo", &cpuinfo("GenuineIntel", 6, 0x9a));
    tree.set(&format!("{DEVICES}/software/type"), "1");
    let machine = read(&tree);
    assert!(machine.pmus.is_empty());
    assert!(machine.pmu_of(0).is_none());
    let line = availability(&machine).unwrap_err();
    assert!(
        line.starts_with("No counters: ") && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn cpus_that_are_offline_are_not_counted_on() {
    let (tree, _) = hybrid("i7-1260p", 0x9a);
    tree.offline("8-9");
    let machine = read(&tree);
    assert_eq!(
        machine.pmu("cpu_atom").unwrap().cpus,
        [10, 11, 12, 13, 14, 15]
    );
    assert!(machine.pmu_of(8).is_none());
    tree.offline("10-15");
    assert_eq!(what(&read(&tree)), [("cpu_core", "golden-cove", 8)]);
}
