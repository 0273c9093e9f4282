// SPDX-License-Identifier: GPL-2.0-only
//! Virtual counters, as found in the sysfs trees of known machines.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::fixtures::{CPU, Machine};
use scx_hetero::pmu::virtual_counters::{
    CounterKind, CounterName, CounterStatus, Description, Scope, Unit, VirtualCounters,
    VirtualReading, difference,
};

fn discover(machine: &Machine) -> VirtualCounters {
    VirtualCounters::discover(machine.root())
}

/// "package 0 = 61" for each counter of a name that has a value, "CPU 1 - reason" for the others.
fn readings(counters: &VirtualCounters, name: CounterName) -> Vec<String> {
    let (descriptions, readings) = (counters.describe(), counters.read());
    assert_eq!(descriptions.len(), readings.len());
    let pairs = descriptions.iter().zip(readings);
    let of_name = pairs.filter(|(description, _)| description.name == name);
    let lines = of_name.map(|(description, reading)| match reading {
        VirtualReading::Value(value) => format!("{} = {value}", description.scope),
        VirtualReading::Absent(why) => format!("{} - {why}", description.scope),
    });
    lines.collect()
}

fn only(counters: &VirtualCounters, name: CounterName) -> Description {
    let mut of_name = counters.describe().iter().filter(|d| d.name == name);
    let (first, next) = (of_name.next(), of_name.next());
    assert!(next.is_none(), "{next:?}");
    first.unwrap_or_else(|| panic!("no {name}")).clone()
}

#[track_caller]
fn assert_absent(counters: &VirtualCounters, name: CounterName, text: &str) {
    let description = only(counters, name);
    let CounterStatus::Absent(why) = &description.status else {
        panic!("{description:?}");
    };
    assert!(why.contains(text), "'{text}' is not in: {why}");
    let reading = readings(counters, name);
    assert!(reading[0].contains(text), "{reading:?}");
}

#[test]
fn a_laptop_shows_energy_by_rapl_domain() {
    let machine = Machine::new("virtual/laptop");
    let counters = discover(&machine);
    assert_eq!(
        readings(&counters, CounterName::EnergyPackage),
        ["package 0 = 262100"]
    );
    assert_eq!(
        readings(&counters, CounterName::EnergyCore),
        ["package 0 = 91000"]
    );
    assert_eq!(
        readings(&counters, CounterName::EnergyUncore),
        ["package 0 = 1200.5"]
    );
    assert_eq!(
        readings(&counters, CounterName::EnergyPsys),
        ["machine = 70000"]
    );
    assert_absent(&counters, CounterName::EnergyDram, "no dram domain");
    assert_absent(&counters, CounterName::EnergySensor, "no hwmon driver");

    let package = only(&counters, CounterName::EnergyPackage);
    assert_eq!(package.unit, Unit::Joules);
    assert_eq!(package.source, "/sys/class/powercap/intel-rapl:0/energy_uj");
    assert_eq!(package.status, CounterStatus::Present);
}

#[test]
fn a_laptops_energy_wraps_around() {
    let machine = Machine::new("virtual/laptop");
    let mut counters = discover(&machine);
    counters.retain(|counter| counter.name == CounterName::EnergyPackage);
    let before = counters.read();
    machine.set("sys/class/powercap/intel-rapl:0/energy_uj", "1000000");
    let grown = difference(counters.describe()[0].kind, &before[0], &counters.read()[0]);
    let grown = grown.value().unwrap();
    assert!((grown - 44.32885).abs() < 1e-6, "{grown}");
}

