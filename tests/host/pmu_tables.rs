// SPDX-License-Identifier: GPL-2.0-only
//! Every event code in our tables is the one that the Linux kernel's event lists give for it, in
//! the file of that microarchitecture and, on hybrids, under that core type.
//!
//! The lists are `tools/perf/pmu-events` as the crate `scx_raw_pmu` ships it: a development
//! dependency, of which only the data files are read (its own look-up mixes core types). They do
//! not cover 32-bit ARM: `fixtures/armv7-events.txt` does, and says where it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use nix::errno::Errno;
use scx_hetero::pmu::open::open_all;
use scx_hetero::pmu::sets::{CYCLES, INSTRUCTIONS};
use scx_hetero::pmu::tables::{self, ConfigLayout, EventRow, EventTable, TABLES};
use scx_hetero::pmu::{
    Counter, CounterOptions, Event, MachinePmus, Meaning, Plan, Pmu, Target, availability, plan,
};
use serde_json::Value;

/// Where each table's events are listed: directory below `arch/`, and unit on hybrids.
const LISTS: &[(&str, &[(&str, &str)])] = &[
    (
        "golden-cove",
        &[("x86/alderlake", "cpu_core"), ("x86/sapphirerapids", "")],
    ),
    (
        "redwood-cove",
        &[("x86/meteorlake", "cpu_core"), ("x86/graniterapids", "")],
    ),
    (
        "lion-cove",
        &[("x86/lunarlake", "cpu_core"), ("x86/arrowlake", "cpu_core")],
    ),
    (
        "gracemont",
        &[("x86/alderlake", "cpu_atom"), ("x86/alderlaken", "")],
    ),
    (
        "crestmont",
        &[
            ("x86/meteorlake", "cpu_atom"),
            ("x86/arrowlake", "cpu_lowpower"),
            ("x86/sierraforest", ""),
        ],
    ),
    (
        "skymont",
        &[("x86/lunarlake", "cpu_atom"), ("x86/arrowlake", "cpu_atom")],
    ),
    (
        "ice-lake",
        &[
            ("x86/icelake", ""),
            ("x86/icelakex", ""),
            ("x86/tigerlake", ""),
        ],
    ),
    ("skylake", &[("x86/skylake", ""), ("x86/skylakex", "")]),
    ("zen4", &[("x86/amdzen4", "")]),
    ("zen5", &[("x86/amdzen5", "")]),
    ("cortex-a53", &[("arm64/arm/cortex-a53", "")]),
    ("cortex-a55", &[("arm64/arm/cortex-a55", "")]),
    ("cortex-a57", &[("arm64/arm/cortex-a57-a72", "")]),
    ("cortex-a72", &[("arm64/arm/cortex-a57-a72", "")]),
    ("cortex-a76", &[("arm64/arm/cortex-a76", "")]),
    ("cortex-a78", &[("arm64/arm/cortex-a78", "")]),
    ("cortex-x1", &[("arm64/arm/cortex-x1", "")]),
];

/// `arch/` in the sources of `scx_raw_pmu`.
pub(crate) static ARCH: LazyLock<PathBuf> = LazyLock::new(|| {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--offline"])
        // What other platforms need is not there.
        .args([
            "--filter-platform",
            &format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
        ])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {stderr}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let found = packages
        .iter()
        .find(|p| p["name"] == "scx_raw_pmu")
        .unwrap();
    let manifest = Path::new(found["manifest_path"].as_str().unwrap());
    manifest.with_file_name("arch")
});

/// What an event list says of an event.
#[derive(Clone, Debug, Default, PartialEq)]
struct Listed {
    event: u64,
    umask: u64,
    cmask: u64,
    /// Inverted, edge-triggered or with a register of its own: nothing our rows can say.
    odd: bool,
    counters: Option<u64>,
    fixed: Option<u8>,
}

/// A number; the first of several, as of events with a code for each of their registers.
fn number(text: &str) -> u64 {
    let text = text.split(',').next().unwrap_or_default();
    match text.to_lowercase().strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn listed(entry: &Value) -> Listed {
    let text = |key: &str| entry[key].as_str();
    let value = |key: &str| text(key).map_or(0, number);
    // "0,1,2,3" or "Fixed counter 1"; some lists number the fixed ones from 32.
    let counter = text("Counter").unwrap_or_default();
    let fixed = counter.strip_prefix("Fixed counter ");
    let fixed = fixed.map(|n| n.parse().unwrap());
    let general = counter.split(',').map(|n| n.parse::<u32>().ok());
    let general: Option<Vec<_>> = general.collect();
    Listed {
        event: value("EventCode"),
        umask: value("UMask"),
        cmask: value("CounterMask"),
        odd: ["Invert", "EdgeDetect", "MSRIndex"]
            .iter()
            .any(|key| value(key) != 0),
        counters: general.map(|list| list.iter().map(|n| 1 << n).sum()),
        fixed,
    }
}

/// A list's events by name, of one unit where one is given.
fn list(dir: &str, unit: &str) -> BTreeMap<String, Listed> {
    let mut events = BTreeMap::new();
    let dir = ARCH.join(dir);
    let files = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for file in files.map(|file| file.unwrap().path()) {
        if file.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let entries: Value = serde_json::from_str(&text).unwrap();
        for entry in entries.as_array().into_iter().flatten() {
            if let Some(name) = entry["ArchStdEvent"].as_str() {
                events.insert(name.to_string(), architectural()[name].clone());
            }
            let Some(name) = entry["EventName"].as_str() else {
                continue;
            };
            if unit.is_empty() || entry["Unit"] == unit {
                events.insert(name.to_string(), listed(entry));
            }
        }
    }
    assert!(events.len() > 20, "{} {unit}: too few", dir.display());
    events
}

/// The events that ARM's architecture defines for all its cores.
fn architectural() -> &'static BTreeMap<String, Listed> {
    static EVENTS: LazyLock<BTreeMap<String, Listed>> = LazyLock::new(|| {
        let files = ["common-and-microarch.json", "recommended.json"];
        let entries = files.map(|file| {
            let text = fs::read_to_string(ARCH.join("arm64").join(file)).unwrap();
            serde_json::from_str::<Vec<Value>>(&text).unwrap()
        });
        let named = entries
            .iter()
            .flatten()
            .map(|e| (e["EventName"].as_str().unwrap().to_string(), listed(e)));
        named.collect()
    });
    &EVENTS
}

