// SPDX-License-Identifier: GPL-2.0-only
//! Core types, clusters and SMT siblings, as found in the sysfs trees of known machines.

mod captured;
mod cpuid;
mod odd;
mod shown;

use std::process::Command;

use crate::fixtures::{CPU, Machine};
use scx_hetero::topology::{CoreTypesSpec, Cpu, MAX_CORE_TYPES, Source, Sysfs, Topology, cpulist};

const ALL: [&str; 8] = [
    "epyc-9354p",
    "i7-1260p",
    "i7-13700k",
    "odroid-xu4",
    "phone-4-2-2",
    "ryzen-7950x",
    "ryzen-ai-9-hx-370",
    "ultra-7-155h",
];

/// "P 0-7, E 8-15"
fn types(topology: &Topology) -> String {
    let types = topology.types.iter();
    let types = types.map(|t| format!("{} {}", t.name, cpulist::format(&t.cpus)));
    types.collect::<Vec<_>>().join(", ")
}

/// "P 0-7, E 8-11, E 12-15"
fn domains(topology: &Topology) -> String {
    let name = |index: usize| &topology.types[index].name;
    let domains = topology.domains.iter();
    let domains = domains.map(|d| format!("{} {}", name(d.core_type), cpulist::format(&d.cpus)));
    domains.collect::<Vec<_>>().join(", ")
}

fn capacities(topology: &Topology) -> Vec<u32> {
    topology.types.iter().map(|t| t.capacity).collect()
}

fn pmus(topology: &Topology) -> Vec<&str> {
    let types = topology.types.iter();
    types.map(|t| t.pmu.as_deref().unwrap_or("none")).collect()
}

/// Some note must hold `text`.
#[track_caller]
fn assert_noted(topology: &Topology, text: &str) {
    let notes = &topology.notes;
    assert!(notes.iter().any(|note| note.contains(text)), "{notes:#?}");
}

#[track_caller]
fn assert_fails(result: anyhow::Result<Topology>, texts: &[&str]) {
    let error = format!("{:#}", result.expect_err("accepted"));
    for text in texts {
        assert!(error.contains(text), "'{text}' is not in: {error}");
    }
}

/// What holds whatever the machine: indices fit, and every CPU is in one type and one domain.
#[track_caller]
fn assert_sound(topology: &Topology) {
    assert!((1..=MAX_CORE_TYPES).contains(&topology.types.len()));
    assert_eq!(topology.types[0].capacity, 1024);
    assert!(topology.types.iter().all(|t| t.capacity > 0));
    assert!(
        topology
            .types
            .is_sorted_by_key(|t| std::cmp::Reverse(t.capacity))
    );
    assert!(topology.cpus.is_sorted_by_key(|cpu| cpu.id));
    assert!(
        topology
            .domains
            .is_sorted_by_key(|d| (d.core_type, d.cpus[0]))
    );
    let mut in_types: Vec<u32> = topology.types.iter().flat_map(|t| t.cpus.clone()).collect();
    let mut in_domains: Vec<u32> = topology
        .domains
        .iter()
        .flat_map(|d| d.cpus.clone())
        .collect();
    in_types.sort_unstable();
    in_domains.sort_unstable();
    let ids: Vec<u32> = topology.cpus.iter().map(|cpu| cpu.id).collect();
    assert_eq!(in_types, ids);
    assert_eq!(in_domains, ids);
    for cpu in &topology.cpus {
        assert!(cpu.id < topology.nr_cpu_ids);
        assert!(topology.types[cpu.core_type].cpus.contains(&cpu.id));
        assert!(topology.domains[cpu.domain].cpus.contains(&cpu.id));
        assert_eq!(topology.domains[cpu.domain].core_type, cpu.core_type);
        assert!(cpu.siblings.contains(&cpu.id));
        assert_eq!(cpu.siblings[0], cpu.core);
        assert!(cpu.siblings.iter().all(|id| ids.contains(id)));
    }
}

#[test]
fn every_fixture_is_sound() {
    for name in ALL {
        assert_sound(&Machine::new(name).topology());
    }
}

