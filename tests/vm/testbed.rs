// SPDX-License-Identifier: GPL-2.0-only
//! The virtual hybrid machine keeps its promises: `make test` runs these inside
//! it, under the kernel's own scheduler, on `alder-lake-4p4e`.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{binary, pin, truth};

/// A CPU of each core type.
const P: usize = 0;
const E: usize = 4;

pub(crate) fn run(program: &str, args: &[&str]) -> (String, String) {
    let output = Command::new(program).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}\n{stdout}{stderr}",
        output.status
    );
    (stdout, stderr)
}

pub(crate) fn sysfs(path: &str) -> String {
    let path = format!("/sys/{path}");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.trim().to_string()
}

/// `perf stat` of a CPU while COMMAND runs: counts by event, as it was asked for.
fn perf_stat(cpu: usize, events: &[&str], command: &[&str]) -> HashMap<String, f64> {
    let (cpu, list) = (cpu.to_string(), events.join(","));
    let perf = ["stat", "-x,", "-C", &cpu, "-e", &list];
    let (_, stderr) = run("perf", &[&perf[..], command].concat());
    let counts = stderr.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        Some((fields.get(2)?.to_string(), fields[0].parse().ok()?))
    });
    counts.collect()
}

/// Units per second of a program pinned to a CPU.
fn rate(program: &str, cpu: usize, seconds: &str) -> f64 {
    let cpu = cpu.to_string();
    let args = [program, "--pin", &cpu, "--seconds", seconds, "--json"];
    let (line, _) = run("hetero-programs", &args);
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    value["rate"].as_f64().unwrap()
}

fn off_by(a: f64, b: f64) -> f64 {
    (a - b).abs() / b
}

/// Frequency invariance, and all else that EAS takes; it is off while intel_pstate is active, as on real CPUs.
#[test]
fn linux_follows_clocks_and_can_have_energy_aware_scheduling() {
    let aware = || fs::read_to_string("/proc/sys/kernel/sched_energy_aware").unwrap();
    let driver = "/sys/devices/system/cpu/intel_pstate/status";
    assert_eq!(aware().trim(), "");
    fs::write(driver, "passive").unwrap();
    let policies = fs::read_dir("/sys/devices/system/cpu/cpufreq").unwrap();
    let governors = policies.map(|policy| policy.unwrap().path().join("scaling_governor"));
    let governors = governors.filter(|governor| governor.exists());
    governors.for_each(|governor| fs::write(governor, "schedutil").unwrap());
    // A thread of the kernel's looks whether it can be had.
    let is_on = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        aware().trim() == "1"
    });
    fs::write(driver, "active").unwrap();
    assert!(is_on);
}

#[test]
fn linux_finds_both_pmus_and_both_capacities_by_itself() {
    assert_eq!(sysfs("bus/event_source/devices/cpu_core/cpus"), "0-3");
    assert_eq!(sysfs("bus/event_source/devices/cpu_atom/cpus"), "4-7");
    let capacity = |cpu| -> u32 {
        let path = format!("devices/system/cpu/cpu{cpu}/cpu_capacity");
        sysfs(&path).parse().unwrap()
    };
    assert_eq!(capacity(P), 1024);
    assert!((500..700).contains(&capacity(E)), "{}", capacity(E));
    // An L2 of its own on P; one for four E; the L3 is all CPUs'.
    let shared = |cpu, index| {
        let path = format!("devices/system/cpu/cpu{cpu}/cache/index{index}/shared_cpu_list");
        sysfs(&path)
    };
    assert_eq!(shared(P, 2), "0");
    assert_eq!(shared(E, 2), "4-7");
    assert_eq!(shared(E, 3), "0-7");
}

/// Runs `stream` on a CPU, with `perf stat` counting events: each must be what the machine has
/// counted by another name. Call it from another CPU.
pub(crate) fn counts_are_true(cpu: usize, pmu: &str, events: &[(&str, &str)]) {
    let asked: Vec<String> = events.iter().map(|(e, _)| format!("{pmu}/{e}/u")).collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let number = cpu.to_string();
    let command = [
        "hetero-programs",
        "stream",
        "--pin",
        &number,
        "--units",
        "200",
    ];
    // Asking costs a little, each time the same.
    let asking = truth()[cpu].clone();
    let before = truth()[cpu].clone();
    let counted = perf_stat(cpu, &asked, &command);
    let after = truth()[cpu].clone();
    for &(event, name) in events {
        let real = after[name] - before[name] - (before[name] - asking[name]);
        // Some tools leave the /u out when they print the event.
        let count = counted
            .iter()
            .find(|(e, _)| e.starts_with(&format!("{pmu}/{event}/")))
            .map(|(_, n)| *n)
            .unwrap_or_else(|| panic!("{event} was not counted: {counted:?}"));
        let slack = 0.001 * real + 500.0;
        assert!(
            (count - real).abs() < slack,
            "stream on {pmu}: {event} {count}, really {real}"
        );
    }
    assert!(after["instructions"] - before["instructions"] > 50e6);
}