/// The names in `A.{B,C}`: `A.B` and `A.C`.
fn names(name: &str) -> Vec<String> {
    match name.split_once('{') {
        None => vec![name.to_string()],
        Some((prefix, rest)) => {
            let parts = rest.strip_suffix('}').unwrap().split(',');
            parts.map(|part| format!("{prefix}{part}")).collect()
        }
    }
}

/// What the list says of a row: its events in one. `None` if the list lacks one of them.
fn wanted(row: &EventRow, events: &BTreeMap<String, Listed>) -> Option<Listed> {
    let mut parts = names(row.name)
        .into_iter()
        .map(|name| events.get(&name).cloned());
    let mut all = parts.next()??;
    for part in parts {
        let part = part?;
        assert_eq!(
            (all.event, all.cmask),
            (part.event, part.cmask),
            "{}",
            row.name
        );
        all.umask |= part.umask;
        all.odd |= part.odd;
    }
    Some(all)
}

fn compare(table: &EventTable, row: &EventRow, dir: &str, listed: &Listed) {
    let what = format!("{} {} in {dir}: {listed:x?}", table.name, row.name);
    let code = (row.event.into(), row.umask.into(), row.cmask.into());
    assert_eq!(code, (listed.event, listed.umask, listed.cmask), "{what}");
    assert!(!listed.odd, "{what}");
    if table.layout == ConfigLayout::Intel {
        let built = (1 << table.counters.general) - 1;
        let (counters, fixed) = match listed.counters {
            Some(counters) => (counters, None),
            None => (0, listed.fixed),
        };
        assert_eq!(row.general & built, counters & built, "{what}");
        assert!(fixed.is_none() || fixed == row.fixed, "{what}");
    }
}

#[test]
fn every_code_is_the_one_the_kernels_lists_give() {
    let mut rows = 0;
    for table in TABLES
        .iter()
        .filter(|t| !["cortex-a7", "cortex-a15"].contains(&t.name))
    {
        let (_, lists) = LISTS.iter().find(|(name, _)| *name == table.name).unwrap();
        let mut unlisted: BTreeSet<_> = table.rows.iter().map(|row| row.name).collect();
        for (dir, unit) in *lists {
            let mut events = list(dir, unit);
            if table.name == "cortex-a53" {
                // Its list names only what the architecture does not.
                events.extend(architectural().clone());
            }
            for row in table.rows {
                if let Some(listed) = wanted(row, &events) {
                    compare(table, row, dir, &listed);
                    unlisted.remove(row.name);
                    rows += 1;
                }
            }
        }
        // Lists have gaps; another with the same cores must fill them.
        assert!(unlisted.is_empty(), "{}: {unlisted:?}", table.name);
    }
    assert!(rows > 300, "{rows}");
}

#[test]
fn codes_of_32_bit_arm_are_the_kernel_drivers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/armv7-events.txt");
    let text = fs::read_to_string(path).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let known: BTreeMap<(&str, &str), u64> = lines
        .map(|line| {
            let [core, name, code] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            ((core, name), number(code))
        })
        .collect();
    for core in ["cortex-a7", "cortex-a15"] {
        for row in tables::by_name(core).unwrap().rows {
            assert_eq!(
                known.get(&(core, row.name)),
                Some(&row.event.into()),
                "{core} {}",
                row.name
            );
        }
    }
}

/// The kernel's driver puts an event on a fixed counter by the code it is asked for by. These are
/// the codes that do (`intel_*_event_constraints` in `arch/x86/events/intel/core.c`).
#[test]
fn intels_fixed_counters_are_asked_for_by_the_codes_the_driver_knows() {
    for table in TABLES.iter().filter(|t| t.layout == ConfigLayout::Intel) {
        let fixed = table
            .rows
            .iter()
            .filter_map(|row| Some((table.encode(row).config, row.fixed?)));
        assert_eq!(
            fixed.collect::<Vec<_>>(),
            [(0xc0, 0), (0x3c, 1), (0x300, 2)],
            "{}",
            table.name
        );
    }
}