#[test]
fn alder_lake_has_p_and_e_cores_in_two_clusters() {
    let topology = Machine::new("i7-1260p").topology();
    assert_eq!(types(&topology), "P 0-7, E 8-15");
    assert_eq!(domains(&topology), "P 0-7, E 8-11, E 12-15");
    assert_eq!(topology.source, Source::Pmu);
    assert_eq!(pmus(&topology), ["cpu_core", "cpu_atom"]);
    assert_eq!(capacities(&topology), [1024, 1024 * 34 / 60]);
    assert_eq!(topology.capacity_source, Some(Source::Cppc));
    assert_eq!(topology.nr_cpu_ids, 16);
    assert!(topology.smt);
    assert_eq!(topology.disagreements, [""; 0]);
    assert_eq!(topology.notes, [""; 0]);
    assert_eq!(
        topology.summary(),
        "4P (8 threads) + 8E in 2 clusters, from the hybrid PMUs"
    );

    let (p, e) = (topology.cpu(3).unwrap(), topology.cpu(9).unwrap());
    assert_eq!((p.core, p.siblings.as_slice()), (2, &[2, 3][..]));
    assert_eq!((e.core, e.siblings.as_slice()), (9, &[9][..]));
    assert_eq!((p.core_type, p.domain, e.core_type, e.domain), (0, 0, 1, 1));
    assert_eq!(p.llc, e.llc, "P and E share the L3");
    assert!(topology.fastest_share_a_cache());
    assert_eq!(
        (p.max_freq_khz, p.highest_perf, p.capacity),
        (Some(4_600_000), Some(59), None)
    );
}

