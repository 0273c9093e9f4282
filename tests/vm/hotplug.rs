// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that come and go, in the virtual machine (`make test`). The kernel ends a
//! scheduler when that happens and asks for a new start.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::processes::{Burner, burner, burners};
use crate::support::*;

const ROUND_ROBIN: &[&str] = &["--core-types", HYBRID, "--policy", "rr", "--swap-ms", "20"];

fn online(cpu: usize, online: bool) {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(path, if online { "1" } else { "0" }).unwrap();
}

fn enabled_again() {
    // Beside others that compute all the time: to start takes the agent seconds by itself.
    wait_until(s(120), "attached again", || state() == "enabled");
}

/// CPU 3 comes or goes, and the scheduler is there again.
fn online_and_attached(there: bool) {
    online(3, there);
    thread::sleep(s(1));
    enabled_again();
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

/// The kernel ends the scheduler for a CPU that comes back, and that one does not know the CPU: what
/// is pinned there must be served until then, the kernel's own threads among it, or that never ends.
#[test]
#[ignore = "native, and here with make test-kernels"]
fn a_cpu_that_comes_back_is_served_before_the_scheduler_starts_anew() {
    let scheduler = Scheduler::start(ROUND_ROBIN);
    online_and_attached(false);
    let before = starts();
    online(3, true);
    let hogs = Hog::start_many(2);
    hogs.iter().for_each(|hog| hog.pin(&[3]));
    wait_until(s(120), "attached beside what is pinned there", || {
        starts() > before && state() == "enabled"
    });
    let ran = measure(&hogs, s(1), s(3));
    assert!(ran.iter().all(|ran| ran.on(&[3]) > 0), "{ran:?}");
    drop(hogs);
    scheduler.stop();
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn threads_are_known_again_after_a_cpu_has_gone() {
    let scheduler = Scheduler::start(ROUND_ROBIN);
    // Beside more of them it takes the agent seconds to start anew.
    let hogs = Hog::start_many(CPUS);
    let gone = Hog::start_many(2);
    thread::sleep(s(1));
    let before = Statistics::from_now().take().tasks;
    online(3, false);
    drop(gone);
    thread::sleep(s(1));
    enabled_again();
    thread::sleep(s(1));
    let told = Statistics::from_now().take();
    println!("{before} tasks before; {told:?}");
    assert!(told.carried >= CPUS as u64, "{told:?}");
    assert!(
        told.tasks <= before,
        "those gone are not forgotten: {told:?}"
    );
    drop(hogs);
    online_and_attached(true);
    scheduler.stop();
}

/// They are younger than the agent, so some kernels move them to its class after it.
#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn a_younger_crowd_does_not_keep_it_from_starting_anew() {
    let scheduler = Scheduler::start(ROUND_ROBIN);
    let crowd = burners(8 * CPUS);
    // Else it could not tell.
    realtime(0);
    online_and_attached(false);
    online_and_attached(true);
    drop(crowd);
    scheduler.stop();
}

/// Starts a process that computes, under this id, which must be free.
fn burner_with_id(id: u32) -> Burner {
    loop {
        fs::write("/proc/sys/kernel/ns_last_pid", (id - 1).to_string()).unwrap();
        let child = burner();
        if child.id() == id {
            return child;
        }
        // Another process was started just then.
    }
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn a_process_with_the_id_of_one_that_ended_is_not_taken_for_it() {
    // More than there are tasks besides those that this test starts.
    const BURNERS: usize = 12;
    let burners = burners(BURNERS);
    let scheduler = Scheduler::start(ROUND_ROBIN);
    let hogs = Hog::start_many(CPUS);
    thread::sleep(s(1));
    // So that the ids are taken again before it starts anew.
    scheduler.signal(libc::SIGSTOP);
    online(3, false);
    wait_until(s(30), "ended by the kernel", || state() == "disabled");
    let again = burners.into_iter().map(|burner| {
        let id = burner.id();
        drop(burner);
        burner_with_id(id)
    });
    let burners: Vec<_> = again.collect();
    scheduler.signal(libc::SIGCONT);
    enabled_again();
    thread::sleep(s(1));
    let told = Statistics::from_now().take();
    println!("{told:?}");
    let known = CPUS as u64..(CPUS + BURNERS) as u64;
    assert!(known.contains(&told.carried), "{told:?}");
    online_and_attached(true);
    drop(hogs);
    drop(burners);
    scheduler.stop();
}
