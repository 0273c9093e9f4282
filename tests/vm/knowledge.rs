// SPDX-License-Identifier: GPL-2.0-only
//! What is known of programs outlives processes and schedulers (docs/knowledge.md). In the virtual machine
//! (`make test`).

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::*;

/// One on each CPU of the hybrid machine, so that all come to both core types.
fn programs(name: &str) -> Vec<Child> {
    start(2 * CPUS, name, "3")
}

fn start(number: usize, name: &str, seconds: &str) -> Vec<Child> {
    let program = |_| {
        let mut command = Command::new("hetero-programs");
        command.args([name, "--seconds", seconds]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    (0..number).map(program).collect()
}

fn await_all(children: &mut [Child]) {
    for child in children {
        assert!(child.wait().unwrap().success());
    }
}

fn json(args: &[&str]) -> Option<Value> {
    let output = Command::new(binary()).args(args).output().unwrap();
    serde_json::from_slice(&output.stdout).ok()
}

/// What `why` says last of what earlier runs of these programs tell.
fn past(mut children: Vec<Child>) -> String {
    let pid = children[0].id().to_string();
    let mut last = String::new();
    while children[0].try_wait().unwrap().is_none() {
        let story = json(&["why", "--json", &pid]).unwrap_or_default();
        let told = story["threads"][0]["past"].as_str().unwrap_or_default();
        if !told.is_empty() {
            last = told.to_string();
        }
        std::thread::sleep(ms(100));
    }
    await_all(&mut children);
    last
}

#[test]
fn what_one_scheduler_finds_of_a_program_the_next_one_knows() {
    let options = ["--policy", "acfs", "--knowledge=on"];
    let scheduler = Scheduler::start(&options);
    assert_eq!(past(programs("fp")), "");
    scheduler.stop();
    let known = json(&["know", "--json", "hetero-programs"]).expect("something is known");
    assert_eq!(known[0]["runs"], 2 * CPUS, "{known}");
    let scheduler = Scheduler::start(&options);
    assert_eq!(past(programs("fp")), "as in earlier runs");
    // The same executable, options, unit and user, so for the scheduler the same program.
    let told = past(programs("chase"));
    assert!(told.starts_with("unlike its earlier runs"), "{told}");
    scheduler.stop();
}

/// A disk of 1 MiB where the scheduler keeps what it finds.
struct Disk;

impl Disk {
    const PATH: &str = "/var/lib/scx_hetero";

    fn new() -> Self {
        fs::create_dir_all(Self::PATH).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "none", Self::PATH]);
        assert!(mount.status().unwrap().success());
        Self
    }

    fn file(name: &str) -> String {
        format!("{}/{name}", Self::PATH)
    }

    /// Another file takes all that is left.
    fn fill(&self) {
        let _ = fs::write(Self::file("fill"), [0; 1 << 20]);
    }

    fn make_room(&self) {
        fs::remove_file(Self::file("fill")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(Self::PATH).status();
    }
}

#[test]
fn while_a_disk_is_full_it_schedules_and_it_writes_again_once_there_is_room() {
    let disk = Disk::new();
    disk.fill();
    let (samples, minute) = (Disk::file("samples"), s(65));
    let options = ["--policy", "acfs", "--knowledge=on", "--samples", &samples];
    let scheduler = Scheduler::start(&options);
    // Few and short, and what idles costs little: the virtual machine's time is not ours.
    let run = || await_all(&mut start(CPUS, "fp", "2"));
    let runs =
        || json(&["know", "--json", "hetero-programs"]).expect("it is kept now")[0]["runs"].clone();
    run();
    assert_eq!(state(), "enabled");
    assert_eq!(json(&["know", "--json"]), None, "there was no room");
    disk.make_room();
    run();
    std::thread::sleep(minute);
    assert_eq!(runs(), 2 * CPUS);
    disk.fill();
    run();
    std::thread::sleep(minute);
    assert_eq!(state(), "enabled");
    assert_eq!(runs(), 2 * CPUS, "what is there stays");
    disk.make_room();
    scheduler.stop();
    assert_eq!(runs(), 3 * CPUS, "nothing is lost");
    let lines = fs::read_to_string(&samples).unwrap();
    assert!(lines.lines().count() > 100, "{}", lines.len());
    for line in lines.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}
