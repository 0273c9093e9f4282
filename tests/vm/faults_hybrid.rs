// SPDX-License-Identifier: GPL-2.0-only
//! What goes wrong around the scheduler while it counts and parks CPUs, in the virtual hybrid
//! machine (`make test`).

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;

fn program(args: &str) -> Child {
    let mut command = Command::new("hetero-programs");
    command.args(args.split(' ')).stdout(Stdio::null());
    command.spawn().unwrap()
}

fn end(mut children: Vec<Child>) {
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// CPU time of each, in ticks of 10 ms.
fn ran(children: &[Child]) -> Vec<u64> {
    let of = |child: &Child| {
        let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let words: Vec<&str> = text.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks = |at: usize| words[at].parse::<u64>().unwrap();
        ticks(11) + ticks(12)
    };
    children.iter().map(of).collect()
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn agent_stopped_while_cpus_are_parked() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let mut statistics = Statistics::from_now();
    let start = |name: &&str| program(&format!("{name} --seconds 100"));
    let children: Vec<Child> = PROGRAMS.iter().map(start).collect();
    wait_until(s(20), "parked", || statistics.take().counts.parked > 0);
    scheduler.signal(libc::SIGSTOP);
    // At the deadline of 100 ms all go on, whatever was held.
    thread::sleep(Duration::from_millis(150));
    let before = ran(&children);
    thread::sleep(Duration::from_millis(400));
    let after = ran(&children);
    thread::sleep(s(7));
    scheduler.signal(libc::SIGCONT);
    let told = statistics.take();
    let on_big: Vec<f64> = children
        .iter()
        .map(|child| told.processes[&child.id()].big_pct)
        .collect();
    println!("on P cores: {on_big:.1?} % of the time; {:?}", told.counts);
    for ((name, before), after) in PROGRAMS.iter().zip(before).zip(after) {
        let ticks = after - before;
        assert!(ticks >= 20, "{name} ran {ticks} of 40 ticks");
    }
    // The first second they stayed where they were.
    assert!(
        on_big.iter().all(|pct| (pct - 50.0).abs() < 10.0),
        "{on_big:?}"
    );
    assert_eq!(told.counts.stalls, 1);
    end(children);
    scheduler.stop();
}

/// It weighs little: each time that it queued beside the others it would wait for seconds.
#[test]
#[ignore = "native, and here with make test-kernels"]
fn a_crowd_does_not_keep_the_agent_from_looking_at_them() {
    let stop = AtomicBool::new(false);
    let waited = thread::scope(|scope| {
        for _ in 0..500 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    compute(100_000);
                }
            });
        }
        // Or it would take minutes to start.
        renice(0, -20);
        let scheduler = Scheduler::start(&["--policy", "camps"]);
        for task in fs::read_dir(format!("/proc/{}/task", scheduler.pid())).unwrap() {
            let tid = task.unwrap().file_name().into_string().unwrap();
            renice(tid.parse().unwrap(), 19);
        }
        thread::sleep(s(1));
        let (begun, before) = (Instant::now(), scheduler.waited());
        thread::sleep(s(5));
        let part = (scheduler.waited() - before) / begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        scheduler.stop();
        renice(0, 0);
        part
    });
    println!("it waited for {:.1} % of the time", 100.0 * waited);
    assert!(waited < 0.015);
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn samples_that_are_not_taken_are_lost_and_counted() {
    let scheduler = Scheduler::start(&["--policy", "camps", "--sample-ms", "5"]);
    let mut statistics = Statistics::from_now();
    let start = |name: &&str| program(&format!("{name} --seconds 100"));
    let children: Vec<Child> = PROGRAMS.iter().map(start).collect();
    thread::sleep(s(1));
    assert_eq!(statistics.take().counts.samples_lost, 0);
    scheduler.signal(libc::SIGSTOP);
    let before = ran(&children);
    thread::sleep(s(7));
    let after = ran(&children);
    scheduler.signal(libc::SIGCONT);
    let stopped = statistics.take().counts;
    println!("{stopped:?}");
    assert!(stopped.samples_lost > 0 && stopped.samples > 1000);
    let least = before
        .iter()
        .zip(after)
        .map(|(before, after)| after - before);
    assert!(least.min().unwrap() > 500, "they did not go on");
    // And all is as before.
    thread::sleep(s(1));
    let counts = statistics.take().counts;
    assert!(
        counts.samples > 100 && counts.samples_lost == 0,
        "{counts:?}"
    );
    end(children);
    scheduler.stop();
}

/// Its threads end together, while faster CPUs fall idle. One that dispatch finds such a CPU for,
/// and that the kernel then leaves where it is, waits there for the next interrupt: for up to
/// seconds, in about one run of ten (seen on Linux 6.18, not on 7.3).
#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn tasks_that_end_do_so_at_once() {
    let scheduler = Scheduler::start(&["--policy", "none"]);
    let took = (0..60).map(|_| {
        let begun = Instant::now();
        let mut bench = Command::new("perf");
        bench.args(["bench", "sched", "messaging", "-g", "1", "-l", "100"]);
        assert!(bench.stdout(Stdio::null()).status().unwrap().success());
        begun.elapsed().as_secs_f64()
    });
    let took: Vec<f64> = took.collect();
    scheduler.stop();
    let longest = took.iter().copied().fold(0.0, f64::max);
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    println!("{mean:.3} s, the longest {longest:.3} s");
    assert!(longest < 2.0 * mean, "{took:.2?}");
}

/// Its slowdown on an E core is known from its time alone on a P core.
#[test]
fn what_is_known_of_a_thread_survives_hotplug() {
    let online = "/sys/devices/system/cpu/cpu7/online";
    let scheduler = Scheduler::start(&["--policy", "camps", "--samples", SAMPLES]);
    let child = program("fp --seconds 100");
    let tid = child.id();
    pin(tid as i32, &[0]);
    thread::sleep(s(1));
    pin(tid as i32, &[5]);
    thread::sleep(s(1));
    fs::write(online, "0").unwrap();
    let read = || {
        let mut all = samples();
        all.retain(|s| s.tid == u64::from(tid) && s.core_type == 1 && !s.last);
        all
    };
    thread::sleep(s(1));
    wait_until(s(30), "attached again", || state() == "enabled");
    thread::sleep(Duration::from_millis(500));
    end(vec![child]);
    scheduler.stop();
    fs::write(online, "1").unwrap();
    // While it starts anew nothing is counted: there is a gap.
    let all = read();
    let gap = all.windows(2).map(|two| two[1].at_ns - two[0].at_ns);
    let (at, _) = gap.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let (before, after) = (all[at].slowdown, all[at + 1].slowdown);
    println!(
        "slowdown {before:.2} before, {after:.2} after; {} samples",
        all.len()
    );
    assert!(
        all[at + 1].at_ns - all[at].at_ns > 0.5e9,
        "it did not start anew"
    );
    assert!(before > 1.5 && (after / before - 1.0).abs() < 0.1);
}
