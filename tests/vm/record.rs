// SPDX-License-Identifier: GPL-2.0-only
//! A recording of real programs in the virtual hybrid machine (`make test`), whose scheduler is
//! killed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::support::*;
use scx_hetero::record::{Input, RecordReader, Tail};
use scx_hetero::replay::{Changes, compare};

const PATH: &str = "/tmp/camps.scxrec";

/// There is something to decide; those that wait for memory are slow to emulate.
fn programs(count: usize) -> Vec<Child> {
    let start = |name: &&str| {
        let mut command = Command::new("hetero-programs");
        command.args([name, "--seconds", "300"]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    PROGRAMS[2..]
        .iter()
        .cycle()
        .take(count)
        .collect::<Vec<_>>()
        .into_iter()
        .map(start)
        .collect()
}

#[test]
fn a_killed_recording_is_readable_to_its_last_second_and_decides_again_what_was_decided() {
    // Before the others, beside which it would take seconds; these are as many as CPUs, and trade.
    let mut scheduler = Scheduler::start(&["--policy", "camps", "--record", PATH]);
    let children = programs(8);
    thread::sleep(s(4));
    scheduler.signal(9);
    scheduler.wait();
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    let mut reader = RecordReader::open(Path::new(PATH)).unwrap();
    let (mut looks, mut samples, mut last_ns) = (0, 0, 0);
    while let Some(input) = reader.next_input().unwrap() {
        match input {
            Input::Look { at_ns, .. } => (looks, last_ns) = (looks + 1, at_ns),
            Input::Sample(_) => samples += 1,
            _ => {}
        }
    }
    let bytes = fs::metadata(PATH).unwrap().len();
    let seconds = last_ns as f64 / 1e9;
    println!(
        "{seconds:.1} s, {looks} looks, {samples} samples, {bytes} bytes: {:.1} kB/s",
        bytes as f64 / 1e3 / seconds
    );
    assert_ne!(reader.tail(), Some(Tail::Whole), "it was killed");
    assert!(seconds > 2.5, "it ends more than a second too early");
    assert!(looks > 30 && samples > 150);

    let mut reader = RecordReader::open(Path::new(PATH)).unwrap();
    let again = compare(&mut reader, Changes::default(), 5).unwrap();
    println!("{:?}, {} swaps", again.check, again.recorded.swaps);
    assert_eq!(again.check.same, again.check.all, "{:?}", again.differences);
    assert!(again.check.all > 20 && again.recorded.swaps > 0);

    let output = Command::new(binary())
        .args(["replay", PATH, "--policy", "rr"])
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("the scheduler was killed"));
    let output = Command::new(binary())
        .args(["report", PATH])
        .output()
        .unwrap();
    assert!(output.status.success());
    let page = fs::read_to_string(format!("{PATH}.html")).unwrap();
    assert!(page.contains("hetero-programs") && page.contains("<h2>Slowdown"));
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_scheduler() {
    let begin = std::time::Instant::now();
    let scheduler = Scheduler::start(&["--policy", "camps", "--record", "/dev/full"]);
    let children = programs(2);
    thread::sleep(s(2));
    assert_eq!(state(), "enabled");
    println!("still there after {:.1} s", begin.elapsed().as_secs_f64());
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    scheduler.stop();
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn a_switch_of_policy_is_followed_and_the_end_is_recorded() {
    let children = programs(16);
    let scheduler = Scheduler::start(&["--policy", "camps", "--record", PATH]);
    for (what, value) in [("fairness", "40"), ("policy", "rr"), ("policy", "camps")] {
        thread::sleep(s(2));
        let set = Command::new(binary()).args(["set", what, value]).status();
        assert!(set.unwrap().success());
    }
    thread::sleep(s(2));
    scheduler.stop();
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut reader = RecordReader::open(Path::new(PATH)).unwrap();
    let again = compare(&mut reader, Changes::default(), 5).unwrap();
    println!("{:?}, {} swaps", again.check, again.recorded.swaps);
    assert_eq!(reader.tail(), Some(Tail::Whole));
    assert_eq!(again.policies, ["camps", "rr", "camps"]);
    assert_eq!(again.check.same, again.check.all, "{:?}", again.differences);
}
