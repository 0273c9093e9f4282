// SPDX-License-Identifier: GPL-2.0-only
//! Advice to programs, in the virtual hybrid machine (`make test`): it comes from what really runs, and loops that are divided
//! by it do each iteration once.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::*;
use hetero_heartbeats::advice::{Advice, Subscription};
use scx_hetero::advice::SOCKET;

/// What is told at last, after so long.
fn advice_after(subscription: &mut Subscription, time: Duration) -> Advice {
    let begin = Instant::now();
    let mut told = None;
    while begin.elapsed() < time {
        told = subscription.news().or(told);
        std::thread::sleep(Duration::from_millis(20));
    }
    told.expect("there is no advice")
}

#[test]
fn a_program_is_told_what_others_leave() {
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let mut subscription = Subscription::new(None).unwrap();
    wait_until(Duration::from_secs(5), "listening", || {
        std::path::Path::new(SOCKET).exists()
    });
    let alone = advice_after(&mut subscription, Duration::from_secs(3));
    println!("\n{alone:?}");
    assert_eq!(alone.types.iter().map(|of| of.cpus).sum::<u32>(), 8);
    assert!(alone.company < 1.0);
    assert!(alone.threads >= 7);
    assert!(alone.types[1].speed < 0.9);
    let said = |args: &[&str]| {
        let output = Command::new(binary()).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let pid = std::process::id().to_string();
    let why = said(&["why", &pid]);
    println!("{why}");
    assert!(why.contains(&format!("process {pid} has subscribed to advice")));
    // `why` is company itself, for a moment.
    let advised = |threads: usize| why.contains(&format!("  advised  {threads} threads"));
    assert!((alone.threads - 1..=8).any(advised), "{why}");
    let doctor = said(&["doctor"]);
    assert!(doctor.contains("programs that ask"), "{doctor}");
    let others = (0..3).map(|_| {
        Command::new("hetero-programs")
            .args(["integer", "--seconds", "60"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    });
    let mut others: Vec<_> = others.collect();
    let beside = advice_after(&mut subscription, Duration::from_secs(3));
    println!("{beside:?}");
    others.iter_mut().for_each(|other| {
        other.kill().unwrap();
        other.wait().unwrap();
    });
    assert!((2.5..4.0).contains(&beside.company));
    assert!((4..=5).contains(&beside.threads));
    let loops = Command::new("loops")
        .env("LD_PRELOAD", "/lib/libscx_hetero_advice.so")
        .env("SCX_HETERO_ADVICE", "always")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&loops.stdout).into_owned();
    println!("{said}");
    assert!(loops.status.success(), "{said}");
    scheduler.stop();
}