#[test]
fn a_laptop_shows_the_rest() {
    let machine = Machine::new("virtual/laptop");
    let counters = discover(&machine);
    assert_eq!(
        readings(&counters, CounterName::PowerSensor),
        ["BAT0 power1 = 9.5"]
    );
    assert_eq!(
        readings(&counters, CounterName::Temperature),
        [
            "package 0 = 61",
            "coretemp Core 0 = 58",
            "coretemp Core 32 = 55",
            "x86_pkg_temp = 61"
        ]
    );
    assert_eq!(
        readings(&counters, CounterName::LlcOccupancy),
        ["L3 0 = 6291456"]
    );
    assert_eq!(
        readings(&counters, CounterName::MbmTotal),
        ["L3 0 = 9007199254740"]
    );
    let llc = only(&counters, CounterName::MbmLocal);
    let cpus = (0..16).collect();
    assert_eq!(llc.scope, Scope::Llc { id: 0, cpus });
    assert_eq!(llc.kind, CounterKind::Cumulative { wraps_at: None });

    let frequencies = readings(&counters, CounterName::Frequency);
    assert_eq!(frequencies.len(), 16);
    assert_eq!(frequencies[0], "CPU 0 = 4700000000");
    assert_eq!(frequencies[10], "CPU 10 = 3400000000");
}

#[test]
fn an_arm_board_shows_its_sensors() {
    let machine = Machine::new("virtual/juno");
    let counters = discover(&machine);
    assert_eq!(
        readings(&counters, CounterName::EnergySensor),
        [
            "scpi_sensors SYS_ENM_A57 = 98765.4321",
            "scpi_sensors SYS_ENM_A53 = 12345.6789"
        ]
    );
    // Two alike chips are told apart, and a reading of now goes before an average.
    assert_eq!(
        readings(&counters, CounterName::PowerSensor),
        [
            "scpi_sensors SYS_POW_A57 = 0.41",
            "scpi_sensors SYS_POW_A53 = 0.12",
            "ina231 hwmon1 power1 = 0.25",
            "ina231 hwmon2 power1 = 0.75"
        ]
    );
    assert_eq!(
        readings(&counters, CounterName::Temperature),
        [
            "scpi_sensors PMIC = 33.5",
            "big-cluster = 41",
            "little-cluster - the driver does not know it (it says -274000)"
        ]
    );
    assert_eq!(
        readings(&counters, CounterName::Frequency)[1],
        "CPU 1 = 1100000000"
    );
    assert_absent(&counters, CounterName::EnergyPackage, "there is no RAPL");
    assert_absent(&counters, CounterName::LlcOccupancy, "no resctrl");
}

#[test]
fn a_virtual_machine_has_nothing_and_says_why() {
    let machine = Machine::new("virtual/vm");
    let counters = discover(&machine);
    let names: Vec<_> = counters.describe().iter().map(|d| d.name).collect();
    assert_eq!(names, CounterName::ALL);
    for &name in CounterName::ALL {
        assert_absent(&counters, name, "virtual machines rarely have it");
    }
}

#[test]
fn an_empty_tree_has_nothing_and_says_why() {
    let machine = Machine::empty();
    let counters = discover(&machine);
    for &name in CounterName::ALL {
        assert_absent(&counters, name, "no");
    }
    for (description, reading) in counters.describe().iter().zip(counters.read()) {
        let CounterStatus::Absent(why) = &description.status else {
            panic!("{description:?}");
        };
        assert_eq!(reading, VirtualReading::Absent(why.clone()));
        assert!(!why.contains("virtual machine"), "{why}");
    }
}

#[test]
fn what_could_be_had_tells_how() {
    let machine = Machine::empty();
    machine.set("sys/bus/event_source/devices/power/type", "22");
    fs::create_dir_all(machine.root().join("sys/fs/resctrl")).unwrap();
    let counters = discover(&machine);
    assert_absent(
        &counters,
        CounterName::EnergyPackage,
        "modprobe intel_rapl_msr",
    );
    assert_absent(&counters, CounterName::MbmTotal, "mount -t resctrl");

    machine.set("sys/fs/resctrl/info/L3/cbm_mask", "fff");
    assert_absent(
        &discover(&machine),
        CounterName::MbmTotal,
        "does not monitor",
    );
    machine.set("sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy", "1");
    let counters = discover(&machine);
    assert_eq!(
        only(&counters, CounterName::LlcOccupancy).status,
        CounterStatus::Present
    );
    assert_absent(&counters, CounterName::MbmTotal, "does not monitor this");

    machine.set("sys/class/thermal/thermal_zone0/type", "acpitz");
    assert_absent(
        &discover(&machine),
        CounterName::Temperature,
        "there is acpitz",
    );
}

