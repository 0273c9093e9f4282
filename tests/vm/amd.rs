// SPDX-License-Identifier: GPL-2.0-only
//! AMD's virtual machine, `ryzen-ai-9-hx-370-heat`: Linux' own drivers find its core types, caches,
//! counters and preferred cores.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::support::{binary, pin};
use crate::testbed::{counts_are_true, run, sysfs};

/// A CPU of each core type: the second core's, whose rank no heat changes.
const ZEN5: usize = 2;
const ZEN5C: usize = 10;

fn cpu(id: usize, file: &str) -> String {
    sysfs(&format!("devices/system/cpu/cpu{id}/{file}"))
}

#[test]
fn linux_finds_core_types_caches_and_clocks() {
    let (text, _) = run(&binary(), &["topology"]);
    let types = "4P (8 threads) + 8E (16 threads), from CPPC highest_perf";
    assert!(text.starts_with(types), "{text}");
    for (id, kind, siblings, llc, mhz) in [
        (ZEN5, "performance", "2-3", "0-7", 5150..5160),
        (ZEN5C, "efficiency", "10-11", "8-23", 3295..3305),
    ] {
        let topo = format!("/sys/kernel/debug/x86/topo/cpus/{id}");
        let topo = fs::read_to_string(topo).unwrap();
        assert!(topo.contains(kind), "{topo}");
        assert_eq!(cpu(id, "topology/core_cpus_list"), siblings);
        assert_eq!(cpu(id, "cache/index2/shared_cpu_list"), siblings);
        assert_eq!(cpu(id, "cache/index3/shared_cpu_list"), llc);
        let khz: u32 = cpu(id, "cpufreq/cpuinfo_max_freq").parse().unwrap();
        assert!(mhz.contains(&(khz / 1000)), "{khz}");
    }
    assert_eq!(cpu(0, "cpufreq/scaling_driver"), "amd-pstate-epp");
}

#[test]
fn counters_count_what_the_machine_has_counted() {
    pin(0, &[1]); // all but the program, which pins itself
    for id in [ZEN5, ZEN5C] {
        // Five at once: the watchdog of the kernel keeps one of six for itself.
        let first = [
            ("instructions", "instructions"),
            ("cpu-cycles", "cycles"),
            ("branch-instructions", "branches"),
            ("branch-misses", "branch-misses"),
            ("cache-misses", "l2-misses"),
        ];
        counts_are_true(id, "cpu", &first);
        // As scx_hetero counts: fills from anywhere, from beyond the L2 and from beyond the L3.
        let fills = [
            ("rff44", "l1-misses"),
            ("r5e44", "l2-misses"),
            ("r5c44", "llc-misses"),
            ("r100000120", "ref-cycles"),
            ("r76", "cycles"),
        ];
        counts_are_true(id, "cpu", &fills);
    }
}

#[test]
fn a_counter_that_overflows_interrupts_again_and_again() {
    pin(0, &[ZEN5C]);
    let record = "record -q -o /tmp/perf.data -c 1000000 -e instructions:u";
    let program = format!("hetero-programs integer --pin {ZEN5C} --units 100");
    let args: Vec<&str> = record.split(' ').chain(program.split(' ')).collect();
    run("perf", &args);
    let (samples, _) = run("perf", &["script", "-i", "/tmp/perf.data"]);
    let inside = samples.lines().filter(|l| l.contains("integer_rounds"));
    assert!(inside.count() > 50, "{samples}");
}

/// Two of the four fast cores get hot now and then: ACPI says so, and amd-pstate hands on the rank
/// that they then have.
#[test]
fn the_ranking_of_cores_follows_heat() {
    let rank = |id| -> u32 {
        let text = cpu(id, "cpufreq/amd_pstate_prefcore_ranking");
        text.parse().unwrap()
    };
    let wait_for = |wanted| {
        let came = (0..120).any(|_| {
            sleep(Duration::from_millis(500));
            rank(0) == wanted && rank(4) == wanted
        });
        assert!(came, "not {wanted}: {} and {}", rank(0), rank(4));
    };
    let highest = 208u32;
    let hot = (f64::from(highest) * 4000.0 / 5150.0).round() as u32;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for wanted in [hot, highest, hot] {
        wait_for(wanted);
        // Linux 6.16 does not show them.
        if !release.starts_with("6.16.") {
            let priorities = "/sys/kernel/debug/x86/sched_core_priority";
            let priorities = fs::read_to_string(priorities).unwrap();
            let of_first = priorities.lines().nth(1).unwrap();
            assert_eq!(of_first, format!("0\t{wanted}"));
        }
    }
    assert_eq!((rank(2), rank(6), rank(8)), (203, 198, 132));
    // Now two of them are hot, and core types are what they are.
    let (text, _) = run(&binary(), &["topology"]);
    let types = "4P (8 threads) + 8E (16 threads), from the maximum frequency";
    assert!(text.starts_with(types), "{text}");
}
