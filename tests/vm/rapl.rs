// SPDX-License-Identifier: GPL-2.0-only
//! Energy as perf's PMU `power` counts it, where powercap's driver is missing: on Intel's machines with energy.

use std::path::Path;
use std::thread;

use hetero_core::energy::reading::EnergyReading;
use scx_hetero::energy::{Energy, EnergyDomain};
use scx_hetero::stats::{Client, SOCKET};

use crate::support::{Hog, Scheduler, binary, s};
use crate::testbed::run;

/// What the machine itself has counted, J: the package, cores alone, and memory.
pub(crate) fn truth() -> [f64; 3] {
    let (text, _) = run("hybrid", &["energy"]);
    let [mut package, mut cores, mut memory] = [0.0; 3];
    for line in text.lines() {
        let mut words = line.split([' ', '=']);
        let name = words.next().unwrap();
        let joules = || words.nth(2)?.parse::<f64>().ok().map(|micro| micro / 1e6);
        match name {
            "package" => package = { joules }().unwrap(),
            "dram" => memory = { joules }().unwrap(),
            cpu if cpu.starts_with("cpu") => cores += { joules }().unwrap(),
            _ => {}
        }
    }
    [package, cores, memory]
}

/// Puts powercap's driver back.
struct Unloaded;

impl Unloaded {
    fn powercap() -> Self {
        run("rmmod", &["intel_rapl_msr"]);
        Self
    }
}

impl Drop for Unloaded {
    fn drop(&mut self) {
        run("insmod", &["/lib/power/intel_rapl_msr.ko"]);
    }
}

#[test]
fn energy_is_counted_by_perf_where_powercap_shows_nothing() {
    let of_powercap = Energy::from_now();
    let drivers: Vec<_> = of_powercap.sensors().iter().map(|s| s.driver()).collect();
    assert_eq!(drivers, ["powercap"; 3]);
    drop(of_powercap);
    let _unloaded = Unloaded::powercap();

    let scheduler = Scheduler::start(&["--policy", "ef"]);
    let _hogs = Hog::start_many(4);
    let mut client = Client::connect(Path::new(SOCKET)).unwrap();
    let mut energy = Energy::from_now();
    let domains = energy.sensors().iter().map(|sensor| sensor.domain);
    let domains: Vec<_> = domains.collect();
    for domain in [
        EnergyDomain::Package,
        EnergyDomain::Cores,
        EnergyDomain::Memory,
    ] {
        assert!(domains.contains(&domain), "{domain} is not in {domains:?}");
    }
    for sensor in energy.sensors() {
        assert!(sensor.is_used(), "{}: {:?}", sensor.path(), sensor.status());
        assert_eq!(sensor.driver(), "perf");
    }

    let (before, told_before) = (truth(), client.live().unwrap().joules.unwrap());
    let counted_before = energy.joules().unwrap();
    let since = energy.reading();
    thread::sleep(s(4));
    let (after, told_after) = (truth(), client.live().unwrap().joules.unwrap());
    let counted = energy.joules().unwrap() - counted_before;
    let EnergyReading { package, cores, .. } = energy.reading().since(&since);
    let told = told_after - told_before;
    let [really, of_cores, _] = [0, 1, 2].map(|i| after[i] - before[i]);
    println!(
        "package {really:.2} J, by perf {counted:.2}, told {told:.2}; cores {of_cores:.2}, by perf {:.2}",
        cores.unwrap()
    );
    assert!((package.unwrap() - counted).abs() < 0.01);
    for (said, really) in [(counted, really), (cores.unwrap(), of_cores)] {
        assert!((said / really - 1.0).abs() < 0.02, "{said} of {really}");
    }
    // The daemon looks at its own pace.
    assert!((told / really - 1.0).abs() < 0.1, "{told} of {really}");

    let (said, _) = run(&binary(), &["doctor"]);
    assert!(said.contains("package (perf)"), "{said}");
    scheduler.stop();
}
