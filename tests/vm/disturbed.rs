// SPDX-License-Identifier: GPL-2.0-only
//! What slows a thread down, and which process does, is told while it does (docs/interference.md). In the virtual machine
//! (`make test`).

use std::process::Command;

use serde_json::Value;

use crate::support::processes::Burner;
use crate::support::*;

/// What `why` says of the one thread of a process: the class, and the process that is the culprit; nothing where it is not sure.
fn told(victim: &Burner) -> Option<(String, u64)> {
    let pid = victim.id().to_string();
    let output = Command::new(binary())
        .args(["why", "--json", &pid])
        .output();
    // Of what is new nothing is known yet.
    let story: Value = serde_json::from_slice(&output.unwrap().stdout).ok()?;
    let told = &story["threads"][0]["disturbed"];
    let is_sure = told["confidence"].as_f64()? >= 0.5;
    is_sure.then_some((told["class"].as_str()?.to_string(), told["pid"].as_u64()?))
}

/// A program on a CPU of its own is told to be disturbed by others of this class while they run, and not before or after.
fn is_told(class: &str, cpu: usize, victim: &[&str], others: &[usize], antagonist: &[&str]) {
    let victim = Burner::on(cpu, victim);
    std::thread::sleep(s(1));
    assert_eq!(told(&victim), None, "{class}: alone");
    let others: Vec<Burner> = others
        .iter()
        .map(|&cpu| Burner::on(cpu, antagonist))
        .collect();
    let mut last = None;
    wait_until(s(5), "told to be disturbed", || {
        last = told(&victim);
        last.is_some()
    });
    let (found, culprit) = last.unwrap();
    assert_eq!(found, class);
    assert!(
        others.iter().any(|of| u64::from(of.id()) == culprit),
        "{class}: {culprit}"
    );
    drop(others);
    wait_until(s(5), "told to be undisturbed again", || {
        told(&victim).is_none()
    });
}

#[test]
fn the_class_and_the_process_that_disturbs_are_told_while_it_does() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let stream = ["stream", "--working-set", "12288"];
    is_told("bandwidth", 0, &stream, &[1, 2], &stream);
    let resident = |kib| ["resident", "--working-set", kib];
    is_told("l2", 4, &resident("448"), &[5], &resident("3072"));
    scheduler.stop();
}