#[test]
fn meteor_lake_has_lp_e_cores_where_the_l3_is_missing() {
    let topology = Machine::new("ultra-7-155h").topology();
    assert_eq!(types(&topology), "P 0-11, E 12-19, LP-E 20-21");
    assert_eq!(domains(&topology), "P 0-11, E 12-15, E 16-19, LP-E 20-21");
    assert_eq!(topology.source, Source::PmuAndL3);
    assert_eq!(pmus(&topology), ["cpu_core", "cpu_atom", "cpu_atom"]);
    let islands = topology.types.iter().map(|t| t.low_power_island);
    assert_eq!(islands.collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(topology.disagreements, [""; 0]);
    let llc = |id| topology.cpu(id).unwrap().llc;
    assert_eq!((llc(0), llc(19), llc(20), llc(21)), (0, 0, 1, 1));
}

#[test]
fn lunar_lake_has_p_cores_and_an_island() {
    let topology = Machine::new("ultra-7-258v").topology();
    assert_eq!(types(&topology), "P 0-3, LP-E 4-7");
    let islands = topology.types.iter().map(|t| t.low_power_island);
    assert_eq!(islands.collect::<Vec<_>>(), [false, true]);
    assert_ne!(topology.cpu(0).unwrap().llc, topology.cpu(4).unwrap().llc);
}

#[test]
fn arrow_lake_h_has_p_cores_on_both_sides_of_the_e_cores_and_an_island() {
    let topology = Machine::new("ultra-9-285h").topology();
    assert_eq!(types(&topology), "P 0-1,10-13, E 2-9, LP-E 14-15");
    assert_eq!(domains(&topology), "P 0-1,10-13, E 2-5, E 6-9, LP-E 14-15");
    assert_eq!(topology.source, Source::Pmu);
    assert_eq!(pmus(&topology), ["cpu_core", "cpu_atom", "cpu_lowpower"]);
}

#[test]
fn a_low_power_pmu_needs_no_l3_to_tell() {
    let machine = Machine::new("ultra-7-155h");
    let devices = "sys/bus/event_source/devices";
    machine.set(&format!("{devices}/cpu_atom/cpus"), "12-19");
    machine.set(&format!("{devices}/cpu_lowpower/cpus"), "20-21");
    let topology = machine.topology();
    assert_eq!(types(&topology), "P 0-11, E 12-19, LP-E 20-21");
    assert_eq!(topology.source, Source::Pmu);
    assert_eq!(pmus(&topology), ["cpu_core", "cpu_atom", "cpu_lowpower"]);
    assert!(topology.types[2].low_power_island);
}

#[test]
fn without_pmus_the_frequency_tells_and_the_l3_names() {
    let machine = Machine::new("ultra-7-155h");
    for dir in ["sys/bus/event_source/devices", "sys/devices"] {
        machine.remove(&format!("{dir}/cpu_core/cpus"));
        machine.remove(&format!("{dir}/cpu_atom/cpus"));
    }
    machine.remove(&format!("{CPU}{{0-21}}/acpi_cppc/highest_perf"));
    let topology = machine.topology();
    assert_eq!(types(&topology), "P 0-11, E 12-19, LP-E 20-21");
    assert_eq!(topology.source, Source::MaxFreq);
    assert_eq!(topology.capacity_source, Some(Source::MaxFreq));
}

#[test]
fn raptor_lake_says_that_cpu_capacity_sees_one_type() {
    let topology = Machine::new("i7-13700k").topology();
    assert_eq!(types(&topology), "P 0-15, E 16-23");
    assert_eq!(topology.source, Source::Pmu);
    assert_eq!(
        topology.disagreements,
        ["cpu_capacity says that all 24 CPUs are the same, \
             where the hybrid PMUs have 0-15 faster than 16-23"]
    );
    assert_eq!(topology.cpu(20).unwrap().capacity, Some(1024));
    assert_eq!(
        capacities(&topology),
        [1024, 1024 * 42 / 67],
        "by the middle P core, not the best"
    );
}

#[test]
fn odroid_orders_its_pmus_by_capacity() {
    let topology = Machine::new("odroid-xu4").topology();
    assert_eq!(types(&topology), "big 4-7, LITTLE 0-3");
    assert_eq!(domains(&topology), "big 4-7, LITTLE 0-3");
    assert_eq!(topology.source, Source::Pmu);
    assert_eq!(pmus(&topology), ["armv7_cortex_a15", "armv7_cortex_a7"]);
    assert_eq!(capacities(&topology), [1024, 377]);
    assert!(!topology.smt);
    let llc = |id| topology.cpu(id).unwrap().llc;
    assert_eq!(
        (llc(0), llc(3), llc(4)),
        (0, 0, 1),
        "each cluster has its own last level"
    );
    assert!(!topology.fastest_share_a_cache());
    assert_noted(&topology, "CPUs 0-7 are without cache information");
}

#[test]
fn odroid_without_any_number_takes_an_order_and_says_so() {
    let machine = Machine::new("odroid-xu4");
    machine.remove(&format!("{CPU}{{0-7}}/cpu_capacity"));
    machine.remove(&format!("{CPU}{{0-7}}/cpufreq/cpuinfo_max_freq"));
    let topology = machine.topology();
    assert_eq!(types(&topology), "big 4-7, LITTLE 0-3");
    assert_noted(
        &topology,
        "armv7_cortex_a15, then armv7_cortex_a7; --core-types",
    );
    assert_eq!(topology.capacity_source, None);
    assert_eq!(capacities(&topology), [1024, 614]);
    assert_noted(&topology, "each core type counts 60 % of the one before");
}

#[test]
fn a_phone_has_three_types_by_capacity() {
    let topology = Machine::new("phone-4-2-2").topology();
    assert_eq!(types(&topology), "big 6-7, mid 4-5, LITTLE 0-3");
    assert_eq!(topology.source, Source::Capacity);
    assert_eq!(capacities(&topology), [1024, 498, 160]);
    assert_eq!(pmus(&topology), ["armv8_pmuv3"; 3]);
    assert_eq!(domains(&topology), "big 6-7, mid 4-5, LITTLE 0-3");
    assert!(topology.cpus.iter().all(|cpu| cpu.llc == 0));
    assert!(topology.types.iter().all(|t| !t.low_power_island));
    assert_eq!(topology.disagreements, [""; 0]);
    assert_eq!(
        topology.summary(),
        "2 big + 2 mid + 4 LITTLE, from cpu_capacity"
    );
}

#[test]
fn a_server_has_one_core_type_said_in_one_line() {
    let topology = Machine::new("epyc-9354p").topology();
    assert_eq!(types(&topology), "cpu 0-63");
    assert_eq!(topology.source, Source::AllSame);
    assert_eq!(topology.domains.len(), 8);
    assert_eq!(topology.domains[1].cpus, [4, 5, 6, 7, 36, 37, 38, 39]);
    assert_eq!(topology.cpu(40).unwrap().siblings, [8, 40]);
    assert_eq!(topology.nr_cpu_ids, 128, "possible, not present");
    assert_eq!(pmus(&topology), ["cpu"]);
    assert_eq!(
        topology.summary(),
        "32 cores (64 threads) in 8 clusters, one core type: no source tells them apart"
    );
}

#[test]
fn preferred_cores_are_not_core_types() {
    let topology = Machine::new("ryzen-7950x").topology();
    assert_eq!(types(&topology), "cpu 0-31");
    assert_eq!(topology.source, Source::AllSame);
    assert_eq!(domains(&topology), "cpu 0-7,16-23, cpu 8-15,24-31");
    assert_eq!(topology.disagreements, [""; 0]);
}

// docs/install.md, "AMD X3D".
#[test]
fn a_die_that_the_firmware_ranks_far_above_the_other_is_a_core_type() {
    let machine = Machine::new("ryzen-7950x");
    let cache = format!("{CPU}{{0-7,16-23}}");
    machine.set(&format!("{cache}/cache/index3/size"), "98304K");
    machine.set(&format!("{cache}/cpufreq/cpuinfo_max_freq"), "5250000");
    let of_die = |cpus: &str, perf: &str| {
        machine.set(&format!("{CPU}{{{cpus}}}/acpi_cppc/highest_perf"), perf);
    };
    of_die("0-7,16-23", "196");
    of_die("8-15,24-31", "205");
    assert_eq!(
        types(&machine.topology()),
        "cpu 0-31",
        "clock and cache alone"
    );

    of_die("0-7,16-23", "166");
    assert_eq!(types(&machine.topology()), "P 8-15,24-31, E 0-7,16-23");
    of_die("0-7,16-23", "236");
    assert_eq!(types(&machine.topology()), "P 0-7,16-23, E 8-15,24-31");
}

#[test]
fn compact_zen_cores_are_a_core_type() {
    let machine = Machine::new("ryzen-ai-9-hx-370");
    let topology = machine.topology();
    assert_eq!(types(&topology), "P 0-3,12-15, E 4-11,16-23");
    assert_eq!(topology.source, Source::Cppc);
    let llc = |id| topology.cpu(id).unwrap().llc;
    assert_eq!((llc(0), llc(15), llc(4), llc(23)), (0, 0, 1, 1));

    machine.remove(&format!("{CPU}{{0-23}}/acpi_cppc/highest_perf"));
    let by_frequency = machine.topology();
    assert_eq!(types(&by_frequency), types(&topology));
    assert_eq!(by_frequency.source, Source::MaxFreq);
}

/// The ranks of AMD's preferred cores fall with heat while the machine runs; their clocks' maximum does not.
#[test]
fn ranks_that_heat_has_lowered_make_no_core_types() {
    let cool = Machine::new("ryzen-ai-9-hx-370").topology();
    // A little lower, so that they seem to be between the two types, and so low that they seem to be of the slower one.
    for (rank, seen) in [("162", "has 1,3,13,15 faster than 0,2,12,14"), ("140", "")] {
        let machine = Machine::new("ryzen-ai-9-hx-370");
        let hot = format!("{CPU}{{0,2,12,14}}/acpi_cppc/highest_perf");
        machine.set(&hot, rank);
        let topology = machine.topology();
        assert_sound(&topology);
        assert_eq!(types(&topology), types(&cool), "{rank}");
        assert_eq!(domains(&topology), domains(&cool));
        assert_eq!(topology.source, Source::MaxFreq);
        assert_eq!(capacities(&topology), [1024, 1024 * 3302629 / 5157895]);
        assert_eq!(topology.disagreements.len(), 1);
        assert!(
            topology.disagreements[0].starts_with("CPPC highest_perf")
                && topology.disagreements[0].contains(seen),
            "{:?}",
            topology.disagreements
        );

        // Only some clocks are known, or they tell nothing: the ranks are all there is.
        machine.remove(&format!("{CPU}{{4,16}}/cpufreq/cpuinfo_max_freq"));
        assert_eq!(machine.topology().source, Source::Cppc);
        machine.set(
            &format!("{CPU}{{0-23}}/cpufreq/cpuinfo_max_freq"),
            "2000000",
        );
        assert_eq!(machine.topology().source, Source::Cppc);
    }
}

#[test]
fn a_gap_makes_types_only_where_it_is_wide() {
    let machine = Machine::new("phone-4-2-2");
    let capacity = format!("{CPU}{{4-5}}/cpu_capacity");
    machine.set(&capacity, "891");
    assert_eq!(types(&machine.topology()), "big 4-7, LITTLE 0-3");
    machine.set(&capacity, "890");
    assert_eq!(types(&machine.topology()), "big 6-7, mid 4-5, LITTLE 0-3");
}

#[test]
fn more_levels_than_types_keep_the_widest_gaps() {
    let machine = Machine::new("phone-4-2-2");
    for (cpu, capacity) in [100, 120, 200, 240, 500, 600, 900, 1024].iter().enumerate() {
        machine.set(&format!("{CPU}{cpu}/cpu_capacity"), &capacity.to_string());
    }
    let topology = machine.topology();
    assert_eq!(types(&topology), "prime 6-7, big 4-5, mid 2-3, LITTLE 0-1");
    assert_noted(&topology, "cpu_capacity has 7 levels");
    assert_sound(&topology);
}
