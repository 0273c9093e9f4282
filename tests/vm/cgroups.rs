// SPDX-License-Identifier: GPL-2.0-only
//! Cgroups on a real kernel, in the virtual machine (`make test`): busy processes in slices, and
//! the CPU time that each slice gets.

use std::fs;
use std::process::{Child, Command};
use std::thread;

use crate::support::slice::Slice;
use crate::support::*;

/// What each slice runs in a while, once things have settled.
fn ran(slices: &[&Slice]) -> Vec<f64> {
    thread::sleep(ms(500));
    let usage = || slices.iter().map(|slice| slice.usage());
    let before: Vec<_> = usage().collect();
    thread::sleep(s(2));
    usage().zip(before).map(|(now, then)| now - then).collect()
}

/// They share CPU time in these proportions, within 10 %.
fn assert_shared(slices: &[&Slice], proportions: &[f64]) {
    let ran = ran(slices);
    let (total, whole): (f64, f64) = (ran.iter().sum(), proportions.iter().sum());
    let shares: Vec<_> = ran.iter().map(|ran| ran / total).collect();
    let fair: Vec<_> = proportions.iter().map(|part| part / whole).collect();
    eprintln!("shares {shares:.3?}, fair {fair:.3?}");
    for (share, fair) in shares.iter().zip(&fair) {
        assert!(
            (share / fair - 1.0).abs() < 0.10,
            "{shares:?}, not {fair:?}"
        );
    }
}

const ALL: &[usize] = &[0, 1, 2, 3];

#[test]
#[ignore = "native, and here with make test-kernels"]
fn busy_slices_share_cpu_time_by_weight() {
    let scheduler = Scheduler::start(&[]);
    let light = Slice::new("light.slice", 100).run(CPUS, ALL);
    let heavy = Slice::new("heavy.slice", 300).run(CPUS, ALL);
    assert_shared(&[&light, &heavy], &[1.0, 3.0]);

    // A change takes effect while they run.
    heavy.set("cpu.weight", "50");
    assert_shared(&[&light, &heavy], &[2.0, 1.0]);
    drop((light, heavy));
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn a_slice_gets_no_more_for_running_more() {
    let scheduler = Scheduler::start(&[]);
    let one = Slice::new("one.slice", 100).run(1, &[1]);
    let many = Slice::new("many.slice", 100).run(8, &[1]);
    assert_shared(&[&one, &many], &[1.0, 1.0]);
    // Nor on some CPUs of many.
    for child in one.busy.iter().chain(&many.busy) {
        pin(child.id() as i32, &[0, 1]);
    }
    assert_shared(&[&one, &many], &[1.0, 1.0]);
    drop((one, many));

    // And by nice within: 1024 to 335.
    let mixed = Slice::new("mixed.slice", 100);
    let plain = Slice::below(&mixed.path, "plain.scope", 100).run(2, &[1]);
    let beside = Slice::new("beside.slice", 100).run(1, &[1]);
    renice(plain.busy[1].id() as i32, 5);
    let before: Vec<_> = plain.busy.iter().map(cpu_time).collect();
    assert_shared(&[&plain, &beside], &[1.0, 1.0]);
    let used = |i: usize| cpu_time(&plain.busy[i]) - before[i];
    let ratio = used(0) / used(1);
    eprintln!("nice 0 to nice 5: {ratio:.3}");
    assert!((ratio / (1024.0 / 335.0) - 1.0).abs() < 0.10);
    drop((plain, beside, mixed));
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn weights_multiply_down_the_tree_and_tasks_may_move_in_it() {
    let scheduler = Scheduler::start(&[]);
    // scx_flatcg's example: B and C share A's third, D has the rest.
    let a = Slice::new("a.slice", 100);
    let b = Slice::below(&a.path, "b.slice", 100).run(CPUS, ALL);
    let c = Slice::below(&a.path, "c.slice", 100).run(CPUS, ALL);
    let d = Slice::new("d.slice", 200).run(CPUS, ALL);
    assert_shared(&[&b, &c, &d], &[1.0, 1.0, 4.0]);

    // One that has nothing to run leaves its share to its siblings.
    for child in &c.busy {
        d.take(child);
    }
    assert_shared(&[&b, &d], &[1.0, 2.0]);
    drop((b, c));
    drop((a, d));
    scheduler.stop();
}

#[test]
fn slices_made_and_removed_by_the_hundred_leave_the_others_their_shares() {
    let scheduler = Scheduler::start(&[]);
    let outer = Slice::new("outer.slice", 100);
    let inner = Slice::below(&outer.path, "inner.slice", 100).run(1, &[1]);
    let beside = Slice::new("beside.slice", 100).run(1, &[1]);
    for round in 0..20 {
        let name = format!("passing-{round}.slice");
        let passing = Slice::below(&outer.path, &name, 10_000).run(1, &[1]);
        passing.set("cpu.weight", "500");
        drop(passing);
    }
    assert_shared(&[&inner, &beside], &[1.0, 1.0]);
    drop((inner, beside));
    drop(outer);
    scheduler.stop();
}

#[test]
fn units_that_lose_their_limit_are_named() {
    let log = "/tmp/limits.log";
    let limited = Slice::new("limited.slice", 100);
    limited.set("cpu.max", "20000 100000");
    let free = Slice::new("free.slice", 100);
    let mut scheduler = Command::new(binary())
        .stderr(fs::File::create(log).unwrap())
        .spawn()
        .unwrap();
    wait_until(s(120), "attached", || state() == "enabled");
    let text = || fs::read_to_string(log).unwrap();
    wait_until(s(10), "named", || text().contains("limited.slice"));
    assert!(!text().contains("free.slice"), "{}", text());

    // From 6.17 on the kernel tells of limits that are set meanwhile.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    if !release.starts_with("6.16.") {
        free.set("cpu.max", "10000 100000");
        // It looks at most once in ten seconds.
        wait_until(s(30), "named", || text().contains("free.slice"));
        assert_eq!(text().matches("limited.slice").count(), 1, "{}", text());
    }
    // SAFETY: a plain system call on our own child.
    assert_eq!(
        unsafe { libc::kill(scheduler.id() as i32, libc::SIGINT) },
        0
    );
    assert!(scheduler.wait().unwrap().success());
    drop((limited, free));
}

/// CPU time of a process of one thread, ns.
fn cpu_time(child: &Child) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/schedstat", child.id())).unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}
