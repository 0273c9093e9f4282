// SPDX-License-Identifier: GPL-2.0-only
//! The topology as a user names it by hand, and as it is shown.

use super::*;

#[test]
fn the_override_decides() {
    let machine = Machine::new("i7-1260p");
    let topology = machine.with_types("fast=0-3,8,slow=4-7,9-15").unwrap();
    assert_sound(&topology);
    assert_eq!(types(&topology), "fast 0-3,8, slow 4-7,9-15");
    assert_eq!(topology.source, Source::Override);
    assert_eq!(
        topology.disagreements[0],
        "the hybrid PMUs have 0-7 faster than 8-15, \
         where --core-types has 0-3,8 faster than 4-7,9-15"
    );
    assert_eq!(
        domains(&topology),
        "fast 0-3,8, slow 4-7, slow 9-11, slow 12-15"
    );

    let agreed = machine.with_types("P=0-7,E=8-15").unwrap();
    assert_eq!(agreed.disagreements, [""; 0]);
    assert_eq!(agreed.types, machine.topology().types);
}

#[test]
fn the_override_makes_types_of_equal_cpus() {
    let machine = Machine::new("epyc-9354p");
    let topology = machine.with_types("P=0-15,32-47, E=16-31,48-63").unwrap();
    assert_eq!(types(&topology), "P 0-15,32-47, E 16-31,48-63");
    assert_eq!(capacities(&topology), [1024, 614]);
    assert_eq!(topology.capacity_source, None);
    let one = machine.with_types("all=0-63").unwrap();
    assert_eq!(types(&one), "all 0-63");
    assert_eq!(one.disagreements, [""; 0]);
}

#[test]
fn the_override_may_split_a_core_but_says_so() {
    let machine = Machine::new("i7-1260p");
    let topology = machine.with_types("a=0,2-7,b=1,8-15").unwrap();
    assert_sound(&topology);
    assert_noted(&topology, "CPUs 0-1 are one core");
}

#[test]
fn a_comma_continues_the_list_before() {
    let spec = |text: &str| text.parse::<CoreTypesSpec>().unwrap();
    assert_eq!(spec("P=0,2,E=1,3"), spec("P=0,2 , E=3,1"));
    assert_ne!(spec("P=0,2,E=1,3"), spec("E=1,3,P=0,2"), "the order ranks");
}

#[test]
fn override_mistakes_are_named_with_their_remedy() {
    let machine = Machine::new("i7-1260p");
    for (spec, texts) in [
        ("P=0-8,E=8-15", ["CPU 8 is in both P and E", "out of one"]),
        (
            "P=0-7,E=8-14",
            ["CPU 15 is online but in no core type", "add"],
        ),
        ("P=0-6,E=9-15", ["CPUs 7-8 are online but in no", "add"]),
        (
            "P=0-7,E=8-99",
            ["CPU 16 (in E) is not online", "has CPUs 0-15"],
        ),
        ("A=0,B=1,C=2,D=3,E=4-15", ["5 core types", "at most 4"]),
        ("P=0-7,=8-15", ["empty name", "P=8-15"]),
        ("P=0-7,P=8-15", ["P is listed twice", "in one list"]),
        ("P=0-15,E=", ["E has no CPUs", "leave it out"]),
        (
            "0-7,E=8-15",
            ["'0-7' has no core type name", "P=0-7,E=8-15"],
        ),
        ("", ["has no core type name", "write NAME=CPUS"]),
        (
            "P=0-7,E=eight",
            [
                "core type E are not understood",
                "'eight' is not a CPU list",
            ],
        ),
        ("P=1-0", ["of core type P", "runs backwards: write 0-1"]),
        ("P!=0-15", ["'P!' cannot name", "letters"]),
    ] {
        assert_fails(machine.with_types(spec), &texts);
    }
}

#[test]
fn an_override_outlives_a_cpu_going_offline() {
    let machine = Machine::new("i7-1260p");
    machine.offline("8");
    let topology = machine.with_types("P=0-7,E=8-15").unwrap();
    assert_eq!(types(&topology), "P 0-7, E 9-15");
    assert_noted(&topology, "CPU 8 is offline and left out of E");
    machine.offline("9-15");
    assert_eq!(types(&machine.with_types("P=0-7,E=8-15").unwrap()), "P 0-7");
}

