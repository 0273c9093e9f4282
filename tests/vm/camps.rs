// SPDX-License-Identifier: GPL-2.0-only
//! CAMPS in the virtual hybrid machine (`make test`): real programs, measured by the scheduler
//! itself, and the speeds that the programs themselves report.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use scx_hetero::stats::Counts;

use crate::support::*;

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

/// So many seconds of programs all at once.
fn together(programs: &[&str], seconds: u32) -> Vec<Child> {
    let seconds = seconds.to_string();
    let start = |name: &&str| program(name, &["--seconds", &seconds]);
    programs.iter().map(start).collect()
}

fn end(children: Vec<Child>) {
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Each program's slowdown against a P core of its own, over so many seconds of all at once.
fn slowdowns(alone: &[f64], seconds: u32) -> Vec<f64> {
    let children = together(&PROGRAMS, seconds);
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
    let default = unfairness(&slowdowns(&alone, 2));
    let scheduler = Scheduler::start(&["--policy", "camps", "--fairness", "100"]);
    let mut statistics = Statistics::from_now();
    let camps = unfairness(&slowdowns(&alone, 4));
    let counts = statistics.take().counts;
    println!("unfairness: {default:.2} by default, {camps:.2} with camps");
    println!("{counts:?}");
    assert!(
        counts.phase_hits > counts.phase_misses,
        "phases are not known again"
    );
    // One episode may fail by chance, and as NWC mode has 5 % of the time, the next is seconds away.
    let nwc = |of: Counts| [of.nwc_episodes, of.parked, of.held, of.nwc_learned];
    let mut seen = nwc(counts);
    let children = together(&PROGRAMS, 60);
    wait_until(s(18), "idling CPUs and learning in NWC mode", || {
        let more = nwc(statistics.take().counts);
        seen.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
        !seen.contains(&0)
    });
    println!("NWC mode: {seen:?}");
    end(children);
    scheduler.stop();
    assert!(camps < 0.75 * default && camps < 1.5);
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn who_lags_twice_the_threshold_is_swapped_whatever_that_does_to_contention() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let mut statistics = Statistics::from_now();
    let programs = "stream stream stream stream integer fp branchy hash".split(' ');
    let children = together(&programs.collect::<Vec<_>>(), 60);
    wait_until(Duration::from_secs(40), "swapped", || {
        statistics.take().counts.forced_swaps > 0
    });
    end(children);
    scheduler.stop();
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn programs_that_leave_memory_alone_need_no_nwc_mode() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let mut statistics = Statistics::from_now();
    let programs = "integer fp branchy hash integer fp branchy hash".split(' ');
    for child in together(&programs.collect::<Vec<_>>(), 5) {
        rate(child);
    }
    let counts = statistics.take().counts;
    scheduler.stop();
    println!("{counts:?}");
    assert!(
        counts.phase_hits > 9 * counts.phase_misses,
        "steady programs are not known again"
    );
    // But for one that begins unlike it goes on.
    assert!(counts.nwc_episodes <= 1 && counts.nwc_ns < 500_000_000);
}

/// How late threads that sleep for 2 ms and work for a moment wake up, meanwhile; sorted.
fn lateness(meanwhile: impl FnOnce()) -> Vec<Duration> {
    let stop = AtomicBool::new(false);
    let wakers = thread::scope(|scope| {
        let wake = || {
            let mut late = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let due = Instant::now() + Duration::from_millis(2);
                thread::sleep(Duration::from_millis(2));
                late.push(due.elapsed());
                compute(500);
            }
            late
        };
        let wakers: Vec<_> = (0..4).map(|_| scope.spawn(wake)).collect();
        meanwhile();
        stop.store(true, Ordering::Relaxed);
        wakers
            .into_iter()
            .flat_map(|waker| waker.join().unwrap())
            .collect::<Vec<_>>()
    });
    let mut late = wakers;
    late.sort_unstable();
    late
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn threads_that_somebody_waits_for_are_not_held_in_nwc_mode() {
    let all = || together(&PROGRAMS, 8).into_iter().map(rate).for_each(drop);
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let mut statistics = Statistics::from_now();
    let late = lateness(all);
    let counts = statistics.take().counts;
    scheduler.stop();
    let quantile = |q: f64| late[((late.len() - 1) as f64 * q) as usize];
    println!(
        "{} wake-ups, late by {:?} (median), {:?} (99 %), {:?} (all)",
        late.len(),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0)
    );
    println!("{counts:?}");
    assert!(counts.parked > 0, "no CPU was idled");
    // What is held waits for some tens of milliseconds.
    assert!(quantile(1.0) < Duration::from_millis(30));
}
