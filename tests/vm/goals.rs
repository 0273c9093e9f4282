// SPDX-License-Identifier: GPL-2.0-only
//! Goals, in the virtual hybrid machine (`make test`): programs that say how fast they must be are that
//! fast, whatever runs beside them.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hetero_heartbeats::{Heartbeat, HeartbeatOptions, HeartbeatTarget};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use crate::support::slice::Slice;
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

/// Programs that compute; they end with the test.
pub(crate) struct Crowd(Vec<Child>);

impl Crowd {
    /// More than there are CPUs.
    pub(crate) fn of(size: usize) -> Self {
        Self::doing("matmul --seconds 60", size)
    }

    fn doing(args: &str, size: usize) -> Self {
        Self::running(program(args), size)
    }

    fn running(mut one: Command, size: usize) -> Self {
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

/// All but one of these seconds are within 10 % of the target.
fn assert_met(name: &str, rates: &[f64], target: f64) {
    println!("{name}: {rates:.1?} of {target}");
    let met = |rate: &&f64| (*rate / target - 1.0).abs() < 0.1;
    let met = rates.iter().filter(met).count();
    assert!(met + 1 >= rates.len(), "{name}: {rates:.1?} of {target}");
}

pub(crate) fn list() -> Vec<GoalStatus> {
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
        // The first two seconds are for learning.
        assert_met(name, &rates(child)[1..], target);
    }
    scheduler.stop();
}

#[test]
fn a_process_that_runs_is_given_a_goal_until_its_watching_ends() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let _crowd = Crowd::of(6);
    let mut one = Crowd::doing("integer --seconds 60", 1);
    let pid = one.0[0].id();
    // Half of what a fast core does (some 850).
    let options = ["--rate", "400", "--beat", "instructions=1M", "--name", "it"];
    let mut watch = Command::new(binary());
    watch
        .args(["goal", "run", "-p", &pid.to_string()])
        .args(options);
    let mut watch = Crowd::running(watch, 1);
    thread::sleep(s(3));
    let told = list();
    println!("{told:?}");
    let [session] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((session.pid, &*session.name), (pid, "it"));
    let rate = session.rate.unwrap();
    assert!((rate / 400.0 - 1.0).abs() < 0.1, "{rate}");
    kill(Pid::from_raw(watch.0[0].id() as i32), Signal::SIGINT).unwrap();
    assert!(watch.0[0].wait().unwrap().success());
    wait_until(s(5), "without sessions", || list().is_empty());
    assert!(one.0[0].try_wait().unwrap().is_none());
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
    // More than 5 % of a P core: what needs less gets more, for no thread is held for long.
    let child = program("integer --rate 150 --seconds 13 --progress 1000 --json")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(s(2));
    scheduler.stop();
    fs::write(RULES, "").unwrap();
    let scheduler = Scheduler::start(&["--policy", "rr", "--rules", RULES]);
    thread::sleep(s(9).saturating_sub(begin.elapsed()));
    let rule = "[[rule]]\nexe = \"*/hetero-programs\"\ngoal = { rate = 90 }\n";
    fs::write(RULES, rule).unwrap();
    let set = Command::new(binary()).args(["set", "rules"]).output();
    let said = String::from_utf8(set.unwrap().stdout).unwrap();
    assert!(said.contains("1 of them on goals"), "{said}");
    thread::sleep(s(1));
    let told = list();
    assert_eq!((told[0].target, told[0].source), (90.0, GoalSource::Rule));
    let rates = rates(child);
    println!("{rates:.1?}");
    for (second, target) in [(6, 150.0), (rates.len() - 2, 90.0)] {
        let met = (rates[second] / target - 1.0_f64).abs() < 0.1;
        assert!(met, "second {second}: {rates:.1?}");
    }
    scheduler.stop();
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn beyond_the_machine_goals_are_met_by_their_weights() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let args = "swaptions --threads 8 --rate 100000 --seconds 8 --progress 1000 --json";
    let started = [100, 200, 300].map(|weight| {
        let child = program(args).stdout(Stdio::piped()).spawn().unwrap();
        let mine = |of: &GoalStatus| of.pid == child.id();
        wait_until(s(5), "a session", || list().iter().any(mine));
        let id = list().into_iter().find(mine).unwrap().id.to_string();
        let weight = weight.to_string();
        let set = ["goal", "set", &id, "--rate", "100000", "--weight", &weight];
        let set = Command::new(binary()).args(set).output().unwrap();
        assert!(set.status.success(), "{set:?}");
        child
    });
    // Once all are there, and before the first ends.
    let means = started.map(|child| {
        let rates = rates(child);
        println!("{rates:.1?}");
        rates[3..6].iter().sum::<f64>() / 3.0
    });
    let total: f64 = means.iter().sum();
    for (mean, part) in means.iter().zip([1.0, 2.0, 3.0]) {
        assert!((mean / total * 6.0 / part - 1.0).abs() < 0.1, "{means:.1?}");
    }
    scheduler.stop();
}

