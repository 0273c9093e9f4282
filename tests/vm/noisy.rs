// SPDX-License-Identifier: GPL-2.0-only
//! Latencies between CPUs and out of idle states, and noise, in the virtual machine
//! `i7-1260p-noisy`: two threads on each P core, and two clusters of E cores.

use std::time::{Duration, Instant};

use crate::support::pin;
use crate::testbed::run;

/// By which its time is stretched.
const SCALE: f64 = 20.0;

/// How long a line takes from one CPU to another, in the real machine's nanoseconds.
fn transfer(cpus: &str) -> f64 {
    let args = ["pingpong", "--pin", cpus, "--seconds", "0.1", "--json"];
    let (line, _) = run("hetero-programs", &args);
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    1e9 / value["rate"].as_f64().unwrap() / 512.0 / SCALE
}

#[test]
#[ignore = "of the machine, and not of what runs on it; make test-kernels runs it"]
fn farther_cores_take_longer_to_hand_a_line_over() {
    let (thread, core) = (transfer("0,1"), transfer("0,6"));
    let (other, cluster) = (transfer("0,8"), transfer("8,9"));
    println!("\nsibling {thread}, P to P {core}, P to E {other}, within a cluster {cluster} ns");
    assert!(
        thread < 0.8 * core && core < other && other < cluster,
        "{thread} {core} {other} {cluster}"
    );
    // As an i9-12900K has it; see docs/testbed-calibration.md.
    assert!((32.0..40.0).contains(&core), "{core}");
    assert!((45.0..55.0).contains(&cluster), "{cluster}");
}

/// The median by which a sleeper is late.
fn late(sleep: Duration) -> Duration {
    let mut late: Vec<Duration> = (0..60)
        .map(|_| {
            let begin = Instant::now();
            std::thread::sleep(sleep);
            begin.elapsed() - sleep
        })
        .collect();
    late.sort();
    late[30]
}

#[test]
#[ignore = "of the machine, and not of what runs on it; make test-kernels runs it"]
fn a_deeper_sleep_ends_later() {
    // SAFETY: a plain system call; without it, the kernel may be 50 us late.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let (short, deep) = (
        late(Duration::from_micros(300)),
        late(Duration::from_millis(3)),
    );
    println!("\nlate by {short:?} after 300 us, {deep:?} after 3 ms");
    let apart = deep - short;
    assert!(
        (Duration::from_micros(200)..Duration::from_micros(260)).contains(&apart),
        "{short:?} {deep:?}"
    );
}

#[test]
#[ignore = "of the machine, and not of what runs on it; make test-kernels runs it"]
fn the_same_work_is_not_counted_alike() {
    // From its first instruction on a P core: the event counts on no other.
    pin(0, &[0]);
    let count = || -> f64 {
        let args = "stat -x, -e cpu_core/instructions/u hetero-programs integer --pin 0 --units 50";
        let args: Vec<&str> = args.split(' ').collect();
        let (_, stderr) = run("perf", &args);
        let line = stderr.lines().find(|l| l.contains("instructions")).unwrap();
        line.split(',').next().unwrap().parse().unwrap()
    };
    let counts: Vec<f64> = (0..3).map(|_| count()).collect();
    println!("\n{counts:?}");
    let least = counts.iter().copied().fold(f64::INFINITY, f64::min);
    let most = counts.iter().copied().fold(0.0, f64::max);
    assert!(most - least > 100.0, "{counts:?}");
    assert!(most < 1.005 * least, "{counts:?}");
}
