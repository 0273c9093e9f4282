// SPDX-License-Identifier: GPL-2.0-only
//! Energy as Linux' own drivers show it, on boards with a power sensor for each cluster: `make test-kernels` runs
//! this on `odroid-xu4-energy` and `juno-r1-energy`, under the kernel's own scheduler.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// What the machine itself has counted: microjoules of each CPU by its number, and when, ns.
fn truth() -> (HashMap<usize, f64>, f64) {
    let output = Command::new("hybrid").arg("energy").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |line: &str| -> f64 { line.split(['=', ' ']).nth(3).unwrap().parse().unwrap() };
    let cpu = |line: &str| {
        Some((
            line.strip_prefix("cpu")?.split(' ').next()?.parse().ok()?,
            value(line),
        ))
    };
    let time = text.lines().find(|line| line.starts_with("time ")).unwrap();
    (text.lines().filter_map(cpu).collect(), value(time))
}

/// What the sensor at this address shows, W.
fn shown(address: &str) -> f64 {
    let folder = format!("/sys/bus/i2c/drivers/pmbus/0-00{address}/hwmon");
    let hwmon = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let file = hwmon.last().unwrap().unwrap().path().join("power1_input");
    fs::read_to_string(file)
        .unwrap()
        .trim()
        .parse::<f64>()
        .unwrap()
        / 1e6
}

#[test]
#[ignore = "takes long, with the modules that it needs; make test-kernels runs it"]
fn a_sensor_shows_the_watts_of_its_cluster() {
    // On both boards four small CPUs come first.
    let all = thread::available_parallelism().unwrap().get();
    for (address, cpus) in [("40", 4..all), ("45", 0..4)] {
        let pin = cpus.start.to_string();
        let args = ["integer", "--pin", &pin, "--seconds", "100"];
        let mut program = Command::new("hetero-programs").args(args).spawn().unwrap();
        thread::sleep(Duration::from_millis(300));
        let (before, since) = truth();
        let mut sum = 0.0;
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(100));
            sum += shown(address);
        }
        let (after, until) = truth();
        program.kill().unwrap();
        program.wait().unwrap();
        let joules: f64 = cpus.map(|cpu| after[&cpu] - before[&cpu]).sum::<f64>() / 1e6;
        let (watts, shown) = (joules / (until - since) * 1e9, sum / 10.0);
        println!("sensor {address}: {shown} W, really {watts}");
        assert!(watts > 0.05 && (shown / watts - 1.0).abs() < 0.02);
    }
}
