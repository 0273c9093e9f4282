// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero calibrate` in the virtual hybrid machine (`make test-kernels`): what it finds, against what
//! the machine is made of, and that the scheduler then uses it.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::*;
use scx_hetero::slowdown::calibrate::store::{Calibration, PATH};

/// Of alder-lake-4p4e, scaled: 42 GB/s stretched twenty times.
const BANDWIDTH: f64 = 42e9 / 20.0;

/// What it says when it is started, with its exit status.
fn said(args: &[&str]) -> String {
    let output = Command::new(binary()).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

/// What the scheduler says until it has attached.
fn started(args: &[&str]) -> String {
    let path = "/tmp/scheduler.log";
    let mut child = Command::new(binary())
        .args(args)
        .stdout(Stdio::null())
        .stderr(File::create(path).unwrap())
        .spawn()
        .unwrap();
    wait_until(Duration::from_secs(60), "attached", || state() == "enabled");
    // SAFETY: a plain system call on our own child.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    assert!(child.wait().unwrap().success());
    fs::read_to_string(path).unwrap()
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn calibration_finds_what_the_machine_is_made_of_and_is_used() {
    let begin = Instant::now();
    let text = said(&["calibrate"]);
    let took = begin.elapsed();
    println!("{text}\nafter {took:.1?}");
    assert!(took < Duration::from_secs(60));
    assert!(text.lines().all(|line| line.len() <= 80), "wide lines");

    let calibration = Calibration::read(PATH.as_ref()).unwrap().unwrap();
    let [domain] = &calibration.domains[..] else {
        panic!("P and E cores share one last-level cache");
    };
    assert!((0.8..1.05).contains(&(domain.bandwidth / BANDWIDTH)));
    let limits = calibration.thresholds.unwrap();
    // Latency is 1 + load^2 / 2 times what it is alone: 5 % at a load of 0.32.
    assert!((0.2..0.45).contains(&(limits.high_btr / BANDWIDTH)));
    // A line in 1.6 us is all that a chase can do; far less must go unnoticed.
    assert!(limits.low_btr > 0.1e6 && limits.low_btr < 64.0 / 1.6e-6 / 4.0);
    let [p, e] = calibration.capacities[..] else {
        panic!("two core types");
    };
    assert_eq!(p, 1024);
    assert!((400..800).contains(&e), "{e}");

    let text = started(&["--policy", "camps"]);
    let used = format!("calibrated {}: low_btr", calibration.date);
    assert!(text.contains(&used), "{text}");
    let text = said(&["topology"]);
    assert!(
        text.contains("capacities from scx_hetero calibrate"),
        "{text}"
    );

    // Another machine's, and a damaged one: told of, and the scheduler does without.
    let mut other = calibration.clone();
    other.machine.cpu = "Another CPU".to_string();
    other.write(PATH.as_ref()).unwrap();
    let text = said(&["topology"]);
    assert!(text.contains("is ignored: it is of another CPU"), "{text}");
    assert!(!text.contains("from scx_hetero calibrate"), "{text}");
    fs::write(PATH, "{").unwrap();
    let text = started(&["--policy", "camps"]);
    assert!(text.contains("is ignored: it ends in the middle"), "{text}");
    fs::remove_file(PATH).unwrap();
}
