// SPDX-License-Identifier: GPL-2.0-only
//! Hardware counters inside the scheduler, in the virtual hybrid machine (`make test`),
//! where the truth is known: `hybrid totals` prints what the machine itself has counted.

mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use support::*;

const SAMPLES: &str = "/tmp/samples";

/// A line of `--samples`, as far as these tests look at it.
struct Sample {
    tid: u64,
    core_type: u64,
    set: u64,
    run_ns: f64,
    discarded_ns: f64,
    counts: Vec<f64>,
}

impl Sample {
    fn ipc(&self) -> f64 {
        self.counts[0] / self.counts[1]
    }
}

fn samples() -> Vec<Sample> {
    let text = fs::read_to_string(SAMPLES).unwrap();
    let parse = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| value[key].as_f64().unwrap();
        let counts = value["counts"].as_array().unwrap();
        Sample {
            tid: number("tid") as u64,
            core_type: number("core_type") as u64,
            set: number("set") as u64,
            run_ns: number("run_ns"),
            discarded_ns: number("discarded_ns"),
            counts: counts.iter().map(|c| c.as_f64().unwrap()).collect(),
        }
    };
    text.lines().map(parse).collect()
}

fn of(child: &Child) -> Vec<Sample> {
    let mut all = samples();
    all.retain(|s| s.tid == u64::from(child.id()));
    all
}

fn sum(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(value).sum()
}