/// Moves this thread to a CPU and keeps it busy there: arithmetic, branches, memory.
fn work_on(cpu: u32, memory: &mut [u64]) {
    // SAFETY: `set` outlives the call; CPU_SET stays inside it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
    let (mut state, mut float) = (1_u64, 1.0);
    for _ in 0..500_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        let index = (state >> 33) as usize % memory.len();
        memory[index] += state & 1;
        if state >> 60 < 3 {
            float = (float + index as f64) / 1.5;
        }
    }
    std::hint::black_box((state, float));
}

/// What the virtual hybrid machine itself has counted on a CPU, in both modes; empty elsewhere.
fn truth(cpu: u32) -> BTreeMap<String, f64> {
    let Ok(output) = Command::new("hybrid").arg("totals").output() else {
        return BTreeMap::new();
    };
    let mut sums = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut words = line.split(' ');
        if words.next() == Some(&format!("cpu{cpu}")) {
            for (name, value) in words.filter_map(|word| word.split_once('=')) {
                *sums.entry(name.to_string()).or_insert(0.0) += value.parse::<f64>().unwrap();
            }
        }
    }
    sums
}

/// The kernel agrees that no set has room for an event of a later one, and that a PMU counts on
/// its own CPUs only.
fn refusals(machine: &MachinePmus, pmu: &Pmu, plan: &Plan) {
    let target = Target::Cpu(pmu.cpus[0]);
    for (number, set) in plan.sets.iter().enumerate() {
        for later in &plan.sets[number + 1..] {
            let mut counters = set.counters.clone();
            counters.push(later.counters[CYCLES + 1].clone());
            // The kernel does not know of the watchdog here: it opens what can never count.
            match open_all(pmu, &counters, target, true, CounterOptions::default()) {
                Err(error) => assert_eq!(error.errno, Errno::EINVAL, "{error}"),
                Ok(open) => {
                    let start = open[0].read().unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    assert_eq!(open[0].read().unwrap().since(&start), None);
                    assert!(pmu.watchdog);
                }
            }
        }
    }
    let cycles = &plan.sets[0].counters[CYCLES];
    for other in machine.pmus.iter().filter(|other| other.name != pmu.name) {
        let target = Target::Cpu(other.cpus[0]);
        let error =
            Counter::open(pmu, cycles, target, None, CounterOptions::default()).unwrap_err();
        println!("  {error}");
        assert!(error.to_string().contains("serves CPUs"), "{error}");
    }
}

/// Prints what this machine counts for each meaning, on the first CPU of each PMU. In the virtual
/// machine, as root:
///
/// ```text
/// testbed/boot --machine alder-lake-4p4e --add-bin target/debug/deps/pmu_tables-... -- \
///     pmu_tables-... --ignored --nocapture
/// ```
#[test]
#[ignore = "needs a PMU, and the right to use it"]
fn live_counts() {
    let machine = MachinePmus::detect();
    availability(&machine).unwrap();
    let wished: Vec<Event> = Meaning::all().iter().map(|&m| m.into()).collect();
    let mut memory = vec![0; 1 << 20];
    for pmu in &machine.pmus {
        println!(
            "{}: {}, {} general and {} fixed counters{}",
            pmu.name,
            pmu.microarchitecture(),
            pmu.counters.general,
            pmu.counters.fixed,
            if pmu.watchdog {
                ", one held by the NMI watchdog"
            } else {
                ""
            }
        );
        let plan = plan(&wished, pmu);
        for absent in &plan.absent {
            println!("  {:18} absent: {}", absent.event, absent.why);
        }
        let cpu = pmu.cpus[0];
        refusals(&machine, pmu, &plan);
        for (number, set) in plan.sets.iter().enumerate() {
            work_on(cpu, &mut memory);
            let before = truth(cpu);
            let target = Target::Cpu(cpu);
            let options = CounterOptions::default();
            let counters = open_all(pmu, &set.counters, target, true, options).unwrap();
            let read = || {
                counters
                    .iter()
                    .map(|c| c.read().unwrap())
                    .collect::<Vec<_>>()
            };
            let start = read();
            work_on(cpu, &mut memory);
            let end = read();
            let after = truth(cpu);
            let of = |name: &str| Some(after.get(name)? - before.get(name)?);
            println!("  set {number}, machine's own totals around it:");
            println!(
                "    {:?}",
                after
                    .keys()
                    .map(|k| (k, of(k).unwrap()))
                    .collect::<Vec<_>>()
            );
            for (event, at) in &set.events {
                let count = end[*at].since(&start[*at]);
                let count = count.unwrap_or_else(|| panic!("{event} was not counted throughout"));
                println!(
                    "  {number} {event:18} {count:12} {}",
                    set.counters[*at].name
                );
            }
            let instructions = end[INSTRUCTIONS].since(&start[INSTRUCTIONS]).unwrap();
            assert!(instructions > 5_000_000, "{instructions}");
        }
    }
}
