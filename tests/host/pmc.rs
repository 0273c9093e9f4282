// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `scx_hetero pmc`, on machines without counters.

use crate::program::command;
use std::process::Output;

fn pmc(args: &[&str]) -> Output {
    let empty = tempfile::tempdir().unwrap();
    let cpus = empty.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(cpus.join("cpu0/topology")).unwrap();
    for file in ["online", "possible", "present"] {
        std::fs::write(cpus.join(file), "0\n").unwrap();
    }
    command(&["pmc"])
        .args(args)
        .env("SCX_SYSFS_PREFIX", empty.path())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn without_a_pmu_one_line_says_so_and_nothing_is_run() {
    let output = pmc(&["--", "echo", "ran"]);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("No counters"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn events_are_listed_though_there_are_none() {
    let output = pmc(&["events"]);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.starts_with("No counters: ") && text.contains("Virtual counters"),
        "{text}"
    );
    let output = pmc(&["events", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["schema"], 1);
    assert_eq!(value["pmus"].as_array().unwrap().len(), 0);
    assert!(value["virtual_counters"].as_array().unwrap().len() >= 12);
}

#[test]
fn wrong_usage_is_told() {
    for args in [
        &[][..],
        &["-p", "1", "--", "true"],
        &["--ebs", "instructions", "--", "true"],
        &["-I", "5", "--", "true"],
        &["-e", "a,,b", "--", "true"],
        &["--virtual", "mood", "--", "true"],
        &["-I", "100", "--ebs", "cycles=1M", "--", "true"],
    ] {
        assert_eq!(pmc(args).status.code(), Some(2), "{args:?}");
    }
    let help = pmc(&["--help"]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success());
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}