#[test]
fn the_table_fits_a_terminal() {
    for name in ALL {
        let table = Machine::new(name).topology().table();
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{name}: {widest:?}\n{table}");
    }
    // The longest of everything.
    let machine = Machine::new("epyc-9354p");
    let odd: Vec<String> = (1..64).step_by(2).map(|cpu| cpu.to_string()).collect();
    let even: Vec<String> = (0..64).step_by(2).map(|cpu| cpu.to_string()).collect();
    let spec = format!(
        "fastest-of-them={},slowest-of-them={}",
        odd.join(","),
        even.join(",")
    );
    let table = machine.with_types(&spec).unwrap().table();
    assert!(
        table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
}

#[test]
fn the_table_tells_what_from_where_and_who_disagrees() {
    let table = Machine::new("i7-13700k").topology().table();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert!(rows.contains(&vec![
        "P",
        "0-15",
        "8",
        "0",
        "1024",
        "5.30-5.40",
        "cpu_core"
    ]));
    assert!(rows.contains(&vec!["E", "16-19", "4", "0", "641", "4.20", "cpu_atom"]));
    assert!(rows.contains(&vec!["20-23", "4", "0", "4.20"]));
    let end = table
        .split_once("Core types from the hybrid PMUs; capacities from CPPC")
        .unwrap()
        .1;
    let end = end.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(end.ends_with(
        "Sources disagree: cpu_capacity says that all 24 CPUs are the same, \
         where the hybrid PMUs have 0-15 faster than 16-23."
    ));

    let server = Machine::new("epyc-9354p").topology().table();
    let said = server.matches("no source tells").count();
    assert_eq!(said, 1, "once is enough:\n{server}");
    assert!(
        server.lines().count() < 16,
        "a row per cluster, not per CPU:\n{server}"
    );
}

#[test]
fn json_keeps_its_schema() {
    let json = Machine::new("ultra-7-155h").topology().to_json();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["source"], "pmu-and-l3");
    assert_eq!(json["capacity_source"], "cppc");
    assert_eq!(json["smt"], true);
    assert_eq!(json["nr_cpu_ids"], 22);
    assert_eq!(
        json["types"][2],
        serde_json::json!({
            "name": "LP-E", "cpus": [20, 21], "capacity": 492,
            "low_power_island": true, "pmu": "cpu_atom",
        })
    );
    assert_eq!(
        json["domains"][3],
        serde_json::json!({ "core_type": 2, "cpus": [20, 21], "shares_l2": false })
    );
    assert_eq!(
        json["cpus"][1],
        serde_json::json!({
            "id": 1, "core_type": 0, "domain": 0, "core": 0, "siblings": [0, 1], "llc": 0,
            "package": 0, "max_freq_khz": 4_800_000, "capacity": null, "highest_perf": 55,
        })
    );
    assert_eq!(json["disagreements"], serde_json::json!([]));
    assert_eq!(json["notes"], serde_json::json!([]));
}

/// Runs itself again with the variable set, as it is read from the environment of the process.
#[test]
fn scx_sysfs_prefix_is_honoured() {
    const CHILD: &str = "SCX_HETERO_TEST_PREFIX_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let topology = Topology::detect(None).unwrap();
        assert_eq!(types(&topology), "big 4-7, LITTLE 0-3");
        assert_eq!(topology, Topology::read(&Sysfs::from_env(), None).unwrap());
        return;
    }
    let machine = Machine::new("odroid-xu4");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "topology::shown::scx_sysfs_prefix_is_honoured"])
        .env("SCX_SYSFS_PREFIX", machine.root())
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && output.contains("1 passed"),
        "{output}"
    );
}

#[test]
fn cpulists_go_both_ways() {
    for list in ["", "0", "0-3", "0,2,4", "0-3,8,10-11"] {
        assert_eq!(cpulist::format(&cpulist::parse(list).unwrap()), list);
    }
    assert_eq!(cpulist::parse("3,1-2, 2\n").unwrap(), [1, 2, 3]);
    for bad in ["a", "1-", "-1", "1,,2", "2-1", "8192", "1-2-3"] {
        assert!(cpulist::parse(bad).is_err(), "{bad}");
    }
}
