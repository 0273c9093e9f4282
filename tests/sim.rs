// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero sim` as a user runs it.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scx_hetero"));
    command.arg("sim").args(args).output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    let output = sim(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// What it says when it fails.
fn error(args: &[&str]) -> String {
    let output = sim(args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A number of a scheduler in a line of JSON.
fn number(json: &str, scheduler: &str, key: &str) -> f64 {
    let report: Value = serde_json::from_str(json).unwrap();
    let rows = report["schedulers"].as_array().unwrap();
    let row = rows.iter().find(|row| row["scheduler"] == scheduler);
    row.unwrap()[key].as_f64().unwrap()
}

#[test]
fn a_mix_is_a_table_that_fits_the_terminal() {
    let text = stdout(&["W5", "--policy", "all", "--optimum", "--programs"]);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    for expected in [
        "camps",
        "default",
        "GemsFDTD",
        "UNFAIRNESS",
        "(fairest)",
        "SLOWDOWN",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

#[test]
fn json_has_a_line_for_each_mix() {
    let text = stdout(&["W5", "W24", "--policy", "camps", "--json", "--optimum"]);
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["mix"], "W24");
    let row = &lines[1]["schedulers"][0];
    let least = row["of_least_unfairness"].as_f64().unwrap();
    let most = row["of_best_asp"].as_f64().unwrap();
    assert!(
        (1.0..1.5).contains(&least) && (0.8..=1.01).contains(&most),
        "{row}"
    );
    assert_eq!(row["programs"].as_array().unwrap().len(), 6);
}

#[test]
fn the_same_seed_prints_the_same_bytes() {
    let run = |seed| stdout(&["W1", "--policy", "all", "--json", "--seed", seed]);
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn camps_is_fairer_than_default_where_programs_disturb_each_other() {
    for seed in ["1", "2", "3"] {
        let json = stdout(&["W5", "--policy", "default,camps", "--json", "--seed", seed]);
        let of = |scheduler| number(&json, scheduler, "unfairness");
        assert!(of("camps") < 0.7 * of("default"), "{json}");
    }
}

#[test]
fn rank_has_the_throughput_of_hsp_by_a_model_and_errors_cost_it_some() {
    let with = |words: &[&str]| {
        let all = [&["W24", "--policy", "rank,hsp", "--json"], words].concat();
        let json = stdout(&all);
        (number(&json, "rank", "asp"), number(&json, "hsp", "asp"))
    };
    let (rank, hsp) = with(&["--model-error", "0"]);
    let (bad, _) = with(&["--model-error", "40"]);
    assert!(rank > 0.98 * hsp && bad < rank, "{rank} {bad} {hsp}");
}

#[test]
fn hsp_has_the_throughput_where_speedups_differ_and_nobody_disturbs() {
    let json = stdout(&["W24", "--policy", "hsp,camps", "--json"]);
    assert!(number(&json, "hsp", "asp") >= number(&json, "camps", "asp"));
}

#[test]
fn fairness_can_be_given_up_for_throughput() {
    let run = |fairness| {
        let args = ["W24", "--policy", "camps", "--json", "--fairness", fairness];
        let json = stdout(&args);
        (
            number(&json, "camps", "unfairness"),
            number(&json, "camps", "asp"),
        )
    };
    let (fair, fast) = (run("100"), run("0"));
    assert!(fast.0 > fair.0 && fast.1 > fair.1, "{fair:?} {fast:?}");
}

#[test]
fn a_minute_of_six_threads_takes_well_under_a_second() {
    let run = |_| {
        let begin = std::time::Instant::now();
        stdout(&["W1", "--policy", "camps", "--seconds", "60", "--json"]);
        begin.elapsed()
    };
    // The best of some: others use the machine, too.
    let took = (0..5).map(run).min().unwrap();
    assert!(took.as_secs_f64() < 1.0, "{took:?}");
}

#[test]
fn misspelt_names_are_answered_with_what_was_meant() {
    assert!(error(&["W5x"]).contains("did you mean 'W5'?"));
    let text = error(&["soplx,astar", "--machine", "juno-r1"]);
    assert!(
        text.contains("no program 'soplx'; did you mean 'soplex'?"),
        "{text}"
    );
    let text = error(&["W5", "--machine", "juno"]);
    assert!(
        text.contains("no machine 'juno'") && text.contains("--list"),
        "{text}"
    );
    assert!(error(&["W5", "--policy", "camp"]).contains("camps"));
    assert!(error(&["soplex,astar"]).contains("--machine"));
    assert!(error(&["W5", "--machine", "server-1024", "--as-testbed"]).contains("[scale]"));
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let builtin = include_str!("../src/sim/data/machines/juno-r1.toml");
    let run = |text: &str| {
        let path = dir.path().join("mine.toml");
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_string();
        (sim(&["W5", "--machine", &path, "--policy", "none"]), path)
    };
    assert!(run(builtin).0.status.success());
    for (from, to, line, said) in [
        (
            "value = 1150,",
            "value = -1,",
            0,
            "`clock_mhz` must lie between",
        ),
        ("hz = {", "herz = {", 3, "herz"),
        ("llc = \"a53\"", "llc = \"a54\"", 0, "there is no llc a54"),
        (
            "paper = \"CAMPS, section",
            "note = \"CAMPS, section",
            0,
            "note",
        ),
        ("cpus = 4", "cpus = ", 0, ""),
    ] {
        let text = builtin.replacen(from, to, 1);
        assert_ne!(text, builtin);
        let (output, path) = run(&text);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(said), "{error}");
        let changed = 1 + text
            .lines()
            .zip(builtin.lines())
            .position(|(a, b)| a != b)
            .unwrap();
        let line = if line > 0 { line } else { changed };
        assert!(
            error.contains(&format!("{path}:{line}:")),
            "line {line}: {error}"
        );
    }
}

#[test]
fn programs_and_mixes_can_be_added() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let all = include_str!("../src/sim/data/programs/cpu2006.toml");
    let start = all.find("[gamess]").unwrap();
    let end = start + all[start..].find("\n\n[").unwrap();
    let mine = all[start..end].replace("gamess", "mine");
    let programs = write("programs.toml", &mine);
    let mixes = "machine = \"juno-r1\"\nsource = \"here\"\n[mixes]\nOurs = \"2*mine, lbm\"\n";
    let mixes = write("mixes.toml", mixes);
    let text = stdout(&["Ours", "--add-programs", &programs, "--add-mixes", &mixes]);
    assert!(text.contains("Ours on juno-r1: 2*mine, lbm"), "{text}");
    let broken = write(
        "broken.toml",
        &mine.replace("asymmetry = { value = 0", "asymmetry = { value = 7"),
    );
    let text = error(&["Ours", "--add-programs", &broken]);
    assert!(
        text.contains("broken.toml:") && text.contains("asymmetry"),
        "{text}"
    );
}

#[test]
fn programs_that_sleep_wake_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let all = include_str!("../src/sim/data/programs/cpu2006.toml");
    let start = all.find("[gamess]").unwrap();
    let end = start + all[start..].find("\n\n[").unwrap();
    let sleeper = all[start..end].replace("gamess", "sleeper");
    let sleep = "every_minstructions = { value = 8, assumed = \"5 ms\" }\n\
                 ms = { value = 10, assumed = \"twice as long\" }\n";
    let path = dir.path().join("sleeper.toml");
    fs::write(&path, format!("{sleeper}\n[sleeper.phase.sleep]\n{sleep}")).unwrap();
    let add = path.to_str().unwrap();
    let args = ["--machine", "juno-r1", "--add-programs", add, "--json"];
    let json = stdout(
        &[
            &["2*sleeper,gamess", "--policy", "camps", "--optimum"],
            &args[..],
        ]
        .concat(),
    );
    let report: Value = serde_json::from_str(&json).unwrap();
    let alone = |program: usize| {
        let times = &report["schedulers"][0]["programs"][program];
        times["alone"].as_f64().unwrap()
    };
    // 13 s of work, and 10 ms of sleep after each of 2710 parts of it.
    assert!(
        (alone(0) - 40.1).abs() < 0.5 && (alone(2) - 13.0).abs() < 0.1,
        "{json}"
    );
    // Three threads have room on the board: nobody waits long.
    assert!(number(&json, "camps", "unfairness") < 1.2, "{json}");
    assert!(
        report["optimum"]["skipped"]
            .as_str()
            .unwrap()
            .contains("sleep")
    );
}

#[test]
fn the_list_names_all() {
    let text = stdout(&["--list"]);
    for expected in [
        "juno-r1",
        "W24",
        "M16",
        "blackscholes(4), EP(4)",
        "GemsFDTD",
    ] {
        assert!(text.contains(expected), "{expected}");
    }
}
