// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::testing::SysfsFiles;

impl SysfsFiles {
    /// With so many core types.
    fn energy(&self, nr_types: usize) -> Energy {
        let counts = vec![2; nr_types];
        Energy::below(self.root(), Some(&hetero_core::testing::machine(&counts)))
    }
}

/// A machine of these files below /sys/class.
fn class(files: &[(&str, &str)]) -> SysfsFiles {
    SysfsFiles::below("sys/class", files)
}

const ZONE: &str = "powercap/intel-rapl:0";

fn rapl() -> SysfsFiles {
    class(&[
        ("powercap/intel-rapl:0/name", "package-0"),
        ("powercap/intel-rapl:0/max_energy_range_uj", "10000000"),
        ("powercap/intel-rapl:0/energy_uj", "9000000"),
        ("powercap/intel-rapl:0:0/name", "core"),
        ("powercap/intel-rapl:0:0/energy_uj", "1000000"),
        ("powercap/intel-rapl:0:1/name", "dram"),
        ("powercap/intel-rapl:0:1/energy_uj", "1000000"),
    ])
}

#[test]
fn joules_add_up_from_one_look_to_the_next_also_where_the_counter_wraps() {
    let machine = rapl();
    let mut energy = machine.energy(2);
    machine.set(&format!("{ZONE}/energy_uj"), "1000000");
    assert!((energy.joules().unwrap() - 2.0).abs() < 1e-5);
    machine.set(&format!("{ZONE}/energy_uj"), "4000000");
    machine.set("powercap/intel-rapl:0:0/energy_uj", "1500000");
    assert!((energy.joules().unwrap() - 5.0).abs() < 1e-5);
    assert!((energy.of(EnergyDomain::Cores).unwrap() - 0.5).abs() < 1e-5);
    assert_eq!(energy.of(EnergyDomain::Memory), Some(0.0));
    assert_eq!(energy.of(EnergyDomain::Platform), None);
    assert_eq!(
        energy.told(),
        "package (powercap), cores (powercap), memory (powercap)"
    );
    assert_eq!(energy.unseen(), "platform");
    assert_eq!(energy.missing(), None);
    assert!(!energy.integrates());
}

#[test]
fn without_a_sensor_one_line_says_so() {
    let mut energy = class(&[]).energy(2);
    assert_eq!(energy.joules(), None);
    assert!(!energy.is_counted());
    assert!(energy.missing().unwrap().contains("no RAPL"));
}

#[test]
fn clusters_are_known_by_their_labels_and_joules_go_before_watts() {
    let machine = class(&[
        ("hwmon/hwmon0/name", "scpi_sensors"),
        ("hwmon/hwmon0/energy1_input", "5000000"),
        ("hwmon/hwmon0/energy1_label", "ENM_BIG"),
        ("hwmon/hwmon0/energy2_input", "1000000"),
        ("hwmon/hwmon0/energy2_label", "ENM_LITTLE"),
        ("hwmon/hwmon0/power1_input", "2000000"),
        ("hwmon/hwmon0/power1_label", "POW_BIG"),
    ]);
    let mut energy = machine.energy(2);
    let used = energy.sensors().iter().filter(|sensor| sensor.is_used());
    assert_eq!(used.count(), 2);
    machine.set("hwmon/hwmon0/energy1_input", "8000000");
    machine.set("hwmon/hwmon0/energy2_input", "1500000");
    assert_eq!(energy.joules(), Some(3.5));
    let by_type = energy.reading().by_type;
    assert_eq!(by_type[..2], [Some(3.0), Some(0.5)]);
    // A sensor that nothing tells of is listed, and not used for the sum.
    machine.set("hwmon/hwmon1/name", "ina231");
    machine.set("hwmon/hwmon1/power1_input", "700000");
    let energy = machine.energy(3);
    assert!(!energy.is_counted());
    let unknown = energy
        .sensors()
        .iter()
        .filter(|s| s.domain == EnergyDomain::Unknown);
    assert_eq!(unknown.count(), 1);
    assert!(
        energy
            .missing()
            .unwrap()
            .contains("nothing says what the sensor ina231")
    );
}

#[test]
fn an_odroids_power_is_integrated_and_known_by_its_addresses() {
    let machine = class(&[]);
    for (hwmon, address, watts) in [
        (0, "0040", 2_000_000),
        (1, "0041", 100_000),
        (2, "0045", 300_000),
    ] {
        machine.set(&format!("hwmon/hwmon{hwmon}/name"), "ina231");
        machine.set(
            &format!("hwmon/hwmon{hwmon}/power1_input"),
            &watts.to_string(),
        );
        let device = machine
            .root()
            .join(format!("sys/class/hwmon/hwmon{hwmon}/device"));
        std::os::unix::fs::symlink(format!("../../../4-{address}"), device).unwrap();
    }
    let mut energy = machine.energy(2);
    assert!(energy.integrates());
    let later = Instant::now() + Duration::from_secs(1);
    energy.look(later, 0.0);
    let by_type = energy.reading().by_type;
    let [big, little] = [by_type[0].unwrap(), by_type[1].unwrap()];
    assert!(
        (big - 2.0).abs() < 0.1 && (little / big - 0.15).abs() < 1e-6,
        "{by_type:?}"
    );
    assert!(energy.of(EnergyDomain::Memory).is_some());
}

