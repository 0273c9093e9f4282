// SPDX-License-Identifier: GPL-2.0-only
//! CAMPS in the virtual hybrid machine (`make test`): real programs, measured by the scheduler
//! itself, and the speeds that the programs themselves report.

mod support;

use std::process::{Child, Command, Stdio};

use support::*;

/// `stream` leaves `chase` no moment without contention, but for NWC mode.
const PROGRAMS: [&str; 8] = [
    "stream", "chase", "integer", "fp", "branchy", "hash", "sort", "compress",
];

fn program(name: &str, args: &[&str]) -> Child {
    let mut command = Command::new("hetero-programs");
    command.args([&[name, "--json"], args].concat());
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn rate(child: Child) -> f64 {
    let output = child.wait_with_output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    value["rate"].as_f64().unwrap()
}

fn alone() -> Vec<f64> {
    let on_p = ["--seconds", "0.3", "--pin", "0"];
    let rates = PROGRAMS.iter().map(|name| rate(program(name, &on_p)));
    rates.collect()
}

/// Each program's slowdown against a P core of its own, over eight seconds of all at once.
fn slowdowns(alone: &[f64]) -> Vec<f64> {
    let children: Vec<Child> = PROGRAMS
        .iter()
        .map(|name| program(name, &["--seconds", "8"]))
        .collect();
    let slowdowns = children.into_iter().zip(alone);
    let slowdowns: Vec<f64> = slowdowns
        .map(|(child, alone)| alone / rate(child))
        .collect();
    println!("slowdowns {slowdowns:.2?}");
    slowdowns
}

fn unfairness(slowdowns: &[f64]) -> f64 {
    let most = slowdowns.iter().copied().fold(f64::MIN, f64::max);
    let least = slowdowns.iter().copied().fold(f64::MAX, f64::min);
    most / least
}

#[test]
fn camps_evens_out_progress_and_learns_who_is_disturbed() {
    let alone = alone();
    let default = unfairness(&slowdowns(&alone));
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let mut statistics = Statistics::from_now();
    let camps = unfairness(&slowdowns(&alone));
    let counts = statistics.take().counts;
    scheduler.stop();
    let (parked, held) = (counts.parked, counts.held);
    println!("unfairness: {default:.2} by default, {camps:.2} with camps");
    println!("CPUs parked {parked} times, {held} tasks held");
    assert!(parked > 0 && held > 0, "NWC mode idled no CPU");
    assert!(camps < 0.75 * default && camps < 1.5);
}