/// Weights are chosen by programs, and so is how many sessions a user has.
#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn a_user_with_many_goals_beyond_the_machine_leaves_another_its_own() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let mut one = program("integer --rate 100000 --seconds 600");
    one.uid(1000);
    let _many = Crowd::running(one, 60);
    thread::sleep(s(3));
    let child = program("fp --rate 40 --seconds 8 --progress 1000 --json")
        .uid(1001)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_met("fp", &rates(child)[3..], 40.0);
    scheduler.stop();
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn a_goal_in_a_slice_of_little_weight_is_met_and_others_share_what_it_leaves_by_theirs() {
    let all: Vec<usize> = (0..8).collect();
    let scheduler = Scheduler::start(&["--policy", "none"]);
    let light = Slice::new("light.slice", 100).run(8, &all);
    let heavy = Slice::new("heavy.slice", 300).run(8, &all);
    let little = Slice::new("little.slice", 1);
    let child = program("integer --rate 100 --seconds 6 --progress 1000 --json")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    little.take(&child);
    thread::sleep(s(2));
    let usage = || [&light, &heavy].map(Slice::usage);
    let before = usage();
    let rates = rates(child);
    let now = usage();
    assert_met("integer", &rates[2..], 100.0);
    let ratio = (now[1] - before[1]) / (now[0] - before[0]);
    println!("heavy over light: {ratio:.2}");
    assert!((ratio / 3.0 - 1.0).abs() < 0.1, "{ratio}");
    drop((light, heavy, little));
    scheduler.stop();
}

/// Processes with a goal that end after a tenth of a second, one after another in each of so many rows.
fn passing(rows: usize) -> Crowd {
    let script = "while :; do hetero-programs integer --rate 1000000 --seconds 0.1; done";
    let mut one = Command::new("sh");
    one.args(["-c", script]);
    Crowd::running(one, rows)
}

#[test]
fn a_user_who_asks_all_the_time_costs_little() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let _crowd = Crowd::of(16);
    thread::sleep(s(1));
    let session = Heartbeat::open(HeartbeatOptions {
        target: HeartbeatTarget::Rate(30.0),
        ..HeartbeatOptions::default()
    });
    let session = session.unwrap();
    session.beat();
    let (begun, before) = (Instant::now(), scheduler.ran());
    let mut changes = 0;
    while begun.elapsed() < s(2) {
        session.set_weight(100 + changes % 2).unwrap();
        changes += 1;
        thread::sleep(Duration::from_millis(1));
    }
    let part = (scheduler.ran() - before) / begun.elapsed().as_secs_f64();
    println!("{changes} changes, for which the scheduler took {part:.3} of a CPU");
    assert!(session.connected() && changes > 1000, "{changes}");
    // A look at all threads for each of them took nearly half of one.
    assert!(part < 0.15, "{part}");
    scheduler.stop();
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn a_storm_of_sessions_takes_no_beat_from_another() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    // Together they need 1.2 of the 5.7 fast cores that there are for goals.
    let _storm = Crowd::doing("integer --rate 0.6 --every 1600 --seconds 600", 1000);
    // They come one after another, and each runs unheld until it has its session.
    wait_until(s(60), "a thousand sessions", || list().len() >= 1000);
    let _passing = passing(3);
    let child = program("fp --rate 40 --seconds 10 --progress 1000 --json")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(s(5));
    let told = list();
    let beating = told.iter().filter(|of| of.rate.is_some()).count();
    println!("{} sessions, {beating} of them beat", told.len());
    assert!(beating >= 900, "{beating} of {}", told.len());
    assert_met("fp", &rates(child)[3..], 40.0);
    scheduler.stop();
}