#[test]
fn amds_cores_add_up_by_core_type() {
    let machine = class(&[("hwmon/hwmon0/name", "amd_energy")]);
    for core in 0..4 {
        machine.set(&format!("hwmon/hwmon0/energy{}_input", core + 1), "1000000");
        machine.set(
            &format!("hwmon/hwmon0/energy{}_label", core + 1),
            &format!("Ecore{core:03}"),
        );
    }
    let mut energy = machine.energy(2);
    for core in 0..4 {
        machine.set(
            &format!("hwmon/hwmon0/energy{}_input", core + 1),
            &format!("{}", 2_000_000 + core * 1000),
        );
    }
    assert!((energy.joules().unwrap() - 4.006).abs() < 1e-9);
    assert!((energy.reading().by_type[1].unwrap() - 2.005).abs() < 1e-9);
}

#[test]
fn what_was_taken_while_the_machine_slept_is_of_no_interval() {
    let machine = rapl();
    let mut energy = machine.energy(2);
    let (begin, slept) = (Instant::now(), energy.asleep);
    let mut look = |seconds, asleep, micro: &str| {
        machine.set(&format!("{ZONE}/energy_uj"), micro);
        let now = begin + Duration::from_secs(seconds);
        energy.look_at(now, 1.0, slept + Duration::from_secs(asleep));
        energy.of(EnergyDomain::Package)
    };
    assert!(look(1, 0, "9500000").is_some());
    // An hour of sleep, in which 400 J were taken of which 6 are seen.
    assert_eq!(look(2, 3600, "5500000"), None);
    let next = look(3, 3600, "6000000").unwrap();
    assert!((next - 0.5).abs() < 1e-9, "{next}");
}

#[test]
fn a_sensor_that_lies_is_named_and_no_longer_used() {
    let machine = rapl();
    let mut energy = machine.energy(2);
    let mut now = Instant::now();
    for n in 0..8 {
        now += Duration::from_secs(1);
        let value = if n % 2 == 0 { "5000000000" } else { "4000000" };
        machine.set(&format!("{ZONE}/energy_uj"), value);
        energy.look(now, 2.0);
    }
    assert_eq!(energy.of(EnergyDomain::Package), None);
    let package = &energy.sensors()[0];
    assert!(
        matches!(package.status(), SensorStatus::Lies(_)),
        "{:?}",
        package.status()
    );
    // The cores go on.
    assert!(energy.is_counted());
    assert_eq!(energy.joules(), None);
}

#[test]
fn beside_a_weak_charger_the_battery_gives_only_a_part() {
    let machine = rapl();
    machine.set("power_supply/BAT0/type", "Battery");
    machine.set("power_supply/BAT0/status", "Discharging");
    machine.set("power_supply/BAT0/power_now", "900000");
    machine.set("power_supply/ADP1/type", "Mains");
    machine.set("power_supply/ADP1/online", "1");
    let mut battery = Battery::find(machine.root());
    battery.look();
    battery.wait();
    assert_eq!(battery.watts(), None);
    machine.set("power_supply/ADP1/online", "0");
    battery.look();
    battery.wait();
    assert_eq!(battery.watts(), Some(0.9));
}

#[test]
fn cores_above_their_package_and_a_package_above_the_battery_are_lies() {
    let machine = rapl();
    machine.set("power_supply/BAT0/type", "Battery");
    machine.set("power_supply/BAT0/status", "Discharging");
    machine.set("power_supply/BAT0/power_now", "900000");
    let mut energy = machine.energy(2);
    let mut now = Instant::now();
    let mut micro = [9_000_000_u64, 1_000_000];
    for _ in 0..190 {
        now += Duration::from_secs(1);
        // 2 W of the package, of which 3 W are the cores'; and the battery gives 0.9.
        micro[0] = (micro[0] + 2_000_000) % 10_000_000;
        micro[1] += 3_000_000;
        machine.set(&format!("{ZONE}/energy_uj"), &micro[0].to_string());
        machine.set("powercap/intel-rapl:0:0/energy_uj", &micro[1].to_string());
        energy.look(now, 1.0);
        energy.battery.wait();
    }
    let lies: Vec<_> = energy.sensors().iter().map(EnergySensor::status).collect();
    assert_eq!(lies[0], SensorStatus::Lies(SensorLie::Exceeds));
    assert_eq!(lies[1], SensorStatus::Lies(SensorLie::Exceeds));
}

