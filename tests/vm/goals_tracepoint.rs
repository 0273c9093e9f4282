// SPDX-License-Identifier: GPL-2.0-only
//! Tracepoints as beats (`goal run --beat syscalls:sys_enter_fsync`), and calls of a function (`libc:fsync`), which takes a
//! kernel that lets them be watched.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::goals::{Crowd, list};
use crate::support::*;

const TRACEPOINT: &str = "syscalls:sys_enter_fsync";
const FUNCTION: &str = "libc:fsync";

fn watch(beat: &str, options: &[&str]) -> Child {
    Command::new(binary())
        .args(["goal", "run", "--rate", "20", "--beat", beat])
        .args(options)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Its exit status is 0, and it has seen so many beats.
fn assert_counted(watch: Child, beats: u32) {
    let output = watch.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success(), "{:?}", output.status);
    let counted = said.split(" beats in ").next().unwrap();
    let counted = counted.rsplit(|c: char| !c.is_ascii_digit()).next();
    assert_eq!(counted, Some(&*beats.to_string()), "{said}");
}

#[test]
fn each_call_of_a_program_and_of_what_it_starts_is_a_beat() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let _crowd = Crowd::of(2);
    let script = "for i in $(seq 80); do \
                  dd if=/dev/zero of=/tmp/synced bs=1 count=1 conv=fsync 2>/dev/null; \
                  usleep 50000; done";
    let begin = Instant::now();
    let watch = watch(TRACEPOINT, &["--", "sh", "-c", script]);
    thread::sleep(s(3));
    let told = list();
    let [session] = &told[..] else {
        panic!("{told:?}");
    };
    // It says its beats as they come: so many in so long.
    let passed = begin.elapsed().as_secs_f64();
    let (beats, rate) = (session.beats as f64, session.rate.unwrap());
    println!("{beats} beats in {passed:.2} s, {rate:.1} of late");
    assert!((rate * passed / beats - 1.0).abs() < 0.25, "{session:?}");
    assert_counted(watch, 80);
    scheduler.stop();
}

#[test]
fn each_call_of_a_program_that_runs_is_a_beat_from_when_it_is_watched() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let file = File::create("/tmp/synced").unwrap();
    let pid = std::process::id().to_string();
    file.sync_all().unwrap();
    let watches = [TRACEPOINT, FUNCTION].map(|beat| watch(beat, &["-p", &pid]));
    wait_until(s(5), "two sessions", || list().len() == 2);
    let begin = Instant::now();
    for call in 1..=60 {
        file.sync_all().unwrap();
        let due = Duration::from_millis(50 * call);
        thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    let told = list();
    for session in &told {
        let rate = session.rate.unwrap();
        assert!((rate / 20.0 - 1.0).abs() < 0.1, "{told:?}");
    }
    for watch in watches {
        kill(Pid::from_raw(watch.id() as i32), Signal::SIGINT).unwrap();
        assert_counted(watch, 60);
    }
    scheduler.stop();
}
