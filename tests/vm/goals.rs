// SPDX-License-Identifier: GPL-2.0-only
//! Goals, in the virtual hybrid machine (`make test`): programs that say how fast they must be are that
//! fast, whatever runs beside them.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use serde::Deserialize;

use crate::support::*;
use scx_hetero::goals::{GoalSource, GoalStatus};

/// A line of `hetero-programs --progress --json`.
#[derive(Deserialize)]
struct Progress {
    units: f64,
    seconds: f64,
}

fn program(args: &str) -> Command {
    let mut command = Command::new("hetero-programs");
    command.args(args.split(' '));
    command
}

/// Programs that compute, more than there are CPUs; they end with the test.
struct Crowd(Vec<Child>);

impl Crowd {
    fn of(size: usize) -> Self {
        let mut one = program("matmul --seconds 60");
        one.stdout(Stdio::null());
        Self((0..size).map(|_| one.spawn().unwrap()).collect())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Units per second in each second, as the program says.
fn rates(program: Child) -> Vec<f64> {
    let output = program.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| line.contains("progress"));
    let lines: Vec<Progress> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let rate =
        |pair: &[Progress]| (pair[1].units - pair[0].units) / (pair[1].seconds - pair[0].seconds);
    lines.windows(2).map(rate).collect()
}

fn list() -> Vec<GoalStatus> {
    let output = Command::new(binary())
        .args(["goal", "list", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn programs_are_as_fast_as_they_must_be_beside_a_crowd_and_no_faster() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let _crowd = Crowd::of(6);
    let goals = [
        ("integer", "integer", 100.0),
        ("fp", "fp", 60.0),
        ("barrier", "barrier --threads 4", 40.0),
    ];
    let started = goals.map(|(name, args, rate)| {
        let args = format!("{args} --rate {rate} --seconds 4 --progress 1000 --json");
        let mut command = program(&args);
        (name, rate, command.stdout(Stdio::piped()).spawn().unwrap())
    });
    for (name, target, child) in started {
        let rates = rates(child);
        println!("{name}: {rates:.1?} of {target}");
        // The first two seconds are for learning.
        let settled = &rates[1..];
        let met = |rate: &&f64| (*rate / target - 1.0).abs() < 0.1;
        let met = settled.iter().filter(met).count();
        assert!(met + 1 >= settled.len(), "{name}: {rates:.1?} of {target}");
    }
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn what_cannot_be_met_is_told_with_its_reason_and_others_go_on() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let _crowd = Crowd::of(4);
    let spawn = |args: &str| program(args).stdout(Stdio::null()).spawn().unwrap();
    // Its beats come from a script, and the work is done by what that has started.
    let script =
        "hetero-programs integer --seconds 4 & for i in $(seq 40); do echo; sleep 0.1; done";
    let mut family = Command::new(binary())
        .args(["goal", "run", "--rate", "5", "--", "sh", "-c", script])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut children = [
        // One thread, and more than one CPU has.
        spawn("integer --rate 100000 --seconds 3"),
        // More than all have.
        spawn("barrier --threads 8 --rate 100000 --seconds 3"),
    ];
    thread::sleep(s(2));
    let told = list();
    for status in &told {
        println!("{status:?}");
    }
    let reason = |name: &str| {
        let of = told.iter().find(|of| of.name == name).expect(name);
        of.reason.clone().unwrap_or_default()
    };
    assert!(
        reason("integer").contains("one thread at a time"),
        "{told:?}"
    );
    assert!(reason("barrier").contains("the machine lacks"), "{told:?}");
    // What is told of its threads, too.
    let why = |pid: &str| {
        let why = Command::new(binary()).args(["why", pid]).output().unwrap();
        String::from_utf8(why.stdout).unwrap()
    };
    let of = |name: &str| told.iter().find(|of| of.name == name).expect(name);
    let one = why(&of("integer").pid.to_string());
    assert!(one.contains("of 100000 beats/s"), "{one}");
    let script = of("sh");
    assert!(script.children, "{script:?}");
    let path = format!("/proc/{0}/task/{0}/children", script.pid);
    let started = fs::read_to_string(path).unwrap();
    let started: Vec<String> = started.split_whitespace().map(why).collect();
    let is_told = |told: &String| told.contains("hetero-programs") && told.contains("of 5 beats/s");
    assert!(started.iter().any(is_told), "{started:?}");
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert!(family.wait().unwrap().success());
    wait_until(s(5), "without sessions", || list().is_empty());
    scheduler.stop();
}

#[test]
fn a_program_goes_on_with_its_goal_when_a_scheduler_starts_anew_and_a_rule_gives_it_another() {
    const RULES: &str = "/tmp/goals.toml";
    let scheduler = Scheduler::start(&["--policy", "rr"]);
    let begin = Instant::now();
    let child = program("integer --rate 50 --seconds 13 --progress 1000 --json")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(s(2));
    scheduler.stop();
    fs::write(RULES, "").unwrap();
    let scheduler = Scheduler::start(&["--policy", "rr", "--rules", RULES]);
    thread::sleep(s(9).saturating_sub(begin.elapsed()));
    let rule = "[[rule]]\nexe = \"*/hetero-programs\"\ngoal = { rate = 30 }\n";
    fs::write(RULES, rule).unwrap();
    let set = Command::new(binary()).args(["set", "rules"]).output();
    let said = String::from_utf8(set.unwrap().stdout).unwrap();
    assert!(said.contains("1 of them on goals"), "{said}");
    thread::sleep(s(1));
    let told = list();
    assert_eq!((told[0].target, told[0].source), (30.0, GoalSource::Rule));
    let rates = rates(child);
    println!("{rates:.1?}");
    for (second, target) in [(6, 50.0), (rates.len() - 2, 30.0)] {
        let met = (rates[second] / target - 1.0_f64).abs() < 0.1;
        assert!(met, "second {second}: {rates:.1?}");
    }
    scheduler.stop();
}