fn program(args: &str) -> Child {
    Command::new("hetero-programs")
        .args(args.split(' '))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn counting(more: &[&str]) -> Scheduler {
    let base = ["--samples", SAMPLES, "--user-only"];
    Scheduler::start(&[&base[..], more].concat())
}

/// Instructions in user mode, on all CPUs, since boot.
fn instructions() -> f64 {
    truth().iter().map(|cpu| cpu["instructions"]).sum()
}

/// What `units` of `program` really are, in instructions.
fn work(program_name: &str, units: u32) -> f64 {
    let asking = instructions();
    let before = instructions();
    let args = format!("{program_name} --units {units} --pin 0");
    program(&args).wait().unwrap();
    instructions() - before - (before - asking)
}

/// Waits for the end of all and returns the CPU time, ns, that each had used shortly before.
fn finish(children: &mut [Child]) -> Vec<f64> {
    let mut used = vec![0.0; children.len()];
    while children.iter_mut().any(|c| c.try_wait().unwrap().is_none()) {
        for (used, child) in used.iter_mut().zip(&*children) {
            if let Ok(text) = fs::read_to_string(format!("/proc/{}/schedstat", child.id())) {
                let now: f64 = text.split(' ').next().unwrap().parse().unwrap();
                *used = now.max(*used);
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
    used
}

/// The instructions that samples claim, with what was not counted (a task's first
/// milliseconds) made up for, against the truth.
fn off_by(samples: &[Sample], used_ns: f64, really: f64) -> f64 {
    let counted = sum(samples, |s| s.counts[0]);
    let share = sum(samples, |s| s.run_ns) / used_ns;
    assert!(share > 0.97, "only {share} of the run time was counted");
    (counted / share - really).abs() / really
}

#[test]
fn counts_are_exact_on_each_core_type() {
    let really = work("integer", 2500);
    for cpu in [0, 4] {
        let scheduler = counting(&[]);
        let mut hogs = [program(&format!("integer --units 2500 --pin {cpu}"))];
        let used = finish(&mut hogs);
        scheduler.stop();
        let off = off_by(&of(&hogs[0]), used[0], really);
        println!("\ncpu{cpu}: off by {:.3} %", 100.0 * off);
        assert!(off < 0.01, "cpu{cpu}: off by {off}");
        assert_eq!(sum(&of(&hogs[0]), |s| s.discarded_ns), 0.0);
    }
}

#[test]
fn counts_are_exact_over_migrations_and_switches() {
    let really = work("integer", 2000);
    // Twelve on eight CPUs, swapped 50 times a second.
    let scheduler = counting(&["--policy", "rr", "--swap-ms", "20", "--slice-us", "500"]);
    let mut hogs: Vec<Child> = (0..12).map(|_| program("integer --units 2000")).collect();
    let used = finish(&mut hogs);
    scheduler.stop();
    let both = of(&hogs[0]).iter().any(|s| s.core_type == 0)
        && of(&hogs[0]).iter().any(|s| s.core_type == 1);
    assert!(both, "it did not run on both core types");
    for (hog, used) in hogs.iter().zip(used) {
        let off = off_by(&of(hog), used, really);
        println!("off by {:.3} %", 100.0 * off);
        assert!(off < 0.01, "off by {off}");
    }
}

#[test]
fn a_lone_spinner_gives_a_sample_each_50_ms() {
    let scheduler = counting(&[]);
    let mut hog = program("integer --seconds 6 --warmup 0 --pin 2");
    hog.wait().unwrap();
    scheduler.stop();
    let samples = of(&hog);
    let whole = &samples[1..samples.len() - 1];
    let times: Vec<f64> = samples.iter().map(|s| s.run_ns / 1e6).collect();
    println!("\n{} samples of {times:.1?} ms", samples.len());
    assert!((117..=121).contains(&samples.len()), "{}", samples.len());
    for s in whole {
        assert!((45e6..=55e6).contains(&s.run_ns), "{}", s.run_ns);
    }
    let mean = sum(whole, |s| s.run_ns) / whole.len() as f64;
    assert!((mean - 50e6).abs() < 0.5e6, "{mean}");
}

#[test]
fn nothing_wrong_gets_through_while_others_count() {
    let scheduler = counting(&["--events", "llc-misses,branches,loads"]);
    let mut hog = program("integer --seconds 8 --pin 2");
    thread::sleep(Duration::from_secs(1));
    // Ten events of its own on every CPU, for three seconds.
    let events: Vec<String> = [
        "81d0", "82d0", "c4", "c5", "4f2e", "412e", "1d1", "8d1", "2d1", "10d1",
    ]
    .iter()
    .map(|code| format!("cpu_core/r{code}/"))
    .collect();
    let perf = Command::new("perf")
        .args(["stat", "-a", "-e", &events.join(","), "sleep", "3"])
        .output()
        .unwrap();
    assert!(perf.status.success());
    hog.wait().unwrap();
    scheduler.stop();
    let samples = of(&hog);
    let ipc = samples[1].ipc();
    let discarded = sum(&samples, |s| s.discarded_ns) / 1e9;
    println!("\n{discarded:.2} s not believed");
    for s in samples.iter().filter(|s| s.run_ns > 1e6) {
        assert!((s.ipc() - ipc).abs() < 0.02 * ipc, "{} of {ipc}", s.ipc());
    }
    assert!(discarded > 0.5, "the others did not disturb: {discarded} s");
    assert!(discarded < 4.5, "counting did not come back: {discarded} s");
}

#[test]
fn events_that_do_not_fit_take_turns() {
    let events =
        "llc-references,llc-misses,loads,stores,branches,branch-misses,l1-misses,l2-misses";
    let scheduler = counting(&["--events", events]);
    let mut hog = program("integer --seconds 4 --pin 5");
    hog.wait().unwrap();
    scheduler.stop();
    let samples = of(&hog);
    let under = |set| samples.iter().filter(|s| s.set == set).count();
    assert!(under(0) > 10 && under(1) > 10, "{} {}", under(0), under(1));
    let ipc = samples[1].ipc();
    for s in samples.iter().filter(|s| s.run_ns > 1e6) {
        assert!((s.ipc() - ipc).abs() < 0.02 * ipc, "{} of {ipc}", s.ipc());
    }
}

#[test]
fn realtime_tasks_do_not_disturb() {
    let scheduler = counting(&[]);
    let mut hog = program("integer --seconds 5 --pin 3");
    thread::sleep(Duration::from_millis(500));
    // Runs a few milliseconds, with quite another IPC, many times.
    for _ in 0..25 {
        let mut command = Command::new("hetero-programs");
        command
            .args("branchy --units 3 --pin 3".split(' '))
            .stdout(Stdio::null());
        // SAFETY: one system call on plain values, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let priority = libc::sched_param { sched_priority: 10 };
                match libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            })
        };
        assert!(command.status().unwrap().success());
        thread::sleep(Duration::from_millis(50));
    }
    hog.wait().unwrap();
    scheduler.stop();
    let samples = of(&hog);
    let ipc = samples[1].ipc();
    assert!(samples.len() > 60, "{}", samples.len());
    for s in samples.iter().filter(|s| s.run_ns > 5e6) {
        assert!((s.ipc() - ipc).abs() < 0.02 * ipc, "{} of {ipc}", s.ipc());
    }
}

#[test]
fn counters_come_back_after_hotplug() {
    let online = "/sys/devices/system/cpu/cpu6/online";
    let scheduler = counting(&[]);
    fs::write(online, "0").unwrap();
    thread::sleep(Duration::from_secs(1));
    fs::write(online, "1").unwrap();
    wait_until(Duration::from_secs(30), "attached again", || {
        state() == "enabled"
    });
    thread::sleep(Duration::from_secs(1));
    let mut hog = program("integer --seconds 2 --pin 6");
    hog.wait().unwrap();
    scheduler.stop();
    assert!(of(&hog).len() > 30, "{}", of(&hog).len());
}

#[test]
fn tasks_that_do_little_cost_nothing() {
    let scheduler = counting(&[]);
    // A hundredth of a CPU, for long enough to be known.
    let mut lazy = Command::new("sh")
        .args(["-c", "for i in $(seq 60); do :; sleep 0.05; done"])
        .spawn()
        .unwrap();
    lazy.wait().unwrap();
    scheduler.stop();
    let counted = sum(&of(&lazy), |s| s.run_ns);
    assert!(counted < 20e6, "{counted} ns of a lazy task were counted");
}
