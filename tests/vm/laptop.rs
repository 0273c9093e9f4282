// SPDX-License-Identifier: GPL-2.0-only
//! What other machines have one by one, `i7-1260p-laptop` has at once: Linux' own drivers find all of it.

use std::collections::BTreeMap;
use std::fs;
use std::thread;

use crate::rapl::truth;
use crate::support::{Hog, s};
use crate::testbed::{run, sysfs};

const CPUS: usize = 16;
const PACKAGE: &str = "class/powercap/intel-rapl:0/energy_uj";

/// Degrees of the package, by `coretemp`.
fn celsius() -> f64 {
    let sensors = fs::read_dir("/sys/class/hwmon").unwrap();
    let paths = sensors.map(|sensor| sensor.unwrap().path());
    let mut named = paths.filter(|path| {
        let name = fs::read_to_string(path.join("name")).unwrap();
        name.trim() == "coretemp"
    });
    let sensor = named.next().expect("coretemp");
    let text = fs::read_to_string(sensor.join("temp1_input")).unwrap();
    text.trim().parse::<f64>().unwrap() / 1e3
}

#[test]
#[ignore = "of the machine, and not of what runs on it; make test-kernels runs it"]
fn linux_finds_all_of_a_laptop_at_once() {
    assert_eq!(sysfs("devices/cpu_core/cpus"), "0-7");
    assert_eq!(sysfs("devices/cpu_atom/cpus"), "8-15");
    assert_eq!(
        sysfs("devices/system/cpu/cpu0/topology/thread_siblings_list"),
        "0-1"
    );
    let idle = sysfs("devices/system/cpu/cpuidle/current_driver");
    assert!(["acpi_idle", "none"].contains(&idle.as_str()), "{idle}");

    let listener = thread::spawn(|| run("feedback", &["8"]).0);
    let joules = || sysfs(PACKAGE).parse::<f64>().unwrap() / 1e6;
    let (cool, shown, really) = (celsius(), joules(), truth()[0]);
    let hogs = Hog::start_many(CPUS);
    thread::sleep(s(6));
    let (warm, shown, really) = (celsius(), joules() - shown, truth()[0] - really);
    drop(hogs);
    println!("{cool} to {warm} degrees, {shown:.1} J of {really:.1}");
    assert!((shown / really - 1.0).abs() < 0.02, "{shown} of {really}");
    assert!((25.0..90.0).contains(&cool) && cool < warm && warm <= 100.0);

    // By CPU, the performance that Linux passed on first and last: the budget has lowered clocks meanwhile.
    let text = listener.join().unwrap();
    let mut told: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let performance = words[2].strip_prefix("performance=").unwrap();
        let performance = performance.parse().unwrap();
        let [_, last] = told.entry(words[1]).or_insert([performance; 2]);
        *last = performance.min(*last);
    }
    assert_eq!(told.len(), CPUS, "{text}");
    assert!(
        told.values().all(|[first, least]| least < first),
        "{told:?}"
    );
    assert!(told["cpu0"][0] > told["cpu8"][0], "{told:?}");
}