#[test]
fn perf_stat_agrees_with_what_the_machine_has_counted() {
    pin(0, &[1]); // all but the program, which pins itself
    for (cpu, pmu) in [(P, "cpu_core"), (E, "cpu_atom")] {
        let events = [
            ("instructions", "instructions"),
            ("branches", "branches"),
            ("branch-misses", "branch-misses"),
            ("cycles", "cycles"),
            ("cache-references", "l2-misses"),
            ("cache-misses", "llc-misses"),
        ];
        counts_are_true(cpu, pmu, &events);
    }
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn user_and_kernel_mode_are_counted_apart() {
    // A program that does nothing but compute, and one that lives in the kernel.
    let events = ["cpu_core/instructions/u", "cpu_core/instructions/k"];
    let counts = |command: &[&str]| {
        let n = perf_stat(P, &events, command);
        (n[events[0]], n[events[1]])
    };
    let (user, kernel) = counts(&["hetero-programs", "integer", "--pin", "0", "--units", "100"]);
    assert!(user > 50.0 * kernel, "{user} user, {kernel} kernel");
    let copy = "dd if=/dev/zero of=/dev/null bs=1 count=20000";
    let (user, kernel) = counts(&["taskset", "-c", "0", "sh", "-c", copy]);
    assert!(kernel > 2.0 * user, "{user} user, {kernel} kernel");
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn more_events_than_counters_take_turns() {
    // Seven on the six general counters of an E core; these have no fixed one.
    let raw = ["81d0", "82d0", "c4", "c5", "4f2e", "412e", "1d1"];
    let events: Vec<String> = raw.iter().map(|r| format!("cpu_atom/r{r}/u")).collect();
    let args = ["hetero-programs", "sort", "--pin", "4", "--units", "150"];
    let stat = |n: usize| {
        let list = events[..n].join(",");
        let args = [&["stat", "-x,", "-C", "4", "-e", &list][..], &args].concat();
        let shares = run("perf", &args).1;
        let share = |l: &str| l.split(',').nth(4).and_then(|f| f.parse::<f64>().ok());
        shares.lines().filter_map(share).collect::<Vec<_>>()
    };
    // The watchdog of the kernel keeps one for itself.
    assert!(stat(5).iter().all(|&share| share == 100.0), "{:?}", stat(5));
    let shared = stat(7);
    assert!(shared.iter().all(|&s| 30.0 < s && s < 99.0), "{shared:?}");
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn a_counter_that_overflows_interrupts() {
    for (cpu, pmu) in [(P, "cpu_core"), (E, "cpu_atom")] {
        let event = format!("{pmu}/instructions/u");
        let record = format!("record -q -o /tmp/perf.data -c 1000000 -e {event}");
        let program = format!("hetero-programs integer --pin {cpu} --units 100");
        let program: Vec<&str> = program.split(' ').collect();
        pin(0, &[1]);
        let expected = perf_stat(cpu, &[&event], &program)[&event] / 1e6;
        // perf hears of the program by the event that it counts: start both here.
        pin(0, &[cpu]);
        let args: Vec<&str> = record.split(' ').chain(program).collect();
        run("perf", &args);
        let (samples, _) = run("perf", &["script", "-i", "/tmp/perf.data"]);
        let n = samples.lines().count() as f64;
        assert!(
            (n - expected).abs() < 3.0,
            "{n} samples, expected {expected}"
        );
        let inside = samples
            .lines()
            .filter(|l| l.contains("integer_rounds"))
            .count() as f64;
        assert!(inside > 0.9 * n, "{inside} of {n}:\n{samples}");
    }
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn programs_gain_differently_from_a_p_core() {
    let gain = |program| rate(program, P, "0.3") / rate(program, E, "0.3");
    let (chase, integer, fp) = (gain("chase"), gain("integer"), gain("fp"));
    assert!((0.9..1.3).contains(&chase), "chase: {chase}");
    assert!((1.3..2.2).contains(&integer), "integer: {integer}");
    assert!((2.0..3.2).contains(&fp), "fp: {fp}");
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn the_same_work_takes_the_same_time() {
    for cpu in [P, E] {
        let rates: Vec<f64> = (0..5).map(|_| rate("integer", cpu, "0.2")).collect();
        let spread = rates
            .iter()
            .map(|r| off_by(*r, rates[0]))
            .fold(0.0, f64::max);
        assert!(spread < 0.005, "cpu{cpu}: {rates:?}");
    }
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn sleepers_wake_in_time() {
    // Without the kernel's leave to be 50 us late. What remains is its way from the
    // timer to us, at some 200 MHz.
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let mut late: Vec<Duration> = (0..100)
        .map(|_| {
            let begin = Instant::now();
            std::thread::sleep(Duration::from_millis(3));
            begin.elapsed() - Duration::from_millis(3)
        })
        .collect();
    late.sort();
    println!("\nlate by {:?} (median), {:?} (most)", late[50], late[99]);
    assert!(late[90] < Duration::from_micros(50), "{late:?}");
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn time_is_one_on_all_cpus() {
    // As a program that moves sees it; a CPU may be ahead by 50 us, no more.
    let mut last = Instant::now();
    let mut behind = Duration::ZERO;
    for round in 0..200 {
        let cpu = [0, 5, 2, 7, 1, 6][round % 6];
        pin(0, &[cpu]);
        let now = Instant::now();
        behind = behind.max(last.saturating_duration_since(now));
        last = now;
    }
    println!("\ntime went back by {behind:?}");
    assert!(behind <= Duration::from_micros(50), "{behind:?}");
}

#[test]
fn scx_hetero_finds_the_core_types() {
    let (text, _) = run(&binary(), &["topology"]);
    assert!(text.contains("P") && text.contains("E"), "{text}");
    assert!(text.contains("0-3") && text.contains("4-7"), "{text}");
}
