// SPDX-License-Identifier: GPL-2.0-only
//! Idle states from which Linux' own driver and governor choose, on `alder-lake-cpuidle`: its first four CPUs are P cores.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::rapl::truth;
use crate::support::{Scheduler, ms, pin, s};
use crate::testbed::sysfs;

const CPUS: usize = 8;
const ALL: [usize; CPUS] = [0, 1, 2, 3, 4, 5, 6, 7];
/// Polling, and the machine's own, of which Linux knows the latency, in microseconds.
const LATENCIES: [u64; 5] = [0, 2, 170, 200, 230];

fn state(cpu: usize, state: usize, file: &str) -> String {
    format!("devices/system/cpu/cpu{cpu}/cpuidle/state{state}/{file}")
}

fn number(cpu: usize, of: usize, file: &str) -> u64 {
    sysfs(&state(cpu, of, file)).parse().unwrap()
}

/// Only polling and the first state are left until it is dropped.
struct Shallow;

impl Shallow {
    fn write(text: &str) {
        for cpu in 0..CPUS {
            for deep in 2..LATENCIES.len() {
                fs::write(format!("/sys/{}", state(cpu, deep, "disable")), text).unwrap();
            }
        }
    }

    fn now() -> Self {
        Self::write("1");
        // What sleeps already stays where it is.
        for cpu in 0..CPUS {
            pin(0, &[cpu]);
        }
        pin(0, &ALL);
        Self
    }
}

impl Drop for Shallow {
    fn drop(&mut self) {
        Self::write("0");
    }
}

/// Watts of all cores while none has anything to do.
fn idle_watts() -> f64 {
    let (before, begin) = (truth(), Instant::now());
    thread::sleep(s(1));
    (truth()[1] - before[1]) / begin.elapsed().as_secs_f64()
}

/// How late a thread wakes on a CPU that has slept for long, in the median.
fn late(cpu: usize) -> Duration {
    pin(0, &[cpu]);
    let mut late: Vec<_> = (0..21)
        .map(|_| {
            let begin = Instant::now();
            thread::sleep(ms(10));
            begin.elapsed() - ms(10)
        })
        .collect();
    pin(0, &ALL);
    late.sort();
    late[10]
}

#[test]
fn linux_chooses_idle_states_with_and_without_the_scheduler() {
    let driver = sysfs("devices/system/cpu/cpuidle/current_driver");
    if driver == "none" {
        println!("SKIPPED: this kernel makes no driver of ACPI's idle states");
        return;
    }
    assert_eq!(driver, "acpi_idle");
    for cpu in [0, 4] {
        let latencies = std::array::from_fn(|of| number(cpu, of, "latency"));
        assert_eq!(latencies, LATENCIES);
    }
    // SAFETY: a plain system call: Linux may not be 50 us late for its own sake.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    for policy in [None, Some("camps")] {
        let scheduler = policy.map(|name| {
            let scheduler = Scheduler::start(&["--policy", name]);
            // Until it is done with starting.
            thread::sleep(s(5));
            scheduler
        });
        let (deep, late_deep) = (idle_watts(), [0, 4].map(late));
        let shallow = Shallow::now();
        let (halted, late_halted) = (idle_watts(), [0, 4].map(late));
        drop(shallow);
        println!("{policy:?}: {deep:.3} W, {late_deep:?}; halted {halted:.3} W, {late_halted:?}");
        // Four of 0.6 W and four of 0.15, or four of 0.02 and four of 0.005, and what wakes them.
        assert!((2.9..3.3).contains(&halted), "{halted}");
        assert!(deep < 0.6, "{deep}");
        for (deep, halted) in late_deep.into_iter().zip(late_halted) {
            let more = (deep - halted).as_micros();
            assert!((150..260).contains(&more), "{late_deep:?} {late_halted:?}");
        }
        if let Some(scheduler) = scheduler {
            scheduler.stop();
        }
    }
    for cpu in [0, 4] {
        assert!(number(cpu, 4, "usage") > 0);
        assert!(number(cpu, 4, "time") > number(cpu, 1, "time"));
    }
}