#[test]
fn a_cpu_taken_offline_is_absent_until_it_is_back() {
    let machine = Machine::new("virtual/juno");
    let mut counters = discover(&machine);
    counters.retain(|counter| counter.name == CounterName::Frequency);
    machine.offline("5");
    assert_eq!(
        readings(&counters, CounterName::Frequency)[5],
        "CPU 5 - CPU 5 is offline"
    );
    // So it is when it was offline at the time of looking.
    let late = discover(&machine);
    assert_eq!(
        late.describe()
            .iter()
            .filter(|d| d.name == CounterName::Frequency)
            .count(),
        6
    );
    machine.set("sys/devices/system/cpu/online", "0-5");
    machine.set(&format!("{CPU}5/cpufreq/scaling_cur_freq"), "450000");
    for counters in [counters, late] {
        assert_eq!(
            readings(&counters, CounterName::Frequency)[5],
            "CPU 5 = 450000000"
        );
    }
}

#[test]
fn an_offline_cpu_does_not_show_its_clusters_frequency() {
    let machine = Machine::new("virtual/juno");
    machine.set("sys/devices/system/cpu/online", "0-4");
    let counters = discover(&machine);
    let status = counters
        .describe()
        .iter()
        .find(|d| d.scope == Scope::Cpu(5))
        .unwrap();
    assert_eq!(
        status.status,
        CounterStatus::Absent("CPU 5 is offline".into())
    );
}

#[test]
fn a_driver_that_is_unloaded_is_absent() {
    let machine = Machine::new("virtual/laptop");
    let counters = discover(&machine);
    fs::remove_dir_all(machine.root().join("sys")).unwrap();
    for reading in counters.read() {
        assert_eq!(reading.value(), None);
    }
    let package = &readings(&counters, CounterName::EnergyPackage)[0];
    assert!(package.contains("is gone"), "{package}");
}

#[test]
fn energy_for_root_only_is_absent_to_others() {
    let machine = Machine::new("virtual/laptop");
    let file = machine
        .root()
        .join("sys/class/powercap/intel-rapl:0/energy_uj");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&file).is_ok() {
        return; // We are root.
    }
    assert_absent(
        &discover(&machine),
        CounterName::EnergyPackage,
        "without root",
    );
}

#[test]
fn a_number_that_went_to_another_device_is_not_read() {
    let machine = Machine::new("virtual/laptop");
    // As in sysfs, a class holds links to the devices.
    let chip = "devices/platform/coretemp.0/hwmon/hwmon11";
    let coretemp = "sys/devices/platform/coretemp.0/hwmon/hwmon11";
    machine.set(&format!("{coretemp}/name"), "coretemp");
    machine.set(&format!("{coretemp}/temp1_input"), "50000");
    symlink(
        "../../../coretemp.0",
        machine.root().join(coretemp).join("device"),
    )
    .unwrap();
    let link = machine.root().join("sys/class/hwmon/hwmon11");
    symlink(format!("../../{chip}"), &link).unwrap();
    let counters = discover(&machine);
    let temperatures = readings(&counters, CounterName::Temperature);
    assert!(
        temperatures.contains(&"coretemp coretemp.0 temp1 = 50".to_string()),
        "{temperatures:?}"
    );

    fs::remove_dir_all(machine.root().join(coretemp)).unwrap();
    fs::remove_file(link).unwrap();
    machine.set("sys/class/hwmon/hwmon11/temp1_input", "99000");
    machine.set("sys/class/thermal/thermal_zone2/type", "iwlwifi_1");
    machine.set("sys/class/thermal/thermal_zone2/temp", "99000");
    let temperatures = readings(&counters, CounterName::Temperature);
    assert!(
        !temperatures.iter().any(|line| line.contains("99")),
        "{temperatures:?}"
    );
    assert!(
        temperatures
            .iter()
            .any(|line| line.contains("x86_pkg_temp sensor is gone"))
    );
}

