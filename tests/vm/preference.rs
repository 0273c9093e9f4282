// SPDX-License-Identifier: GPL-2.0-only
//! Energy preferences (EPP), in Linux' own driver and in what clocks the cores then choose: on `alder-lake-4p4e`, whose first four
//! CPUs are P cores.

use std::fs;

use crate::support::{Scheduler, binary, ms, pin, s, truth, wait_until, work};
use crate::testbed::{run, sysfs};

/// A CPU of each core type.
const P: usize = 0;
const E: usize = 4;

fn file(cpu: usize) -> String {
    format!("devices/system/cpu/cpufreq/policy{cpu}/energy_performance_preference")
}

fn preferences() -> Vec<String> {
    (0..8).map(|cpu| sysfs(&file(cpu))).collect()
}

/// Cycles of a CPU's for each that its clock never changes, while it is busy.
fn clock(cpu: usize) -> f64 {
    pin(0, &[cpu]);
    let before = truth();
    work(ms(200));
    let after = truth();
    pin(0, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let of = |name| after[cpu][name] - before[cpu][name];
    of("cycles") / of("ref-cycles")
}

#[test]
fn preferences_are_frugal_while_energy_is_saved() {
    let balanced = "balance_performance";
    // Somebody's own number, which is left alone.
    fs::write(format!("/sys/{}", file(1)), "200").unwrap();
    let found = preferences();
    assert_eq!(
        [&*found[0], &*found[1], &*found[4]],
        [balanced, "200", balanced]
    );
    let mut lowered = vec!["balance_power".to_string(); 8];
    lowered[1] = "200".to_string();
    let clocks = [P, E].map(clock);

    let save = || {
        let scheduler = Scheduler::start(&["--policy", "none", "--profile", "powersave"]);
        wait_until(s(5), "preferred", || preferences() == lowered);
        scheduler
    };
    let scheduler = save();
    // 192, by docs/testbed-model.md#energy-preference.
    for (cpu, before) in [P, E].into_iter().zip(clocks) {
        let now = clock(cpu) / before;
        println!("CPU {cpu}: {now:.3} of its clock");
        assert!((now / 0.748 - 1.0).abs() < 0.02, "{now}");
    }
    scheduler.stop();
    assert_eq!(preferences(), found);

    // What it cannot put back itself, the service does.
    let mut scheduler = save();
    scheduler.signal(libc::SIGKILL);
    scheduler.wait();
    assert_eq!(preferences(), lowered);
    run(&binary(), &["restore"]);
    assert_eq!(preferences(), found);
    fs::write(format!("/sys/{}", file(1)), balanced).unwrap();
}
