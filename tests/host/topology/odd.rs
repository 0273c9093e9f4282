// SPDX-License-Identifier: GPL-2.0-only
//! Sysfs trees in which something is missing, wrong or contradictory.

use super::*;

#[test]
fn offline_cpus_take_no_part() {
    let machine = Machine::new("i7-1260p");
    machine.offline("1,9-11,14");
    let topology = machine.topology();
    assert_sound(&topology);
    assert_eq!(types(&topology), "P 0,2-7, E 8,12-13,15");
    assert_eq!(domains(&topology), "P 0,2-7, E 8, E 12-13,15");
    assert_eq!(topology.cpu(0).unwrap().siblings, [0]);
    assert_eq!(topology.cpu(1), None);
    assert_eq!(topology.nr_cpu_ids, 16);

    machine.offline("8,12-13,15");
    let topology = machine.topology();
    assert_eq!(types(&topology), "cpu 0,2-7");
    assert_eq!(topology.source, Source::AllSame);
}

#[test]
fn a_cpu_in_no_pmu_list_goes_with_the_nearest() {
    let machine = Machine::new("i7-1260p");
    let atom = "sys/bus/event_source/devices/cpu_atom/cpus";
    machine.set(atom, "9-15");
    let topology = machine.topology();
    assert_eq!(types(&topology), "P 0-7, E 8-15");
    assert_noted(
        &topology,
        "CPU 8 is not known to the hybrid PMUs: counted with CPUs 9-15",
    );
    assert_eq!(topology.types[1].pmu, None, "no PMU counts on all of them");

    // An SMT sibling says more than a number.
    machine.set(atom, "8-15");
    machine.set("sys/bus/event_source/devices/cpu_core/cpus", "0-2,4-7");
    machine.set(&format!("{CPU}3/acpi_cppc/highest_perf"), "34");
    assert_eq!(types(&machine.topology()), "P 0-7, E 8-15");
}

#[test]
fn a_cpu_claimed_by_two_pmus_is_said_so() {
    let machine = Machine::new("i7-1260p");
    machine.set("sys/bus/event_source/devices/cpu_core/cpus", "0-8");
    let topology = machine.topology();
    assert_sound(&topology);
    assert_noted(
        &topology,
        "PMUs cpu_atom and cpu_core both claim CPU 8: counted with cpu_atom",
    );
}

#[test]
fn a_missing_number_is_said_so() {
    let machine = Machine::new("phone-4-2-2");
    machine.remove(&format!("{CPU}4/cpu_capacity"));
    let topology = machine.topology();
    assert_eq!(types(&topology), "big 6-7, mid 4-5, LITTLE 0-3");
    assert_noted(
        &topology,
        "CPU 4 is not known to cpu_capacity: counted with CPU 5",
    );
}

#[test]
fn what_another_source_does_not_know_is_said_so() {
    let machine = Machine::new("odroid-xu4");
    machine.remove(&format!("{CPU}{{1-2}}/cpufreq/cpuinfo_max_freq"));
    let topology = machine.topology();
    assert_eq!(topology.source, Source::Pmu);
    assert_noted(&topology, "CPUs 1-2 are not known to the maximum frequency");
    assert_eq!(
        topology.disagreements, [""; 0],
        "it agrees on those it knows"
    );
}

#[test]
fn a_wrong_firmware_entry_changes_no_type() {
    // As on an Arrow Lake whose firmware gives two E cores the P cores' entry.
    let machine = Machine::new("i7-1260p");
    machine.set(&format!("{CPU}{{12-13}}/acpi_cppc/highest_perf"), "60");
    machine.set(
        &format!("{CPU}{{12-13}}/cpufreq/cpuinfo_max_freq"),
        "4700000",
    );
    let topology = machine.topology();
    assert_eq!(types(&topology), "P 0-7, E 8-15");
    assert_eq!(capacities(&topology), [1024, 1024 * 34 / 60]);
    assert_eq!(topology.disagreements.len(), 2);
    assert!(topology.disagreements[0].contains("has 0-7,12-13 faster than 8-11,14-15"));
}

#[test]
fn malformed_files_are_noted_and_ignored() {
    let machine = Machine::new("i7-1260p");
    machine.set(&format!("{CPU}9/cpufreq/cpuinfo_max_freq"), "<unknown>");
    machine.set(&format!("{CPU}10/acpi_cppc/highest_perf"), "-7");
    machine.set(&format!("{CPU}11/topology/core_cpus_list"), "11-x");
    machine.set(&format!("{CPU}12/cache/index3/shared_cpu_list"), "9-3");
    machine.set(&format!("{CPU}13/topology/physical_package_id"), "");
    machine.set("sys/devices/system/cpu/possible", "0-4294967295");
    let topology = machine.topology();
    assert_sound(&topology);
    assert_eq!(types(&topology), "P 0-7, E 8-15");
    assert_eq!(topology.cpu(9).unwrap().max_freq_khz, None);
    assert_eq!(topology.cpu(11).unwrap().siblings, [11]);
    assert_eq!(topology.nr_cpu_ids, 16);
    assert_noted(
        &topology,
        "cpu9/cpufreq/cpuinfo_max_freq holds '<unknown>', not a number",
    );
    assert_noted(&topology, "cpu10/acpi_cppc/highest_perf holds '-7'");
    assert_noted(&topology, "'11-x' is not a CPU list");
    assert_noted(&topology, "the range '9-3' in '9-3' runs backwards");
    assert_noted(&topology, "the possible CPUs are not known");
}

#[test]
fn malformed_pmu_lists_leave_the_other_sources() {
    let machine = Machine::new("i7-1260p");
    for dir in ["sys/bus/event_source/devices", "sys/devices"] {
        machine.set(&format!("{dir}/cpu_core/cpus"), "all");
        machine.set(&format!("{dir}/cpu_atom/cpus"), "");
    }
    let topology = machine.topology();
    assert_eq!(types(&topology), "P 0-7, E 8-15");
    assert_eq!(topology.source, Source::Cppc);
    assert_noted(&topology, "cpu_core/cpus: 'all' is not a CPU list");
}

#[test]
fn bare_cpus_are_enough() {
    let machine = Machine::empty();
    machine.set("sys/devices/system/cpu/online", "0-1");
    let topology = machine.topology();
    assert_sound(&topology);
    assert_eq!(types(&topology), "cpu 0-1");
    assert_eq!(domains(&topology), "cpu 0-1");
    assert_eq!(pmus(&topology), ["none"]);
}

#[test]
fn an_unreadable_machine_is_an_error() {
    let machine = Machine::empty();
    assert_fails(
        Topology::read(&machine.sysfs(), None),
        &["cannot read", "cpu/online", "is sysfs mounted?"],
    );
    machine.set("sys/devices/system/cpu/online", "zero");
    assert_fails(
        Topology::read(&machine.sysfs(), None),
        &["cannot use", "cpu/online", "'zero' is not a CPU list"],
    );
    machine.set("sys/devices/system/cpu/online", "");
    assert_fails(Topology::read(&machine.sysfs(), None), &["names no CPU"]);
}