#[test]
fn a_server_has_packages_dies_and_caches() {
    let machine = Machine::empty();
    machine.set("sys/devices/system/cpu/online", "0-7");
    for (zone, name) in [
        ("intel-rapl:0", "package-0-die-0"),
        ("intel-rapl:0:0", "dram"),
        ("intel-rapl:1", "package-1-die-1"),
        ("intel-rapl:1:0", "dram"),
        ("intel-rapl:2", "something new"),
    ] {
        machine.set(&format!("sys/class/powercap/{zone}/name"), name);
        machine.set(&format!("sys/class/powercap/{zone}/energy_uj"), "2000000");
    }
    machine.set(&format!("{CPU}{{0-3}}/cache/index3/id"), "0");
    machine.set(&format!("{CPU}{{4-7}}/cache/index3/id"), "10");
    machine.set(&format!("{CPU}{{0-7}}/cache/index3/level"), "3");
    machine.set("sys/fs/resctrl/info/last_cmd_status", "ok");
    for (cache, value) in [("00", "Unavailable"), ("10", "4096")] {
        let file = format!("sys/fs/resctrl/mon_data/mon_L3_{cache}/mbm_total_bytes");
        machine.set(&file, value);
    }
    let counters = discover(&machine);
    assert_eq!(
        readings(&counters, CounterName::EnergyDram),
        ["package 0 die 0 = 2", "package 1 die 1 = 2"]
    );
    assert_eq!(
        readings(&counters, CounterName::MbmTotal),
        [
            "L3 0 - the kernel says 'Unavailable' instead of a number",
            "L3 10 = 4096"
        ]
    );
    let with_10 = counters
        .describe()
        .iter()
        .find(|d| d.scope.to_string() == "L3 10");
    let cpus = vec![4, 5, 6, 7];
    assert_eq!(with_10.unwrap().scope, Scope::Llc { id: 10, cpus });
    // Without a known range nothing can be said about a counter that went backwards.
    assert_eq!(
        counters.describe()[0].kind,
        CounterKind::Cumulative { wraps_at: None }
    );
}

#[test]
fn amd_energy_is_by_socket_and_core() {
    let machine = Machine::empty();
    let chip = "sys/class/hwmon/hwmon0";
    machine.set(&format!("{chip}/name"), "amd_energy");
    for (n, label) in [(1, "Ecore000"), (2, "Ecore001"), (3, "Esocket0")] {
        machine.set(&format!("{chip}/energy{n}_label"), label);
        machine.set(&format!("{chip}/energy{n}_input"), &format!("{n}000000"));
    }
    let counters = discover(&machine);
    assert_eq!(
        readings(&counters, CounterName::EnergyPackage),
        ["package 0 = 3"]
    );
    assert_eq!(
        readings(&counters, CounterName::EnergyCore),
        ["amd_energy Ecore000 = 1", "amd_energy Ecore001 = 2"]
    );
}

#[test]
fn descriptions_and_readings_are_json_for_tools() {
    let machine = Machine::new("virtual/laptop");
    let counters = discover(&machine);
    let package = serde_json::to_value(only(&counters, CounterName::EnergyPackage)).unwrap();
    assert_eq!(package["name"], "energy-package");
    assert_eq!(package["unit"], "joules");
    assert_eq!(package["scope"]["package"], 0);
    assert_eq!(package["kind"]["cumulative"]["wraps_at"], 262_143.328_85);
    assert_eq!(package["status"], "present");
    let reading = serde_json::to_value(VirtualReading::Value(1.5)).unwrap();
    assert_eq!(reading["value"], 1.5);
}

#[test]
fn this_machine_can_be_asked() {
    let counters = VirtualCounters::discover("/".as_ref());
    assert_eq!(counters.read().len(), counters.describe().len());
    for &name in CounterName::ALL {
        assert!(counters.describe().iter().any(|d| d.name == name), "{name}");
    }
}