#[test]
fn a_core_type_above_its_package_is_no_longer_used() {
    let machine = rapl();
    for cluster in 1..=2 {
        machine.set("hwmon/hwmon0/name", "scpi_sensors");
        let label = ["ENM_BIG", "ENM_LITTLE"][cluster - 1];
        machine.set(&format!("hwmon/hwmon0/energy{cluster}_label"), label);
        machine.set(&format!("hwmon/hwmon0/energy{cluster}_input"), "0");
    }
    let mut energy = machine.energy(2);
    let mut now = Instant::now();
    for second in 1..=70_u64 {
        now += Duration::from_secs(1);
        // 2 W of the package, of which 3 W are the fast cores'.
        let package = (9_000_000 + 2_000_000 * second) % 10_000_000;
        machine.set(&format!("{ZONE}/energy_uj"), &package.to_string());
        for (cluster, watts) in [(1, 3_000_000), (2, 500_000)] {
            let file = format!("hwmon/hwmon0/energy{cluster}_input");
            machine.set(&file, &(watts * second).to_string());
        }
        energy.look(now, 1.0);
    }
    let of = |t| {
        let mut of = energy.sensors().iter();
        of.find(|s| s.domain == EnergyDomain::CoreType(t)).unwrap()
    };
    assert_eq!(of(0).status(), SensorStatus::Lies(SensorLie::Exceeds));
    assert_eq!(of(1).status(), SensorStatus::Used);
    assert_eq!(energy.reading().by_type[0], None);
    assert!(energy.of(EnergyDomain::Package).is_some());
}

#[test]
fn a_package_above_twice_its_limit_is_not_believed() {
    let machine = rapl();
    for (at, name, micro) in [(0, "long_term", "15000000"), (1, "short_term", "40000000")] {
        machine.set(&format!("{ZONE}/constraint_{at}_name"), name);
        machine.set(&format!("{ZONE}/constraint_{at}_power_limit_uw"), micro);
    }
    machine.set(&format!("{ZONE}/max_energy_range_uj"), "262143000000");
    let mut energy = machine.energy(2);
    let mut now = Instant::now();
    let mut micro = 9_000_000_u64;
    let mut after = |energy: &mut Energy, watts: u64| {
        for _ in 0..10 {
            now += Duration::from_secs(1);
            micro += watts * 1_000_000;
            machine.set(&format!("{ZONE}/energy_uj"), &micro.to_string());
            energy.look(now, 1.0);
        }
        energy.sensors()[0].status()
    };
    assert_eq!(after(&mut energy, 70), SensorStatus::Used);
    let status = after(&mut energy, 400);
    assert_eq!(status, SensorStatus::Lies(SensorLie::Jumps));
}

/// As Linux 6.15 and later show it. What it counts only that machine's perf knows, so that it is found here, and not read.
#[test]
fn amds_cores_are_found_by_perf_each_of_its_core_type() {
    let files = [
        ("type", "22"),
        ("cpumask", "0,2-3,9"),
        ("events/energy-core", "event=0x01"),
        ("events/energy-core.scale", "2.3283064365386962890625e-10"),
    ];
    let machine = SysfsFiles::below("sys/bus/event_source/devices/power_core", &files);
    let energy = machine.energy(2);
    let found: Vec<String> = energy.sensors().iter().map(|of| of.to_string()).collect();
    let domains: Vec<EnergyDomain> = energy.sensors().iter().map(|of| of.domain).collect();
    let [p, e] = [0, 1].map(EnergyDomain::CoreType);
    assert_eq!(domains, [p, e, e, EnergyDomain::Unknown], "{found:?}");
    assert!(!energy.is_counted());
    let missing = energy.missing().unwrap();
    assert!(
        missing.contains("energy-core of CPU 0") && missing.contains("another machine"),
        "{missing}"
    );
}

#[test]
fn powercaps_cores_of_amd_are_a_single_one_and_not_used() {
    let machine = SysfsFiles::new(&[
        ("proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD"),
        ("sys/class/powercap/intel-rapl:0/name", "package-0"),
        ("sys/class/powercap/intel-rapl:0/energy_uj", "1000000"),
        ("sys/class/powercap/intel-rapl:0:0/name", "core"),
        ("sys/class/powercap/intel-rapl:0:0/energy_uj", "1000000"),
    ]);
    let mut energy = machine.energy(2);
    assert!(energy.joules().is_some());
    assert_eq!(energy.told(), "package (powercap)");
    assert_eq!(energy.of(EnergyDomain::Cores), None);
}
