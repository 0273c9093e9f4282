// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that come and go, in the virtual machine (`make test`). The kernel ends a
//! scheduler when that happens and asks for a new start.

mod support;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use support::*;

const ROUND_ROBIN: &[&str] = &["--core-types", HYBRID, "--policy", "rr", "--swap-ms", "20"];

fn online(cpu: usize, online: bool) {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(path, if online { "1" } else { "0" }).unwrap();
}

fn enabled_again() {
    wait_until(s(30), "attached again", || {
        let count = fs::read_to_string("/sys/kernel/sched_ext/state").unwrap();
        count.trim() == "enabled"
    });
}

#[test]
#[ignore = "takes minutes; make test-kernels runs it"]
fn fifty_cpus_that_go_and_come_under_load_are_survived() {
    let scheduler = Scheduler::start(ROUND_ROBIN);
    let hogs = Hog::start_many(2 * CPUS);
    hogs[0].pin(&[1]);
    let begin = Instant::now();
    for cycle in 0..50 {
        let cpu = 2 + cycle % 2;
        online(cpu, false);
        // Into all that a start consists of, sooner or later.
        thread::sleep(Duration::from_millis(cycle as u64 * 17 % 200));
        online(cpu, true);
        thread::sleep(Duration::from_millis(cycle as u64 * 29 % 200));
    }
    println!("50 cycles in {:.1?}", begin.elapsed());
    // The last start may be under way still, and another one follow it.
    thread::sleep(s(3));
    enabled_again();
    let ran = measure(&hogs, s(1), s(3));
    assert_eq!(ran[0].on(&[1]), ran[0].total());
    assert!(ran.iter().all(|ran| ran.total() > 0), "{ran:?}");
    drop(hogs);
    scheduler.stop();
}

#[test]
fn threads_are_known_again_after_a_cpu_has_gone() {
    let scheduler = Scheduler::start(ROUND_ROBIN);
    let hogs = Hog::start_many(2 * CPUS);
    let gone = Hog::start_many(CPUS);
    thread::sleep(s(1));
    let before = Statistics::from_now().take().tasks;
    online(3, false);
    drop(gone);
    thread::sleep(s(1));
    enabled_again();
    thread::sleep(s(1));
    let told = Statistics::from_now().take();
    println!("{before} tasks before; {told:?}");
    assert!(told.carried >= 2 * CPUS as u64, "{told:?}");
    assert!(
        told.tasks <= before,
        "those gone are not forgotten: {told:?}"
    );
    online(3, true);
    thread::sleep(s(1));
    enabled_again();
    drop(hogs);
    scheduler.stop();
}
