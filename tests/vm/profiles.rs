// SPDX-License-Identifier: GPL-2.0-only
//! Profiles, in the virtual machine (`make test`): which cores are filled first, and that this can
//! change while everything runs.

use std::process::Command;
use std::thread;

use crate::support::*;

const E_CPUS: [usize; 2] = [2, 3];

fn set_profile(name: &str) -> String {
    let output = Command::new(binary())
        .args(["set", "profile", name])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What part of what these ran was on `cpus`.
fn part_on(cpus: &[usize], hogs: &[Hog]) -> f64 {
    let ran = measure(hogs, s(2), s(2));
    let on: u64 = ran.iter().map(|ran| ran.on(cpus)).sum();
    let total: u64 = ran.iter().map(Ran::total).sum();
    println!("{ran:?}");
    on as f64 / total as f64
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn saving_energy_fills_efficient_cores_first_and_leaves_none_idle_for_that() {
    let scheduler = Scheduler::start(&[SWAPPING, &["--profile", "powersave"]].concat());
    let two = Hog::start_many(2);
    assert!(part_on(&E_CPUS, &two) > 0.95);

    // The policy has wishes for six, and all CPUs are busy.
    let four_more = Hog::start_many(4);
    thread::sleep(s(1));
    let mut statistics = Statistics::from_now();
    thread::sleep(s(3));
    let now = statistics.take();
    assert_eq!(now.saves, 1);
    for (name, kind) in &now.core_types {
        assert!(kind.busy_pct > 95.0, "{name} {}", kind.busy_pct);
    }
    assert!(part_on(&P_CPUS, &two) > 0.2);

    drop(four_more);
    assert!(part_on(&E_CPUS, &two) > 0.95);
    let said = set_profile("gaming");
    assert!(said.starts_with("profile gaming, policy hsp"), "{said}");
    assert!(part_on(&P_CPUS, &two) > 0.95);
    set_profile("powersave");
    assert!(part_on(&E_CPUS, &two) > 0.95);
    scheduler.stop();
}
